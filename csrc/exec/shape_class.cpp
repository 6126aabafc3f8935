#include "exec/shape_class.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "exec/arguments.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

using Reasons = std::map<std::string, std::string>;

// Vectors of Float have at most so many elements.
constexpr int64_t kWholeVectors = 16;
// Of large sizes: blocks of lines and of pages have no more; rows of two such dims begin at lines.
constexpr int64_t kWholeBlocks = 256;
constexpr int64_t kWholeWords = 8;

// Above, a kernel takes so long that it should suit its sizes: whether results are stored past the caches, how few rows are shared out.
constexpr int64_t kLargeBytes = 16 << 20;  // of a tensor on a rank

// Whether some symbol had no reason yet.
bool addSymbols(Reasons& reasons, const std::vector<IntExpr>& sizes, const std::string& why) {
  bool added = false;
  for (const IntExpr& size : sizes) {
    for (const std::string& symbol : size.symbols()) {
      added |= reasons.try_emplace(symbol, why).second;
    }
  }
  return added;
}

Reasons constantsOf(const Fusion& fusion) {
  Reasons reasons;
  const std::vector<bool> givesShapes = shapeInputs(fusion);
  for (const int64_t i : indices(givesShapes)) {
    const Val* in = fusion.inputs()[i];
    const std::string why = fmt::format("{} gives it", inputText(fusion, i));
    if (givesShapes[i] && in->isTensor()) {
      const int64_t count = in->asTensor()->shape()[0].isConst() ? in->asTensor()->shape()[0].constValue() : 0;
      for (int64_t k = 0; k < count; k++) {
        addSymbols(reasons, {in->asTensor()->element(k)}, why);
      }
    } else if (givesShapes[i]) {
      addSymbols(reasons, {in->intExpr()}, why);
    }
  }
  for (const TensorView* tv : fusion.tensors()) {
    if (tv->hasAllocation() && !tv->isFusionInput()) {
      addSymbols(reasons, tv->shape(), fmt::format("T{} has a memory order", tv->id()));
    }
  }
  return reasons;
}

std::vector<SymbolicDim> symbolicDimsOf(const Fusion& fusion) {
  std::vector<SymbolicDim> dims;
  for (const TensorView* tv : fusion.tensors()) {
    for (const IterDomain* id : tv->getLogicalDomain()) {
      if (id->isSymbolic()) {
        dims.push_back({tv->id(), id->extent()});
      }
    }
  }
  return dims;
}

// Whether a reason was added.
bool addDimsOfMaybeOneElement(const std::vector<SymbolicDim>& dims, const SymbolSizes& sizes, Reasons& reasons) {
  bool added = false;
  for (const SymbolicDim& dim : dims) {
    const IntExpr extent = dim.extent.substitute([&](std::string_view symbol) {
      const auto known = sizes.find(std::string(symbol));
      return known == sizes.end() ? std::nullopt : std::optional(known->second);
    });
    if (!extent.isConst() && extent.lower().value_or(0) < 2) {
      added |= addSymbols(reasons, {dim.extent},
                          fmt::format("a dim of T{} has {} elements, maybe 1", dim.tensor, dim.extent.toString()));
    }
  }
  return added;
}

// The sizes of a class are small or large together.
struct ClassTraits {
  int64_t devices = 1;
  bool isLarge = false;  // some tensor is
};

// What stands for a size of this value, by the declared facts of its symbol. A size that the devices of a mesh divide is a multiple of a
// symbol, so that its parts have no fractions: i0 is 4*i0.per4. Large sizes are between two powers of two.
IntExpr sizeLike(const std::string& symbol, int64_t value, const ClassTraits& traits, const SymbolFacts& declared) {
  const bool isEven = value % traits.devices == 0 && value >= 2 * traits.devices;
  const int64_t parts = isEven ? traits.devices : 1;
  const int64_t own = value / parts;
  const auto divides = [&](int64_t n) { return value % (n * parts) == 0; };
  const int64_t divisor = traits.isLarge && divides(kWholeBlocks)  ? kWholeBlocks
                          : divides(kWholeVectors)                 ? kWholeVectors
                          : traits.isLarge && divides(kWholeWords) ? kWholeWords
                                                                   : 1;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(own)));
  const int64_t least = traits.isLarge ? power : std::max<int64_t>(divisor, 2);
  const int64_t most = traits.isLarge ? power + (power - 1) : SymbolFacts().upper;
  const SymbolFacts facts{
      .lower = std::max(divideUp(declared.lower, parts), least),
      .upper = std::min(declared.upper == SymbolFacts().upper ? declared.upper : declared.upper / parts, most),
      .divisor = std::lcm(declared.divisor, parts * divisor) / parts};
  return parts * IntExpr::symbol(parts == 1 ? symbol : fmt::format("{}.per{}", symbol, parts), facts);
}

