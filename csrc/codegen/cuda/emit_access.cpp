// Where an access goes, how wide it may be, and which predicates guard it.
#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "codegen/cuda/emitter.h"

namespace meshfuse::cuda {

using namespace tile;

uint64_t Emitter::accessDigits(int64_t space, uint64_t digits, const std::vector<Index>& index,
                               const std::vector<Pred>& where) const {
  digits |= digitsNamed(this->space(space), index, where);
  for (const Index& i : index) {
    digits |= i.tile == kNone ? 0 : value(i.tile).digits;
  }
  return digits;
}

IntExpr Emitter::lowestCoordinate(int64_t space, int64_t axis, uint64_t digits) const {
  std::set<std::string, std::less<>> zero;
  for (const DigitInfo& d : geometry_.digits(space)) {
    if (d.axis == axis && (digits & d.bit) == 0) {
      zero.insert(d.symbol);
    }
  }
  for (const Digit& d : this->space(space).axes[axis].digits) {
    if (d.level == Level::Serial && !s_.openSerial.contains(geometry_.cName(d.symbol))) {
      zero.insert(geometry_.cName(d.symbol));
    }
  }
  return atZero(geometry_.coordinate(space, axis), zero);
}

// Whether the coordinate is below the bound in every thread, register and part.
bool Emitter::proven(int64_t space, int64_t axis) const {
  const Axis& a = this->space(space).axes[axis];
  IntExpr bound = geometry_.resolve(a.bound);
  if (s_.guardedAxes.contains({space, axis}) || provenLess(geometry_.coordinate(space, axis), bound)) {
    return true;
  }
  // One part for every `stride` positions, none of them beyond the bound.
  const Digit* outer = a.digits.empty() ? nullptr : &a.digits.front();
  if (outer == nullptr || outer->level != Level::Part || !outer->stride.isConst() ||
      !bound.divisibleBy(outer->stride.constValue())) {
    return false;
  }
  auto dim = std::ranges::find(p_.grid, outer->symbol, &GridDim::symbol);
  return dim != p_.grid.end() && provenLessEqual(geometry_.resolve(dim->count), ceilDiv(bound, outer->stride));
}

std::vector<Pred> Emitter::openPredicates(int64_t space, uint64_t digits, const std::vector<Index>& index,
                                          const std::vector<Pred>& where,
                                          const std::function<bool(int64_t)>& wanted) const {
  std::vector<Pred> open;
  auto add = [&](IntExpr lhs, IntExpr rhs) {
    if (!provenLess(lhs, rhs)) {
      open.push_back({std::move(lhs), std::move(rhs)});
    }
  };
  const Space& s = this->space(space);
  for (int64_t a = 0; a < std::ssize(s.axes); a++) {
    auto names = [&](const IntExpr& e) { return geometry_.mentionsAxis(e, space, a); };
    bool mentioned = (digits & axisDigits(s, a)) != 0 || std::ranges::any_of(index, names, &Index::expr) ||
                     std::ranges::any_of(where, names, &Pred::lhs) || std::ranges::any_of(where, names, &Pred::rhs);
    if (mentioned && (!wanted || wanted(a)) && !proven(space, a)) {
      add(lowestCoordinate(space, a, digits), geometry_.resolve(s.axes[a].bound));
    }
  }
  for (const Pred& p : where) {
    add(geometry_.resolve(p.lhs), geometry_.resolve(p.rhs));
  }
  return open;
}

Access Emitter::access(int64_t tensor, int64_t space, uint64_t digits, const std::vector<Index>& index,
                       const std::vector<Pred>& where, ValueId mask) {
  Access a;
  a.tensor = tensor;
  a.space = space;
  a.digits = accessDigits(space, digits, index, where) | (mask == kNone ? 0 : value(mask).digits);
  a.mask = mask;
  a.preds = openPredicates(space, a.digits, index, where);
  IntExpr offset = 0;
  for (int64_t k = 0; k < std::ssize(index); k++) {
    IntExpr stride = geometry_.resolve(this->tensor(tensor).strides[k]);
    offset += geometry_.resolve(index[k].expr) * stride;
    if (index[k].tile != kNone) {
      a.tiles.push_back(index[k].tile);
      a.tileStrides.push_back(stride);
    }
  }
  if (std::optional<DigitInfo> vector = geometry_.vector(space, a.digits)) {
    a.vector = vector->size;
    a.vectorSymbol = vector->symbol;
    chooseWidth(a, offset);
  }
  // The part without register digits is hoisted before their loops, unless they occur inside a division.
  std::vector<std::string> symbols = mapped(geometry_.registers(space, a.digits), &DigitInfo::symbol);
  bool separable =
      std::ranges::all_of(symbols, [&](const std::string& symbol) { return offset.linearIn(symbol).has_value(); });
  a.base = separable ? atZero(offset, {symbols.begin(), symbols.end()}) : IntExpr(0);
  a.rest = offset - a.base;
  vectorPredicates(a);
  return a;
}

// The widest power of two that the address provably allows.
void Emitter::chooseWidth(Access& a, const IntExpr& offset) const {
  const TensorParam& t = tensor(a.tensor);
  std::optional<LinearForm> form = offset.linearIn(a.vectorSymbol);
  if (isPrivate(a.tensor) || !form || !form->slope.isConst(1)) {
    return;
  }
  uint64_t vectorBit = geometry_.vector(a.space, a.digits)->bit;
  int64_t size = dataTypeSize(t.dtype);
  int64_t alignment = isScratch(a.tensor) ? 16 : t.alignment;
  const auto fitsIn = [&](int64_t width, int64_t bytes) {
    int64_t unit = std::min(width, bytes / size);  // elements of one access
    auto tileFits = [&](int64_t k) {
      return (value(a.tiles[k]).digits & vectorBit) == 0 && a.tileStrides[k].divisibleBy(unit);
    };
    return std::ranges::all_of(indices(a.tiles), tileFits) && width * size >= 4 && form->rest.divisibleBy(unit) &&
           alignment % (unit * size) == 0;
  };
  bool vectorMask = a.mask != kNone && (value(a.mask).digits & vectorBit) != 0;
  for (a.width = vectorMask ? 1 : a.vector; a.width > 1 && !fitsIn(a.width, 16);) {
    a.width /= 2;
  }
  a.isWide = !isScratch(a.tensor) && a.width * size >= kWideBytes && fitsIn(a.width, kWideBytes);
}

std::string wideText(const Access& a) { return a.isWide ? fmt::format(", {}", kWideBytes) : ""; }

// The predicates that all elements of a vector share, and the condition that all its elements are in bounds.
void Emitter::vectorPredicates(Access& a) {
  if (a.width == 1) {
    return;
  }
  a.straddles = true;
  auto at = [&](const IntExpr& e, int64_t element) {
    IntExpr first =
        a.width == a.vector ? IntExpr(0) : IntExpr::symbol(a.vectorSymbol, {0, a.vector - a.width, a.width});
    return e.substitute([&](std::string_view s) -> std::optional<IntExpr> {
      return s == a.vectorSymbol ? std::optional<IntExpr>(first + element) : std::nullopt;
    });
  };
  auto add = [&](const Pred& p, int64_t element) {
    std::string c = conditionText({at(p.lhs, element), at(p.rhs, element)});
    if (!contains(a.vectorConditions, c)) {
      a.vectorConditions.push_back(c);
    }
  };
  for (const Pred& p : a.preds) {
    std::optional<LinearForm> left = p.lhs.linearIn(a.vectorSymbol);
    bool aligned = left && left->slope.isConst(1) && left->rest.divisibleBy(a.width) && p.rhs.divisibleBy(a.width);
    if (!p.rhs.contains(a.vectorSymbol) && (aligned || !p.lhs.contains(a.vectorSymbol))) {
      add(p, 0);
      continue;
    }
    // A linear predicate that holds at both ends holds between them.
    std::optional<LinearForm> right = p.rhs.linearIn(a.vectorSymbol);
    a.whole = false;
    if (!left || !right || !(left->slope - right->slope).isConst()) {
      a.straddles = false;
      continue;
    }
    add(p, (left->slope - right->slope).constValue() > 0 ? a.width - 1 : 0);
  }
}

// -- texts ------------------------------------------------------------------------------------------------------------

std::string Emitter::conditionText(const std::vector<Pred>& preds) {
  return joined(preds, " && ", [&](const Pred& p) { return conditionText(p); });
}

std::string Emitter::elementCondition(const Access& a, const std::string& maskText) {
  std::string condition = conditionText(a.preds);
  return condition.empty() || maskText.empty() ? condition + maskText : condition + " && " + maskText;
}

// The tiles whose texts an access needs: data-dependent indices, then the mask, then the `last` one.
std::vector<ValueId> Emitter::accessValues(const Access& a, ValueId last) const {
  std::vector<ValueId> values = a.tiles;
  values.insert(values.end(), {a.mask, last});
  return values;
}

std::string Emitter::offsetText(const Access& a, Texts tileTexts, Unit unit) {
  IntExpr rest = a.rest;
  if (unit == Unit::Vector && a.width == a.vector) {
    rest = atZero(rest, {a.vectorSymbol});
  }
  std::string all = text(rest);
  for (int64_t k = 0; k < std::ssize(a.tiles); k++) {
    std::string term = a.tileStrides[k].isConst(1)
                           ? tileTexts[k]
                           : fmt::format("{}*{}", tileTexts[k], parenthesized(a.tileStrides[k], s_.uses));
    all = all == "0" ? term : all + " + " + term;
  }
  return all;
}

// A pointer for global memory, a byte offset into the arena for shared memory.
std::string Emitter::address(const Access& a, const std::string& pointer, Texts tileTexts, Unit unit) {
  std::string offset = offsetText(a, tileTexts, unit);
  if (isScratch(a.tensor)) {
    return fmt::format("{} + (int)({})*{}", pointer, offset, dataTypeSize(tensor(a.tensor).dtype));
  }
  return offset == "0" ? pointer : fmt::format("{} + {}", pointer, offset);
}

// Names the address without register digits.
std::string Emitter::pointerTo(const Access& a, Direction direction) {
  if (isPrivate(a.tensor)) {
    return {};
  }
  const TensorParam& t = tensor(a.tensor);
  if (isScratch(a.tensor)) {
    const std::string& slot = scratchOf_.at(a.tensor).name;
    return a.base.isConst(0) ? slot : fmt::format("{} + (int)({})*{}", slot, text(a.base), dataTypeSize(t.dtype));
  }
  const std::string& name = tensorNames_[a.tensor];
  if (a.base.isConst(0)) {
    return name;
  }
  std::string pointer = s_.names.fresh("p");
  line(fmt::format("{}{}* {} = {} + {};", direction == Direction::Store ? "" : "const ", storageType(t.dtype), pointer,
                   name, parenthesized(withThreads(a.base), s_.uses)));
  return pointer;
}

std::string Emitter::sharedLoad(DataType t, const std::string& address) {
  use("shared_load");
  std::string call = fmt::format("sharedLoad<{}>({}, {})", storageType(t), address, nextSite());
  return t == DataType::Bool ? fmt::format("({} != 0)", call) : call;
}

std::string Emitter::remoteLoad(DataType t, const std::string& address, const std::string& rank) {
  use("remote_load");
  return fmt::format("remoteLoad<{}>({}, {}, {})", storageType(t), address, rank, nextSite());
}

std::string Emitter::sharedStore(DataType t, const std::string& address, const std::string& value) {
  use("shared_store");
  return fmt::format("sharedStore<{}>({}, {}, {});", storageType(t), address, value, nextSite());
}

std::string Emitter::sharedVector(Direction direction, DataType t, int64_t width, const std::string& to,
                                  const std::string& from) {
  bool loads = direction == Direction::Load;
  use(loads ? "shared_load_vector" : "shared_store_vector");
  use(wordsSection(t));
  return fmt::format("shared{}Vector<{}, {}>({}, {}, {});", loads ? "Load" : "Store", width, storageType(t), to, from,
                     nextSite());
}

void Emitter::moveVector(const Access& a, const DigitInfo& vector, const std::string& maskText,
                         const VectorMove& move) {
  bool pieces = a.width < a.vector;
  if (pieces) {
    openLoop(vector, a.width);
  }
  std::string call = move.call(pieces ? Unit::Element : Unit::Vector);
  std::vector<std::string> conditions = a.vectorConditions;
  if (!maskText.empty()) {
    conditions.push_back(maskText);
  }
  std::string conditional = fmt::format("if ({}) {}", joined(conditions, " && "), call);
  if (a.whole && conditions.empty()) {
    line(call);
  } else if (a.whole) {
    line(conditional);
    move.outside();
  } else {
    if (a.straddles) {
      line(conditional);
    }
    open(a.straddles ? "else" : "");
    std::string first = "0";
    if (pieces) {  // the loop variable hides the one around it
      first = s_.names.fresh("first");
      line(fmt::format("const int {} = {};", first, vector.symbol));
    }
    line("#pragma unroll");
    open(fmt::format("for (int {0} = {1}; {0} < {2}; ++{0})", vector.symbol, first,
                     pieces ? fmt::format("{} + {}", first, a.width) : std::to_string(a.width)));
    move.element();
    close();
    close();
  }
  if (pieces) {
    close();
  }
}

}  // namespace meshfuse::cuda
