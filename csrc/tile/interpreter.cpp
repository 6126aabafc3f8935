#include "tile/interpreter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <unordered_map>

#include "base/error.h"
#include "base/ranges.h"
#include "tile/scalar.h"
#include "tile/symbol_values.h"

namespace meshfuse::tile {

namespace {

// Digits and axes of a space with sizes, strides and symbols resolved.
struct DigitState {
  int64_t size;
  int64_t stride;
  int64_t slot;
  bool outer;  // Part or Serial
};
struct AxisState {
  int64_t coordinate;  // slot
  int64_t bound;
  std::vector<DigitState> digits;
  bool uniform = true;  // no c, w, l, r, v digits
};
struct SpaceState {
  std::vector<AxisState> axes;
  std::vector<DigitRef> refs;
};

// The positions of a set of digits of a space, outermost digit slowest.
struct LayoutDigit : DigitState {
  int64_t number;
  int64_t axis;
  int64_t step;  // from one value of the digit to the next, in positions
  int64_t valueAt(int64_t position) const { return position / step % size; }
};
struct Layout {
  int64_t count = 1;
  std::vector<LayoutDigit> digits;           // innermost first
  std::vector<std::vector<int64_t>> offset;  // by axis and position: the amount that the digits add to the coordinate
  std::vector<bool> spread;                  // by axis: has a digit
};

struct Tile {
  std::vector<Scalar> data;
  std::vector<uint8_t> poison;
};

class Machine {
 public:
  Machine(const Program& program, std::span<const uint64_t> slots, InterpretOptions options);
  Interpretation run();

 private:
  // -- positions ------------------------------------------------------------------------------------------------------
  const Layout& layout(int64_t space, uint64_t digits);
  const std::vector<int64_t>& broadcastMap(int64_t space, uint64_t to, uint64_t from);
  bool isOpen(const AxisState& axis) const;
  int64_t base(const AxisState& axis) const;
  void refreshUniform();
  std::vector<uint8_t> outside(int64_t space, const Layout& l, const std::vector<bool>& axes) const;
  void place(int64_t space, const Layout& l, int64_t e);
  template <class F>
  void forPositions(int64_t space, const Layout& l, const std::vector<Index>& index, const std::vector<Pred>& where,
                    const F& body);
  int64_t evaluate(const IntExpr& e);
  bool holds(const std::vector<Pred>& where);

  // -- values ---------------------------------------------------------------------------------------------------------
  const Tile& tile(ValueId id);
  void define(ValueId id, Tile t);
  int64_t positionOf(ValueId operand, int64_t space, uint64_t digits, int64_t e);
  Scalar solid(ValueId operand, int64_t space, uint64_t digits, int64_t e, std::string_view what);
  std::vector<int64_t> indexAt(const std::vector<Index>& index, int64_t space, uint64_t digits, int64_t e);
  Tile compute(const Value& v);
  void computeLoad(const Value& v, const Layout& l, Tile& t);
  void computeElementwise(const Value& v, const Layout& l, Tile& t);
  void computeReduce(const Value& v, const Layout& l, Tile& t);
  void computeConvert(const Value& v, const Layout& l, Tile& t);
  // The totals after a scan are those of its result without digits of the axis.
  Tile computeScan(const Value& v, Tile& totals);
  void computeShift(const Value& v, const Layout& l, Tile& t);

  // -- statements -----------------------------------------------------------------------------------------------------
  void block(const std::vector<Stmt>& body);
  void executeAll(const std::vector<Stmt>& body);
  void undefine(size_t before);
  void execute(const Stmt& s);
  void store(const Stmt& s);
  void loop(const Stmt& s);
  void updateCarry(const Carried& c, int64_t symbol, Tile& state);
  void lastArriver(const Stmt& s);
  Accessor accessor() { return {part_, statement_, sees_ ? &sees_ : nullptr}; }
  [[noreturn]] void rethrow(const InternalError& error, const Stmt& s) const;