std::map<std::string, SymbolFacts> declaredFacts(const Fusion& fusion) {
  std::map<std::string, SymbolFacts> declared;
  for (const Val* in : fusion.inputs()) {
    for (const IntExpr& size : in->isTensor() ? in->asTensor()->shape() : std::vector<IntExpr>()) {
      for (const IntTerm& term : size.terms()) {
        for (const IntAtomPtr& atom : term.factors) {
          declared.try_emplace(atom->key, atom->facts);
        }
      }
    }
  }
  return declared;
}

std::string textOf(const IntExpr& size) {
  if (size.isConst()) {
    return size.toString();
  }
  const std::string what = size.divisor() == 1 ? "any number" : fmt::format("a multiple of {}", size.divisor());
  const std::optional<int64_t> upper = size.upper();
  return upper ? fmt::format("{} from {} to {}", what, *size.lower(), *upper)
               : fmt::format("{} from {} on", what, *size.lower());
}

bool haveSameFacts(const IntExpr& a, const IntExpr& b) {
  return a == b && a.divisor() == b.divisor() && a.lower() == b.lower() && a.upper() == b.upper();
}

// Sizes that vary, and are equal in a call, are the first of these symbols, or constants if one of them is.
ShapeClass classFor(const SymbolValues& values, const std::map<std::string, std::optional<int64_t>>& before,
                    const ClassTraits& traits, const std::map<std::string, SymbolFacts>& declared,
                    const Reasons& reasons) {
  ShapeClass made;
  SymbolValues varying;
  std::ranges::copy_if(values, std::inserter(varying, varying.end()), [&](const auto& entry) {
    const auto earlier = before.find(entry.first);
    return earlier != before.end() && earlier->second != entry.second;
  });
  std::map<int64_t, std::string> reasonOf;  // by value: an op may need equal sizes
  for (const auto& [symbol, value] : varying) {
    if (const auto reason = reasons.find(symbol); reason != reasons.end()) {
      reasonOf.try_emplace(value, reason->second);
    }
  }
  std::map<int64_t, IntExpr> symbolOf;  // by value
  for (const auto& [symbol, value] : values) {
    const auto reason = reasonOf.find(value);
    if (varying.contains(symbol) && reason != reasonOf.end()) {
      made.reasons[symbol] = reason->second;
    } else if (varying.contains(symbol) && value > 1) {
      const auto facts = declared.find(symbol);
      made.sizes[symbol] = symbolOf
                               .try_emplace(value, sizeLike(symbol, value, traits,
                                                            facts == declared.end() ? SymbolFacts() : facts->second))
                               .first->second;
      continue;
    }
    made.sizes[symbol] = value;
  }
  made.values = made.valuesFor(values);
  return made;
}

// Of a fusion with one symbol.
bool isLinear(const IntExpr& e, std::string_view symbol) {
  const std::optional<LinearForm> form = e.linearIn(symbol);
  return form && form->slope.isConst() && form->rest.isConst();
}

bool grows(const IntExpr& extent, std::string_view symbol) {
  return extent.isConst() || (isLinear(extent, symbol) && extent.linearIn(symbol)->slope.constValue() > 0 &&
                              extent.lower().value_or(0) >= 2);
}

// The sizes in a tensor's transforms and in an op, besides extents.
std::vector<IntExpr> sizesBesideExtents(const TensorView& tv) {
  std::vector<IntExpr> sizes;
  for (const IterDomain* id : allIds(tv)) {
    if (const IdExpr* e = id->definition(); e != nullptr) {
      append(sizes, e->sizes);
      append(sizes, std::vector<IntExpr>{e->factor, e->left, e->right});
    }
  }
  return sizes;
}

std::vector<IntExpr> sizesOf(const Expr& e) {
  std::vector<IntExpr> sizes;
  const ExprAttributes& a = e.attributes();
  for (const std::vector<IntExpr>* list : {&a.starts, &a.stops, &a.steps}) {
    append(sizes, *list);
  }
  for (const Val* in : e.inputs()) {
    if (!in->isTensor() && in->dtype() == DataType::Int) {
      sizes.push_back(in->intExpr());
    }
  }
  return sizes;
}

