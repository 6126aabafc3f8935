#include "exec/shape_class.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "exec/arguments.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

using Reasons = std::map<std::string, std::string>;

// Vectors of Float have at most so many elements.
constexpr int64_t kWholeVectors = 16;

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

// Of the values of the class, by the declared facts of the symbol.
SymbolFacts factsOf(int64_t value, const SymbolFacts& declared) {
  const bool isWhole = value % kWholeVectors == 0;
  return {.lower = std::max<int64_t>(declared.lower, isWhole ? kWholeVectors : 2),
          .upper = declared.upper,
          .divisor = isWhole ? std::lcm(declared.divisor, kWholeVectors) : declared.divisor};
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
  const SymbolFacts& facts = (*size.atom())->facts;
  const std::string what = facts.divisor == 1 ? "any number" : fmt::format("a multiple of {}", facts.divisor);
  return facts.upper == SymbolFacts().upper ? fmt::format("{} from {} on", what, facts.lower)
                                            : fmt::format("{} from {} to {}", what, facts.lower, facts.upper);
}

bool haveSameFacts(const IntExpr& a, const IntExpr& b) {
  return a == b && (a.isConst() || (*a.atom())->facts.divisor == (*b.atom())->facts.divisor);
}

// Sizes that vary, and are equal in a call, are the first of these symbols.
ShapeClass classFor(const SymbolValues& values, const std::map<std::string, std::optional<int64_t>>& before,
                    const std::map<std::string, SymbolFacts>& declared, const Reasons& reasons) {
  ShapeClass made;
  std::map<int64_t, IntExpr> symbolOf;  // by value
  for (const auto& [symbol, value] : values) {
    const auto earlier = before.find(symbol);
    const bool varies = earlier != before.end() && earlier->second != value;
    const auto reason = reasons.find(symbol);
    if (varies && reason != reasons.end()) {
      made.reasons.insert(*reason);
    } else if (varies && value > 1) {
      const auto facts = declared.find(symbol);
      const auto [known, isNew] = symbolOf.try_emplace(
          value, IntExpr::symbol(symbol, factsOf(value, facts == declared.end() ? SymbolFacts() : facts->second)));
      if (isNew) {
        made.values[symbol] = value;
      }
      made.sizes[symbol] = known->second;
      continue;
    }
    made.sizes[symbol] = value;
  }
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
    return !tv->hasDeviceMesh() && std::ranges::all_of(allIds(*tv), extentGrows) && allLinear(sizesBesideExtents(*tv));
  };
  return std::ranges::all_of(ofClass.tensors(), isSimple) && std::ranges::all_of(ofClass.exprs(), [&](const Expr* e) {
           return keepsElements(*e) && allLinear(sizesOf(*e));
         });
}

std::unique_ptr<Fusion> concretizeFor(const ShapeClass& sizes, const Fusion& fusion,
                                      std::span<const std::vector<int64_t>> ofCall) {
  std::unique_ptr<Fusion> constant = concretize(fusion, ofCall);
  return sizes.isConstant() ? std::move(constant) : concretize(fusion, sizes.sizes);
}

std::vector<std::string> ShapeClass::toLines() const {
  if (!whyConstant.empty()) {
    return {"all sizes are constants, because " + whyConstant};
  }
  return mapped(sizes, [&](const auto& entry) {
    const auto& [symbol, size] = entry;
    const auto reason = reasons.find(symbol);
    const bool isEqual = !size.isConst() && size.symbolName() != symbol;
    return fmt::format("{} is {}{}{}", symbol, isEqual ? "equal to " + std::string(size.symbolName()) : textOf(size),
                       reason == reasons.end() ? "" : ", because ", reason == reasons.end() ? "" : reason->second);
  });
}

bool isSameClass(const ShapeClass& a, const ShapeClass& b) {
  return std::ranges::equal(a.sizes, b.sizes, [](const auto& x, const auto& y) {
    return x.first == y.first && haveSameFacts(x.second, y.second);
  });
}

ShapeHistory::ShapeHistory(const Fusion& fusion)
    : fusion_(fusion),
      constants_(constantsOf(fusion)),
      declared_(declaredFacts(fusion)),
      symbolicDims_(symbolicDimsOf(fusion)) {
  const auto isOnMesh = [](const TensorView* tv) { return tv->hasDeviceMesh(); };
  const std::vector<TensorView*> tensors = fusion.tensors();
  if (const auto found = std::ranges::find_if(tensors, isOnMesh); found != tensors.end()) {
    whyConstant_ =
        fmt::format("T{} is on a mesh, whose redistributions are planned for constant sizes", (*found)->id());
  }
}

Reasons ShapeHistory::reasonsFor(std::span<const Argument> inputs) const {
  Reasons reasons = constants_;
  for (const int64_t i : indices(inputs)) {
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    if (t == nullptr) {
      continue;
    }
    const bool isDense = t->isContiguous() && alignmentOf(t->data()) == 64;
    if (!isDense || !t->globalShape().empty()) {
      const std::string_view why = isDense ? "has a global shape" : "is not row-major at an address that 64 divides";
      addSymbols(reasons, fusion_.inputs()[i]->asTensor()->shape(), fmt::format("{} {}", inputText(fusion_, i), why));
    }
  }
  return reasons;
}

std::optional<SymbolValues> ShapeHistory::valuesOf(std::span<const Argument> inputs) const {
  if (!whyConstant_.empty()) {
    return std::nullopt;
  }
  try {
    checkArguments(fusion_, inputs);
    return bindSymbols(fusion_, globalSizes(fusion_, inputs, 0));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

ShapeClass ShapeHistory::classOf(std::span<const Argument> inputs, const std::optional<SymbolValues>& values) const {
  if (!whyConstant_.empty()) {
    return {.whyConstant = whyConstant_};
  }
  if (const DeviceId device = deviceOf(inputs); device != DeviceId::cpu()) {
    return {.whyConstant = fmt::format("kernels of {} take constant sizes", device.toString())};
  }
  if (!values) {
    return {};
  }
  Reasons reasons = reasonsFor(inputs);
  try {
    ShapeClass made = classFor(*values, onlyOne_, declared_, reasons);
    while (addDimsOfMaybeOneElement(symbolicDims_, made.sizes, reasons)) {
      made = classFor(*values, onlyOne_, declared_, reasons);
    }
    return made;
  } catch (const UserError&) {  // a size that is divided by 0: compiling refuses it, together with the peers
    return {};
  }
}

void ShapeHistory::note(const SymbolValues& values) {
  for (const auto& [symbol, value] : values) {
    std::optional<int64_t>& only = onlyOne_.try_emplace(symbol, value).first->second;
    only = only == value ? only : std::nullopt;
  }
}

ShapeClass ShapeHistory::plannable(ShapeClass wanted) const {
  try {
    (void)concretize(fusion_, wanted.sizes);
    return wanted;
  } catch (const UserError& e) {
    return {.whyConstant = e.what()};
  }
}

}  // namespace meshfuse