  const Program& p_;
  InterpretOptions options_;
  SymbolValues symbols_;
  std::vector<SpaceState> spaces_;
  std::vector<TensorMemory> memory_;
  std::vector<Scalar> scalars_;
  std::vector<std::optional<Tile>> values_;
  std::vector<ValueId> defined_;  // in order, to undefine at the end of a block
  std::map<std::pair<int64_t, uint64_t>, Layout> layouts_;
  std::map<std::tuple<int64_t, uint64_t, uint64_t>, std::vector<int64_t>> maps_;
  std::unordered_map<const IntExpr*, Polynomial> polys_;  // by address, for look-up only
  std::vector<std::vector<int64_t>> parts_;               // grid values of each part
  std::map<const Stmt*, std::vector<int64_t>> arrived_;  // counter each part arrived at, by statement; for look-up only
  std::function<bool(int64_t)> sees_;
  int64_t part_ = 0;
  int64_t statement_ = 0;
};

// A slot holds a value in its lowest bytes, which come first in memory, and Bool as 0 or 1.
static_assert(std::endian::native == std::endian::little);

Machine::Machine(const Program& program, std::span<const uint64_t> slots, InterpretOptions options)
    : p_(program), options_(options) {
  size_t pointers = std::ranges::count_if(p_.tensors, [](const TensorParam& t) { return t.memory != Memory::Scratch; });
  invariant(slots.size() == pointers + p_.sizes.size() + p_.scalars.size(),
            "[tile interpreter] kernel {} takes {} slots, got {}", p_.name,
            pointers + p_.sizes.size() + p_.scalars.size(), slots.size());
  for (int64_t i = 0; i < std::ssize(p_.sizes); i++) {
    const SizeParam& s = p_.sizes[i];
    auto value = static_cast<int64_t>(slots[pointers + i]);
    invariant(s.facts.lower <= value && value <= s.facts.upper && value % s.facts.divisor == 0,
              "[tile interpreter] size {} = {} violates its declared bounds or divisor", s.name, value);
    symbols_.set(symbols_.slot(s.name), value);
  }
  for (int64_t i = 0; i < std::ssize(p_.scalars); i++) {
    scalars_.push_back(readElement(&slots[pointers + p_.sizes.size() + i], p_.scalars[i].dtype));
  }
  size_t slot = 0;
  auto all = [&](const std::vector<IntExpr>& list) {
    return mapped(list, [&](const IntExpr& e) { return symbols_.evaluate(e); });
  };
  for (const TensorParam& t : p_.tensors) {
    void* at = t.memory == Memory::Scratch ? nullptr : std::bit_cast<void*>(slots[slot++]);
    memory_.emplace_back(t, all(t.extents), all(t.strides), at);
  }
  for (const Space& space : p_.spaces) {
    SpaceState state{{}, digitsOf(space)};
    for (const Axis& axis : space.axes) {
      AxisState a{symbols_.slot(axis.name), symbols_.evaluate(axis.bound), {}};
      for (const Digit& d : axis.digits) {
        a.digits.push_back(
            {symbols_.evaluate(d.size), symbols_.evaluate(d.stride), symbols_.slot(d.symbol), !isInTile(d.level)});
        a.uniform = a.uniform && a.digits.back().outer;
      }
      state.axes.push_back(std::move(a));
    }
    spaces_.push_back(std::move(state));
  }
  parts_ = {{}};
  for (const GridDim& g : p_.grid) {
    const int64_t count = symbols_.evaluate(g.count);
    std::vector<std::vector<int64_t>> longer;
    for (const std::vector<int64_t>& part : parts_) {
      for (int64_t i = 0; i < count; i++) {
        longer.push_back(part);
        longer.back().push_back(i);
      }
    }
    parts_ = std::move(longer);
  }
  values_.resize(p_.values.size());
}

Interpretation Machine::run() {
  std::vector<int64_t> order(parts_.size());
  std::iota(order.begin(), order.end(), 0);
  if (options_.shuffle != 0) {
    std::shuffle(order.begin(), order.end(), std::mt19937_64(options_.shuffle));
  }
  for (int64_t part : order) {
    part_ = part;
    for (int64_t g = 0; g < std::ssize(p_.grid); g++) {
      symbols_.set(symbols_.slot(p_.grid[g].symbol), parts_[part][g]);
    }
    for (TensorMemory& m : memory_) {
      m.beginPart();
    }
    refreshUniform();
    block(p_.body);
  }
  return {mapped(memory_, &TensorMemory::traffic), std::ssize(parts_)};
}

// -- positions --------------------------------------------------------------------------------------------------------

const Layout& Machine::layout(int64_t space, uint64_t digits) {
  auto [it, added] = layouts_.try_emplace({space, digits});
  Layout& l = it->second;
  if (!added) {
    return l;
  }
  const SpaceState& s = spaces_[space];
  l.spread.assign(s.axes.size(), false);
  for (int64_t i = std::ssize(s.refs); i-- > 0;) {
    if ((digits >> i & 1) != 0) {
      DigitRef ref = s.refs[i];
      l.digits.push_back({s.axes[ref.axis].digits[ref.digit], i, ref.axis, l.count});
      l.count *= l.digits.back().size;
      l.spread[ref.axis] = true;
    }
  }
  l.offset.assign(s.axes.size(), std::vector<int64_t>(l.count, 0));
  for (const LayoutDigit& d : l.digits) {
    for (int64_t e = 0; e < l.count; e++) {
      l.offset[d.axis][e] += d.valueAt(e) * d.stride;
    }
  }
  return l;
}

// For each position of the digits `to`, the position among the digits `from`, a subset.
const std::vector<int64_t>& Machine::broadcastMap(int64_t space, uint64_t to, uint64_t from) {
  auto [it, added] = maps_.try_emplace({space, to, from});
  if (added) {
    invariant((from & ~to) == 0, "[tile interpreter] an operand has digits its result lacks");
    const Layout& l = layout(space, to);
    it->second.assign(l.count, 0);
    int64_t step = 1;
    for (const LayoutDigit& d : l.digits) {
      if ((from >> d.number & 1) != 0) {
        for (int64_t e = 0; e < l.count; e++) {
          it->second[e] += d.valueAt(e) * step;
        }
        step *= d.size;
      }
    }
  }
  return it->second;
}

// Whether the loops that an axis needs are open.
bool Machine::isOpen(const AxisState& axis) const {
  return std::ranges::all_of(axis.digits, [&](const DigitState& d) { return !d.outer || symbols_.defined(d.slot); });
}

// The amount that Part and open Serial digits add to a coordinate; closed ones count as 0.
int64_t Machine::base(const AxisState& axis) const {
  int64_t sum = 0;
  for (const DigitState& d : axis.digits) {
    sum += d.outer && symbols_.defined(d.slot) ? symbols_.get(d.slot) * d.stride : 0;
  }
  return sum;
}

// Coordinates of axes without thread and register digits are worker-uniform and may be named from any space.
void Machine::refreshUniform() {
  for (const SpaceState& s : spaces_) {
    for (const AxisState& a : s.axes) {
      symbols_.clear(a.coordinate);
      if (a.uniform && isOpen(a)) {
        symbols_.set(a.coordinate, base(a));
      }
    }
  }
}

// Which positions lie beyond the bound of one of the given axes. Digits a layout lacks count as 0: the smallest position
// decides.
std::vector<uint8_t> Machine::outside(int64_t space, const Layout& l, const std::vector<bool>& axes) const {
  std::vector<uint8_t> flags(l.count, 0);
  const SpaceState& s = spaces_[space];
  for (int64_t a = 0; a < std::ssize(s.axes); a++) {
    if (axes[a]) {
      int64_t room = s.axes[a].bound - base(s.axes[a]);
      for (int64_t e = 0; e < std::ssize(flags); e++) {
        flags[e] |= l.offset[a][e] >= room ? 1 : 0;
      }
    }
  }
  return flags;
}

// Gives the coordinates and digit symbols of a space their values at position `e`.
void Machine::place(int64_t space, const Layout& l, int64_t e) {
  const SpaceState& s = spaces_[space];
  for (int64_t a = 0; a < std::ssize(s.axes); a++) {
    const AxisState& axis = s.axes[a];
    if (isOpen(axis) && !axis.uniform) {
      symbols_.set(axis.coordinate, base(axis) + l.offset[a][e]);
    }
  }
  for (const LayoutDigit& d : l.digits) {
    symbols_.set(d.slot, d.valueAt(e));
  }
}

// body(e) with the space placed at e, for the positions within the bounds that limit an access: those of the axes of its tile
// and of the axes in its expressions.
template <class F>
void Machine::forPositions(int64_t space, const Layout& l, const std::vector<Index>& index,
                           const std::vector<Pred>& where, const F& body) {
  std::vector<bool> axes = l.spread;
  for (int64_t a = 0; a < std::ssize(axes); a++) {
    axes[a] = axes[a] || isNamed(p_.spaces[space].axes[a].name, index, where);
  }
  std::vector<uint8_t> skipped = outside(space, l, axes);
  for (int64_t e = 0; e < l.count; e++) {
    if (skipped[e] == 0) {
      place(space, l, e);
      body(e);
    }
  }
  for (const AxisState& axis : spaces_[space].axes) {
    if (!axis.uniform) {
      symbols_.clear(axis.coordinate);
    }
    for (const DigitState& d : axis.digits) {
      if (!d.outer) {
        symbols_.clear(d.slot);
      }
    }
  }
}

int64_t Machine::evaluate(const IntExpr& e) {
  auto [it, added] = polys_.try_emplace(&e);
  if (added) {
    it->second = symbols_.compile(e);
  }
  return symbols_.evaluate(it->second);
}

bool Machine::holds(const std::vector<Pred>& where) {
  return std::ranges::all_of(where, [&](const Pred& p) { return evaluate(p.lhs) < evaluate(p.rhs); });
}

// -- values -----------------------------------------------------------------------------------------------------------

const Tile& Machine::tile(ValueId id) {
  std::optional<Tile>& t = values_.at(id);
  if (!t) {
    const Value& v = p_.values[id];
    invariant(!hasPlace(v.kind), "[tile interpreter] value {} is used where it is not defined", id);
    t = compute(v);
  }
  return *t;
}

void Machine::define(ValueId id, Tile t) {
  values_.at(id) = std::move(t);
  defined_.push_back(id);
}

// The element of an operand that belongs to position `e` of a set of digits.
int64_t Machine::positionOf(ValueId operand, int64_t space, uint64_t digits, int64_t e) {
  const Value& v = p_.values[operand];
  if (v.digits == 0) {
    return 0;
  }
  invariant(v.space == space, "[tile interpreter] value {} lies in another space", operand);
  return broadcastMap(space, digits, v.digits)[e];
}

Scalar Machine::solid(ValueId operand, int64_t space, uint64_t digits, int64_t e, std::string_view what) {
  const Tile& t = tile(operand);
  int64_t at = positionOf(operand, space, digits, e);
  invariant(t.poison[at] == 0, "[tile interpreter] {} at position {} of value {} is unspecified", what, at, operand);
  return t.data[at];
}

std::vector<int64_t> Machine::indexAt(const std::vector<Index>& index, int64_t space, uint64_t digits, int64_t e) {
  return mapped(index, [&](const Index& i) {
    int64_t tile = i.tile == kNone ? 0 : solid(i.tile, space, digits, e, "an index").integer;
    return evaluate(i.expr) + tile;
  });
}

Tile Machine::compute(const Value& v) {
  const Layout& l = layout(v.space, v.digits);
  auto n = static_cast<size_t>(l.count);
  Tile t{std::vector<Scalar>(n, integerScalar(0)), std::vector<uint8_t>(n, 0)};
  switch (v.kind) {
    case ValueKind::Const:
      std::ranges::fill(t.data, isFloatingPoint(v.dtype)
                                    ? castScalar(realScalar(v.constant), DataType::Double, v.dtype)
                                    : castScalar(integerScalar(v.integer), DataType::Int, v.dtype));
      return t;
    case ValueKind::Scalar:
      std::ranges::fill(t.data, scalars_.at(v.param));
      return t;
    case ValueKind::Index:
      std::ranges::fill(t.poison, 1);
      forPositions(v.space, l, v.index, {}, [&](int64_t e) {
        t.data[e] = integerScalar(evaluate(v.index[0].expr));
        t.poison[e] = 0;
      });
      return t;
    case ValueKind::Load:
      computeLoad(v, l, t);
      return t;
    case ValueKind::Point:
    case ValueKind::Cast:
    case ValueKind::Random:
      computeElementwise(v, l, t);
      return t;
    case ValueKind::Reduce:
      computeReduce(v, l, t);
      return t;
    case ValueKind::Convert:
      computeConvert(v, l, t);
      return t;
    case ValueKind::Scan: {
      Tile totals;
      return computeScan(v, totals);
    }
    case ValueKind::ScanTotal: {
      Tile totals;
      (void)computeScan(p_.values.at(v.operands[0]), totals);
      return totals;
    }
    case ValueKind::Shift:
      computeShift(v, l, t);
      return t;
    case ValueKind::Carry:
    case ValueKind::LoopResult:
      break;
  }
  throwInternalError("[tile interpreter] a carried value is defined by its loop only");
}

void Machine::computeLoad(const Value& v, const Layout& l, Tile& t) {
  TensorMemory& memory = memory_.at(v.param);
  Accessor who = accessor();
  std::ranges::fill(t.poison, 1);
  forPositions(v.space, l, v.index, v.where, [&](int64_t e) {
    bool wanted =
        holds(v.where) && (v.mask == kNone || solid(v.mask, v.space, v.digits, e, "the mask of a load").integer != 0);
    if (wanted || v.fill != kNone) {
      t.data[e] = wanted ? memory.load(indexAt(v.index, v.space, v.digits, e), who)
                         : solid(v.fill, v.space, v.digits, e, "a fill");
      t.poison[e] = 0;
    }
  });
}

void Machine::computeElementwise(const Value& v, const Layout& l, Tile& t) {
  t.poison = outside(v.space, l, l.spread);
  std::vector<const Tile*> operands = mapped(v.operands, [&](ValueId id) { return &tile(id); });
  std::vector<uint8_t> excluded(l.count, 0);  // what a checked index is 0 for, whatever its operands
  if (!v.where.empty()) {
    forPositions(v.space, l, {}, v.where, [&](int64_t e) { excluded[e] = holds(v.where) ? 0 : 1; });
  }
  DataType from = p_.values[v.operands.back()].dtype;
  std::vector<Scalar> x(operands.size());
  for (int64_t e = 0; e < l.count; e++) {
    if (excluded[e] != 0) {
      continue;
    }
    bool chooses = v.kind == ValueKind::Point && v.op == PointOp::Where;
    for (int64_t i = 0; i < std::ssize(operands); i++) {
      int64_t where = positionOf(v.operands[i], v.space, v.digits, e);
      x[i] = operands[i]->data[where];
      bool ignored = chooses && i == (x[0].integer != 0 ? 2u : 1u);
      t.poison[e] |= ignored ? 0 : operands[i]->poison[where];
    }
    if (t.poison[e] != 0) {
      continue;
    }
    if (v.kind == ValueKind::Point) {
      t.data[e] = applyPoint(v.op, from, x);
    } else if (v.kind == ValueKind::Cast) {
      t.data[e] = castScalar(x[0], from, v.dtype);
    } else {
      std::array<uint32_t, 4> words = philox(static_cast<uint64_t>(x[0].integer), static_cast<uint64_t>(x[1].integer),
                                             static_cast<uint64_t>(x[2].integer));
      t.data[e] = integerScalar(words.at(v.param));
    }
  }
}

void Machine::computeReduce(const Value& v, const Layout& l, Tile& t) {
  ValueId operand = v.operands[0];
  const Value& from = p_.values[operand];
  const Tile& x = tile(operand);
  const Layout& all = layout(from.space, from.digits);
  std::vector<Reduction> sums(l.count, Reduction(v.combiner, v.dtype));
  const std::vector<int64_t>& to = broadcastMap(from.space, from.digits, v.digits);
  forPositions(from.space, all, {}, {}, [&](int64_t e) {
    if (!holds(v.where)) {
      return;
    }
    invariant(x.poison[e] == 0, "[tile interpreter] position {} of the reduced value {} is unspecified", e, operand);
    sums[to[e]].add(x.data[e]);
  });
  t = {mapped(sums, &Reduction::result), outside(v.space, l, l.spread)};
}

void Machine::computeConvert(const Value& v, const Layout& l, Tile& t) {
  ValueId operand = v.operands[0];
  const Value& from = p_.values[operand];
  const Tile& x = tile(operand);
  const SpaceState& source = spaces_[from.space];
  const SpaceState& target = spaces_[v.space];
  const Layout& sourceLayout = layout(from.space, from.digits);
  for (int64_t a = 0; a < std::ssize(source.axes); a++) {
    invariant(!sourceLayout.spread[a] ||
                  (base(source.axes[a]) == base(target.axes[a]) && source.axes[a].bound == target.axes[a].bound),
              "[tile interpreter] convert of value {}: axis {} starts at {} of {}, in the other space at {} of {}",
              operand, a, base(source.axes[a]), source.axes[a].bound, base(target.axes[a]), target.axes[a].bound);
  }
  t.poison = outside(v.space, l, l.spread);
  for (int64_t e = 0; e < l.count; e++) {
    int64_t position = 0;
    for (const LayoutDigit& d : sourceLayout.digits) {
      position += l.offset[d.axis][e] / d.stride % d.size * d.step;
    }
    t.data[e] = x.data[position];
    t.poison[e] |= x.poison[position];
  }
}

Tile Machine::computeScan(const Value& v, Tile& totals) {
  const SpaceState& space = spaces_[v.space];
  const AxisState& axis = space.axes.at(v.param);
  const Space& declared = p_.spaces[v.space];
  const Layout& l = layout(v.space, v.digits);
  const uint64_t kept = v.digits & ~axisDigits(declared, v.param);
  const Layout& ofTotals = layout(v.space, kept);
  const DataType wide = totalType(v.combiner, v.dtype);
  int64_t segment = 1;
  int64_t lanes = 1;
  for (int64_t d : indices(axis.digits)) {
    const Level level = declared.axes[v.param].digits[d].level;
    segment *= isRegister(level) ? axis.digits[d].size : 1;
    lanes *= level == Level::Lane ? axis.digits[d].size : 1;
  }
  const auto combined = [&](Scalar a, Scalar b) {
    if (v.combiner == Combiner::Sum && isFloatingPoint(wide)) {
      return realScalar(a.real + b.real);
    }
    if (isFloatingPoint(wide)) {
      const bool isFirst = v.combiner == Combiner::Max ? a.real >= b.real : a.real <= b.real;
      return a.real != a.real || (b.real == b.real && isFirst) ? a : b;
    }
    return applyPoint(combineOp(v.combiner, wide), wide, std::array{a, b});
  };
  const Scalar none = isFloatingPoint(wide) ? realScalar(floatingIdentity(v.combiner))
                                            : integerScalar(integerIdentity(v.combiner, wide));
  // the positions within all bounds of each line, in order
  std::vector<std::map<int64_t, int64_t>> lines(ofTotals.count);
  const std::vector<int64_t>& lineOf = broadcastMap(v.space, v.digits, kept);
  const std::vector<uint8_t> beyond = outside(v.space, l, l.spread);
  for (int64_t e = 0; e < l.count; e++) {
    if (beyond[e] == 0) {
      lines[lineOf[e]][l.offset[v.param][e]] = e;
    }
  }
  Tile t{std::vector<Scalar>(l.count, integerScalar(0)), beyond};
  totals = {std::vector<Scalar>(ofTotals.count, none), outside(v.space, ofTotals, ofTotals.spread)};
  for (int64_t line = 0; line < ofTotals.count; line++) {
    if (totals.poison[line] != 0) {
      continue;
    }
    Scalar ofWarps = solid(v.operands[1], v.space, kept, line, "the total before a scan");
    std::vector<Scalar> segments(lines[line].empty() ? 0 : lines[line].rbegin()->first / segment + 1, none);
    const auto inSegment = [&](const auto& then) {
      Scalar own = none;
      int64_t last = 0;
      for (const auto& [offset, e] : lines[line]) {
        own = offset / segment == last ? own : none;
        last = offset / segment;
        own = combined(own, castScalar(solid(v.operands[0], v.space, v.digits, e, "a scanned element"), v.dtype, wide));
        then(last, e, own);
      }
    };
    inSegment([&](int64_t s, int64_t, Scalar own) { segments[s] = own; });
    std::vector<Scalar> before;  // each segment
    for (int64_t first = 0; first < std::ssize(segments); first += lanes) {
      std::vector<Scalar> ofLanes(lanes, none);  // the totals of this lane and those before it
      std::copy_n(segments.begin() + first, std::min(lanes, std::ssize(segments) - first), ofLanes.begin());
      for (int64_t distance = 1; distance < lanes; distance *= 2) {
        for (int64_t i = lanes - 1; i >= distance; i--) {
          ofLanes[i] = combined(ofLanes[i - distance], ofLanes[i]);
        }
      }
      for (int64_t i = 0; i < lanes; i++) {
        before.push_back(i == 0 ? ofWarps : combined(ofWarps, ofLanes[i - 1]));
      }
      ofWarps = combined(ofWarps, ofLanes.back());
    }
    inSegment(
        [&](int64_t s, int64_t e, Scalar own) { t.data[e] = castScalar(combined(before[s], own), wide, v.dtype); });
    totals.data[line] = ofWarps;
  }
  return t;
}

void Machine::computeShift(const Value& v, const Layout& l, Tile& t) {
  const auto isVector = [&](const LayoutDigit& d) {
    const DigitRef ref = spaces_[v.space].refs[d.number];
    return p_.spaces[v.space].axes[ref.axis].digits[ref.digit].level == Level::Vector;
  };
  const LayoutDigit& vector = *std::ranges::find_if(l.digits, isVector);
  std::ranges::fill(t.poison, 1);
  forPositions(v.space, l, v.index, {}, [&](int64_t e) {
    const int64_t lane = vector.valueAt(e);
    const int64_t from = lane + vector.size - evaluate(v.index[0].expr);
    const ValueId operand = v.operands[from < vector.size ? 0 : 1];
    const int64_t there = positionOf(operand, v.space, v.digits, e + (from % vector.size - lane) * vector.step);
    t.data[e] = tile(operand).data[there];
    t.poison[e] = tile(operand).poison[there];
  });
}

// -- statements -------------------------------------------------------------------------------------------------------

void Machine::rethrow(const InternalError& error, const Stmt& s) const {
  std::string text = error.what();
  if (text.find("\n") != std::string::npos) {
    throwInternalError(text);
  }
  std::string grid;
  for (int64_t g = 0; g < std::ssize(p_.grid); g++) {
    grid += fmt::format(" {} = {}", p_.grid[g].symbol, parts_[part_][g]);
  }
  constexpr std::string_view names[] = {"define", "keep", "store", "prefetch", "for", "if", "last arriver"};
  throwInternalError(fmt::format("{}\n  at statement {} of value {}, tensor {}, in the part{} of\n{}", text,
                                 names[static_cast<size_t>(s.kind)], s.value, s.param, grid, toString(p_)));
}

void Machine::block(const std::vector<Stmt>& body) {
  size_t before = defined_.size();
  executeAll(body);
  undefine(before);
}

void Machine::executeAll(const std::vector<Stmt>& body) {
  for (const Stmt& s : body) {
    try {
      execute(s);
    } catch (const InternalError& error) {
      rethrow(error, s);
    }
  }
}

// Ends the scope that began when `before` values were defined.
void Machine::undefine(size_t before) {
  while (defined_.size() > before) {
    values_[defined_.back()].reset();
    defined_.pop_back();
  }
}

void Machine::execute(const Stmt& s) {
  statement_++;
  switch (s.kind) {
    case StmtKind::Define: {
      const Value& v = p_.values.at(s.value);
      if (hasPlace(v.kind)) {
        define(s.value, compute(v));
      }
      return;
    }
    case StmtKind::Keep:
      (void)tile(s.value);
      return;
    case StmtKind::Store:
      return store(s);
    case StmtKind::Prefetch:
      return;
    case StmtKind::For:
      return loop(s);
    case StmtKind::If:
      if (holds(s.where)) {
        block(s.body);
      }
      return;
    case StmtKind::LastArriver:
      return lastArriver(s);
  }
}

void Machine::store(const Stmt& s) {
  uint64_t digits = digitsNamed(p_.spaces[s.space], s.index, s.where) | p_.values.at(s.value).digits;
  for (const Index& i : s.index) {
    digits |= i.tile == kNone ? 0 : p_.values[i.tile].digits;
  }
  digits |= s.mask == kNone ? 0 : p_.values[s.mask].digits;
  const Layout& l = layout(s.space, digits);
  TensorMemory& memory = memory_.at(s.param);
  Accessor who = accessor();
  forPositions(s.space, l, s.index, s.where, [&](int64_t e) {
    if (holds(s.where) && (s.mask == kNone || solid(s.mask, s.space, digits, e, "the mask of a store").integer != 0)) {
      Scalar value = solid(s.value, s.space, digits, e, "the stored value");
      memory.store(indexAt(s.index, s.space, digits, e), value, who);
    }
  });
}

void Machine::loop(const Stmt& s) {
  const AxisState& axis = spaces_.at(s.space).axes.at(s.axis);
  const DigitState& digit = axis.digits.at(s.digit);
  invariant(!symbols_.defined(digit.slot), "[tile interpreter] a loop runs inside itself");
  std::vector<Tile> states = mapped(s.carried, [&](const Carried& c) { return tile(c.init); });
  size_t before = defined_.size();
  for (int64_t i = 0; i < digit.size; i++) {
    symbols_.set(digit.slot, i);
    if (base(axis) >= axis.bound) {
      break;  // this step and all later ones lie beyond the bound
    }
    refreshUniform();
    for (int64_t c = 0; c < std::ssize(states); c++) {
      define(s.carried[c].carry, states[c]);
    }
    executeAll(s.body);
    for (int64_t c = 0; c < std::ssize(states); c++) {
      updateCarry(s.carried[c], digit.slot, states[c]);
    }
    undefine(before);
  }
  symbols_.clear(digit.slot);
  refreshUniform();
  for (int64_t c = 0; c < std::ssize(states); c++) {
    const Value& v = p_.values[s.carried[c].result];
    const Layout& l = layout(v.space, v.digits);
    std::vector<uint8_t> beyond = outside(v.space, l, l.spread);
    std::ranges::transform(states[c].poison, beyond, states[c].poison.begin(), std::bit_or<uint8_t>());
    define(s.carried[c].result, std::move(states[c]));
  }
}

// Positions beyond the bound of the looped axis keep their carried value.
void Machine::updateCarry(const Carried& c, int64_t symbol, Tile& state) {
  const Value& v = p_.values[c.carry];
  const Layout& l = layout(v.space, v.digits);
  const Tile& next = tile(c.next);
  std::vector<bool> looped = l.spread;
  for (int64_t a = 0; a < std::ssize(looped); a++) {
    const std::vector<DigitState>& digits = spaces_[v.space].axes[a].digits;
    looped[a] = looped[a] && std::ranges::find(digits, symbol, &DigitState::slot) != digits.end();
  }
  std::vector<uint8_t> kept = outside(v.space, l, looped);
  for (int64_t e = 0; e < l.count; e++) {
    if (kept[e] == 0) {
      int64_t from = positionOf(c.next, v.space, v.digits, e);
      state.data[e] = next.data[from];
      state.poison[e] = next.poison[from];
    }
  }
}

void Machine::lastArriver(const Stmt& s) {
  TensorMemory& counter = memory_.at(s.param);
  std::vector<int64_t> at = mapped(s.index, [&](const Index& i) { return evaluate(i.expr); });
  if (s.index.empty()) {
    at.assign(p_.tensors[s.param].extents.size(), 0);
  }
  int64_t expected = symbols_.evaluate(arrivals(p_, s));
  std::vector<int64_t>& where = arrived_.try_emplace(&s, parts_.size(), -1).first->second;
  int64_t mine = counter.offset(at);
  where[part_] = mine;
  if (counter.arrive(at, expected) + 1 < expected) {
    return;
  }
  std::function<bool(int64_t)> outer = std::move(sees_);
  sees_ = [&where, mine](int64_t part) { return where[part] == mine; };
  block(s.body);
  sees_ = std::move(outer);
}

}  // namespace

Interpretation interpret(const Program& program, std::span<const uint64_t> slots, InterpretOptions options) {
  return Machine(program, slots, options).run();
}

std::vector<uint64_t> packSlots(const Program& program, std::span<void* const> pointers, std::span<const int64_t> sizes,
                                std::span<const double> scalars) {
  std::vector<uint64_t> slots = mapped(pointers, [](void* p) { return std::bit_cast<uint64_t>(p); });
  slots.insert(slots.end(), sizes.begin(), sizes.end());
  for (int64_t i = 0; i < std::ssize(scalars); i++) {
    DataType dtype = program.scalars.at(i).dtype;
    uint64_t bits = isFloatingPoint(dtype) ? 0 : static_cast<uint64_t>(static_cast<int64_t>(scalars[i]));
    if (isFloatingPoint(dtype)) {
      writeElement(&bits, dtype, castScalar(realScalar(scalars[i]), DataType::Double, dtype));
    }
    slots.push_back(bits);
  }
  return slots;
}

}  // namespace meshfuse::tile