bool keepsElements(const Expr& e) {
  const auto elementsOf = [](const TensorView* tv) { return product(tv->shape()); };
  return e.kind() != ExprKind::Reshape || elementsOf(e.tensorInputs()[0]) == elementsOf(e.tensorOutput());
}

// Of the tensors whose sizes only these symbols give; each expression once.
std::vector<IntExpr> varyingBytes(const Fusion& fusion, const std::map<std::string, SymbolFacts>& symbols) {
  std::vector<IntExpr> all;
  const auto isKnown = [&](const std::string& symbol) { return symbols.contains(symbol); };
  for (const TensorView* tv : fusion.tensors()) {
    try {
      const IntExpr bytes = product(tv->shape()) * dataTypeSize(tv->dtype());
      if (!bytes.isConst() && !contains(all, bytes) && std::ranges::all_of(bytes.symbols(), isKnown)) {
        all.push_back(bytes);
      }
    } catch (const UserError&) {  // more than 64 bits: compiling refuses the tensor
    }
  }
  return all;
}

bool meshesFit(const Fusion& fusion, int64_t ranks) {
  try {
    checkMeshes(fusion, ranks);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

bool acceptsBetween(const Fusion& ofClass) {
  std::set<std::string> symbols;
  for (const Val* in : ofClass.inputs()) {
    for (const IntExpr& size : in->isTensor() ? in->asTensor()->shape() : std::vector<IntExpr>()) {
      std::ranges::move(size.symbols(), std::inserter(symbols, symbols.end()));
    }
  }
  if (symbols.size() != 1) {
    return false;
  }
  const auto allLinear = [&](const std::vector<IntExpr>& sizes) {
    return std::ranges::all_of(sizes, [&](const IntExpr& e) { return e.isConst() || isLinear(e, *symbols.begin()); });
  };
  const auto isSimple = [&](const TensorView* tv) {
    const auto extentGrows = [&](const IterDomain* id) { return grows(id->extent(), *symbols.begin()); };
    return std::ranges::all_of(allIds(*tv), extentGrows) && allLinear(sizesBesideExtents(*tv));
  };
  return std::ranges::all_of(ofClass.tensors(), isSimple) && std::ranges::all_of(ofClass.exprs(), [&](const Expr* e) {
           return keepsElements(*e) && allLinear(sizesOf(*e));
         });
}

std::vector<std::string> ShapeClass::toLines() const {
  if (!whyConstant.empty()) {
    return {"all sizes are constants, because " + whyConstant};
  }
  return mapped(sizes, [&](const auto& entry) {
    const auto& [symbol, size] = entry;
    const auto reason = reasons.find(symbol);
    const auto first =
        std::ranges::find_if(sizes, [&](const auto& other) { return !size.isConst() && other.second == size; });
    const bool isEqual = first != sizes.end() && first->first != symbol;
    return fmt::format("{} is {}{}{}", symbol, isEqual ? "equal to " + first->first : textOf(size),
                       reason == reasons.end() ? "" : ", because ", reason == reasons.end() ? "" : reason->second);
  });
}

std::string ShapeClass::whyNotFor(const Reasons& layouts) const {
  const auto first = std::ranges::find_if(layouts, [&](const auto& entry) {
    const auto size = sizes.find(entry.first);
    return size != sizes.end() && !size->second.isConst();
  });
  return first == layouts.end() ? "" : first->second;
}

SymbolValues ShapeClass::valuesFor(const SymbolValues& ofFusion) const {
  SymbolValues result;
  for (const auto& [symbol, size] : sizes) {
    if (!size.isConst()) {
      const IntTerm& term = size.terms()[0];
      result[term.factors[0]->key] = ofFusion.at(symbol) / term.coefficient;
    }
  }
  return result;
}

bool isSameClass(const ShapeClass& a, const ShapeClass& b) {
  return std::ranges::equal(a.sizes, b.sizes, [](const auto& x, const auto& y) {
    return x.first == y.first && haveSameFacts(x.second, y.second);
  });
}

Reasons layoutReasons(const Fusion& fusion, std::span<const Argument> inputs) {
  Reasons reasons;
  for (const int64_t i : indices(inputs)) {
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    if (t == nullptr) {
      continue;
    }
    const TensorView* tv = fusion.inputs()[i]->asTensor();
    const bool isDense = t->isContiguous() && alignmentOf(t->data()) == 64;
    if (!isDense || !(t->globalShape().empty() || tv->hasDeviceMesh())) {
      const std::string_view why = isDense ? "has a global shape" : "is not row-major at an address that 64 divides";
      addSymbols(reasons, tv->shape(), fmt::format("{} {}", inputText(fusion, i), why));
    }
  }
  return reasons;
}

ShapeHistory::ShapeHistory(const Fusion& fusion, int64_t rank, int64_t ranks)
    : fusion_(fusion),
      rank_(rank),
      hasMeshes_(meshesFit(fusion, ranks)),
      constants_(constantsOf(fusion)),
      declared_(declaredFacts(fusion)),
      symbolicDims_(symbolicDimsOf(fusion)),
      bytes_(varyingBytes(fusion, declared_)) {
  const TensorView* first = nullptr;
  for (const TensorView* tv : fusion.tensors()) {
    if (!tv->hasDeviceMesh()) {
      continue;
    }
    const DeviceMesh& mesh = tv->getDeviceMesh();
    first = first == nullptr ? tv : first;
    const auto isGiven = [](const LoopTransform& t) { return t.kind == LoopTransform::Kind::Partition; };
    const std::string_view why = mesh.isSymbolic()                   ? "a mesh with an axis of symbolic size"
                                 : !(mesh == first->getDeviceMesh()) ? "a second mesh"
                                 : mesh.numDevices() != ranks        ? "a mesh that does not hold all ranks"
                                 : std::ranges::any_of(tv->loopTransforms(), isGiven)
                                     ? "a mesh, in parts of given sizes"
                                     : "";
    if (!why.empty()) {
      whyConstant_ = fmt::format("T{} is on {}", tv->id(), why);
      return;
    }
    devices_ = ranks;
  }
}

std::optional<CallSizes> ShapeHistory::sizesOf(std::span<const Argument> inputs) const {
  if (!hasMeshes_) {
    return std::nullopt;
  }
  try {
    checkArguments(fusion_, inputs);
    CallSizes sizes;
    sizes.global = globalSizes(fusion_, inputs, rank_, &sizes.assumed);
    sizes.values = bindSymbols(fusion_, sizes.global);
    return sizes;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

ShapeClass ShapeHistory::classOf(std::span<const Argument> inputs, const std::optional<CallSizes>& sizes,
                                 const Reasons& layouts) const {
  if (!whyConstant_.empty()) {
    return {.whyConstant = whyConstant_};
  }
  if (const DeviceId device = deviceOf(inputs); device != DeviceId::cpu()) {
    return {.whyConstant = fmt::format("kernels of {} take constant sizes", device.toString())};
  }
  if (!sizes) {
    return {};
  }
  Reasons reasons = constants_;
  reasons.insert(layouts.begin(), layouts.end());
  try {
    const ClassTraits traits{.devices = devices_, .isLarge = isLarge(sizes->values)};
    ShapeClass made = classFor(sizes->values, onlyOne_, traits, declared_, reasons);
    while (addDimsOfMaybeOneElement(symbolicDims_, made.sizes, reasons)) {
      made = classFor(sizes->values, onlyOne_, traits, declared_, reasons);
    }
    const auto known =
        std::ranges::find_if(refused_, [&](const auto& entry) { return isSameClass(entry.first, made); });
    return known == refused_.end() ? made : ShapeClass{.whyConstant = known->second};
  } catch (const UserError&) {  // a size that is divided by 0: compiling refuses it, together with the peers
    return {};
  }
}

bool ShapeHistory::isLarge(const SymbolValues& values) const {
  return std::ranges::any_of(
      bytes_, [&](const IntExpr& bytes) { return bytes.evaluate(valuesIn(values)) / devices_ >= kLargeBytes; });
}

void ShapeHistory::refuse(const ShapeClass& refused, const std::string& why) {
  refused_.emplace_back(refused, why);
  if (refused_.size() > kMostRefused) {
    refused_.pop_front();
  }
}

void ShapeHistory::note(const SymbolValues& values) {
  for (const auto& [symbol, value] : values) {
    std::optional<int64_t>& only = onlyOne_.try_emplace(symbol, value).first->second;
    only = only == value ? only : std::nullopt;
  }
}

}  // namespace meshfuse
