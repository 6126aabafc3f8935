// Reductions, in a defined order: registers ascending, lanes by halving distances, warps ascending (many of them by
// halving distances), cluster ranks ascending. Two reductions that follow each other exchange together: the lower half of a
// warp goes on with the first, the upper half with the second.
#include <algorithm>
#include <array>
#include <cstdint>

#include "base/ranges.h"
#include "codegen/cuda/emitter.h"
#include "codegen/cuda/point_text.h"

namespace meshfuse::cuda {

using namespace tile;

// -- barriers ---------------------------------------------------------------------------------------------------------

void Emitter::wait(Arena::Wait barrier) {
  if (barrier == Arena::Wait::None) {
    return;
  }
  bool cluster = barrier == Arena::Wait::Cluster;
  use(cluster ? "cluster_barrier" : "barrier");
  line(fmt::format("{}({});", cluster ? "clusterBarrier" : "barrier", nextSite()));
  s_.arena.passed(barrier);
}

void Emitter::beforeWrite(const std::string& slot) {
  wait(s_.arena.beforeWrite(slot));
  s_.arena.open.written.insert(slot);
}

void Emitter::beforeRead(const std::string& slot) {
  wait(s_.arena.beforeRead(slot));
  s_.arena.open.read.insert(slot);
}

// -- the stages -------------------------------------------------------------------------------------------------------

namespace {

constexpr int64_t kManyWarps = 8;  // so many partial results are not read one after the other
constexpr int64_t kWarp = 32;      // lanes
constexpr int64_t kHalf = kWarp / 2;

IntExpr lane() { return IntExpr::symbol("lane", {0, kWarp - 1, 1}); }

}  // namespace

Tile Emitter::accumulator(std::string_view stem, ValueId id) {
  Tile acc = newTile(stem, id);
  acc.packed = false;
  acc.dtype = accumulatorType(value(id).dtype);
  return acc;
}

void Emitter::reduce(ValueId id) {
  const Value& v = value(id);
  const Value& from = value(v.operands[0]);
  Tile acc = accumulator("r", id);
  reduceRegisters(id, acc);
  uint64_t gone = from.digits & ~v.digits;
  if (!geometry_.onLevel(v.space, gone, Level::Lane).empty()) {
    reduceLanes(id, acc);
  }
  for (Level level : {Level::Warp, Level::Cluster}) {
    if (!geometry_.onLevel(v.space, gone, level).empty()) {
      reduceThroughMemory(id, acc, level);
    }
  }
  finishReduction(id, acc);
}

// Rounded to the type of the result.
void Emitter::finishReduction(ValueId id, const Tile& acc) {
  const Value& v = value(id);
  Tile result = acc;
  if (acc.dtype != v.dtype) {
    result = declaredTile("r", id);
    auto narrow = [&](Texts) { assign(result, castText(element(acc), acc.dtype, v.dtype, s_.uses)); };
    nest(v.space, v.digits, {}, {.element = narrow});
  }
  s_.tiles[id] = result;
}

// Whether both statements reduce one value of a warp, in the same way over the same digits, all lanes among them. The second does not wait
// for the first: what it reads is defined before both.
bool Emitter::reducesTogether(const Stmt& first, const Stmt& second) const {
  const auto isReduction = [&](const Stmt& s) {
    return s.kind == StmtKind::Define && value(s.value).kind == ValueKind::Reduce && usage_.stored[s.value] &&
           !s_.tiles.contains(s.value);
  };
  if (!isReduction(first) || !isReduction(second)) {
    return false;
  }
  const Value& a = value(first.value);
  const Value& b = value(second.value);
  const uint64_t from = value(a.operands[0]).digits;
  const auto count = [&](Level level) { return countOf(geometry_.onLevel(a.space, from & ~a.digits, level)); };
  return a.space == b.space && a.digits == b.digits && from == value(b.operands[0]).digits &&
         a.combiner == b.combiner && a.dtype == b.dtype && geometry_.registers(a.space, a.digits).empty() &&
         count(Level::Lane) == kWarp && count(Level::Warp) <= kHalf && count(Level::Cluster) == 1;
}

// The same bits as two reductions one after the other: after the first exchange both halves of a warp would hold the same.
void Emitter::reducePair(ValueId first, ValueId second) {
  const Value& v = value(first);
  const Tile a = accumulator("r", first);
  const Tile b = accumulator("r", second);
  reduceRegisters(first, a);
  reduceRegisters(second, b);
  const Tile pair = accumulator("pair", first);
  declare(pair);
  use("shuffle_xor");
  const std::string isUpper = exprText(lane(), s_.uses) + fmt::format(" >= {}", kHalf);
  const auto choice = [&](const Tile& upper, const Tile& lower) {
    return fmt::format("{} ? {} : {}", isUpper, element(upper), element(lower));
  };
  assign(pair, choice(b, a));
  line(combination(pair, v.combiner, fmt::format("shuffleXor({}, {}, {})", choice(a, b), kHalf, nextSite())));
  butterfly(first, pair, kHalf / 2, 1);
  if (!geometry_.onLevel(v.space, value(v.operands[0]).digits & ~v.digits, Level::Warp).empty()) {
    reduceThroughMemory(first, pair, Level::Warp, Held::Pair);
  }
  Tile other = accumulator("other", first);
  declare(other);
  assign(other, fmt::format("shuffleXor({}, {}, {})", element(pair), kHalf, nextSite()));
  assign(a, choice(other, pair));
  assign(b, choice(pair, other));
  finishReduction(first, a);
  finishReduction(second, b);
}

// Combines `x` into the element at the current digits.
std::string Emitter::combination(const Tile& acc, Combiner combiner, const std::string& x) {
  std::string sum = element(acc);
  PointOp op = combineOp(combiner, acc.dtype);
  return fmt::format("{} = {};", sum,
                     unwrapped(pointText(op, acc.dtype, Precision::Full, std::array{sum, x}, s_.uses)));
}

void Emitter::reduceRegisters(ValueId id, const Tile& acc) {
  const Value& v = value(id);
  const Value& from = value(v.operands[0]);
  std::vector<DigitInfo> gone = geometry_.registers(v.space, from.digits & ~v.digits);
  // Only an axis that loses a digit needs its bound: beyond the bound of another one the result is unspecified anyway.
  const Space& s = space(v.space);
  std::vector<Pred> preds = openPredicates(v.space, from.digits, {}, v.where, [&](int64_t a) {
    bool loses = ((from.digits & ~v.digits) & axisDigits(s, a)) != 0;
    return loses && !padding_.isIdentity(id, a);
  });
  DataType fromType = accumulatorType(v.dtype);
  auto operand = [&](const std::string& t) {
    return v.dtype == fromType ? t : castText(t, v.dtype, fromType, s_.uses);
  };
  std::string start = identityText(v.combiner, v.dtype);
  if (gone.empty()) {
    declare(acc);
    auto assignOne = [&](Texts t) {
      std::string condition = conditionText(preds);
      std::string x = operand(t[0]);
      assign(acc, condition.empty() ? x : fmt::format("{} ? {} : {}", condition, x, start));
    };
    nest(v.space, from.digits, v.operands, {.element = assignOne});
    return;
  }
  if (acc.elements == 1) {
    line(fmt::format("{} {} = {};", registerType(acc.dtype), acc.name, unwrapped(start)));
  } else {
    declare(acc);
    nest(v.space, v.digits, {}, {.element = [&](Texts) { assign(acc, start); }});
  }
  // A bound that a whole vector shares is tested without its last digit, so that the compiler tests once.
  DigitInfo last = geometry_.registers(v.space, from.digits).back();
  bool shared = last.level == Level::Vector;
  for (Pred& p : preds) {
    std::optional<LinearForm> form = p.lhs.linearIn(last.symbol);
    if (last.level == Level::Vector && form && form->slope.isConst(1) && !p.rhs.contains(last.symbol) &&
        p.rhs.divisibleBy(last.size) && form->rest.divisibleBy(last.size)) {
      p.lhs = form->rest;
    }
    shared = shared && !p.lhs.contains(last.symbol) && !p.rhs.contains(last.symbol);
  }
  std::string condition = conditionText(preds);
  Hooks hooks;
  if (shared && !condition.empty()) {
    hooks.beforeVector = [this, condition] { open(fmt::format("if ({})", condition)); };
    hooks.afterVector = [this] { close(); };
    condition.clear();
  }
  hooks.element = [&](Texts t) {
    std::string text = combination(acc, v.combiner, operand(t[0]));
    line(condition.empty() ? text : fmt::format("if ({}) {}", condition, text));
  };
  nest(v.space, from.digits, v.operands, hooks);
}

// Butterflies: all lanes end with the same bits, since both partners add the same two numbers.
void Emitter::reduceLanes(ValueId id, const Tile& acc) {
  const Value& v = value(id);
  std::vector<int64_t> masks;
  for (const DigitInfo& d : geometry_.onLevel(v.space, value(v.operands[0]).digits & ~v.digits, Level::Lane)) {
    for (int64_t bit = 1; bit < d.size; bit *= 2) {
      masks.push_back(static_cast<int64_t>(bit) * d.weight);
    }
  }
  std::sort(masks.rbegin(), masks.rend());
  if (masks.size() > 1 && masks.front() == masks.back() << (masks.size() - 1)) {
    butterfly(id, acc, masks.front(), masks.back());
    return;
  }
  for (int64_t mask : masks) {
    butterfly(id, acc, mask, mask);
  }
}

// Combines with the lane at each distance from `highest` down to `lowest`, halving.
void Emitter::butterfly(ValueId id, const Tile& acc, int64_t highest, int64_t lowest) {
  const Value& v = value(id);
  use("shuffle_xor");
  if (highest != lowest) {
    line("#pragma unroll");
    open(fmt::format("for (int mask = {}; mask >= {}; mask >>= 1)", highest, lowest));
  }
  std::string mask = highest == lowest ? std::to_string(lowest) : "mask";
  auto combine = [&](Texts) {
    std::string other = fmt::format("shuffleXor({}, {}, {})", element(acc), mask, nextSite());
    line(combination(acc, v.combiner, other));
  };
  nest(v.space, v.digits, {}, {.element = combine});
  if (highest != lowest) {
    close();
  }
}

Partials Emitter::planPartials(ValueId id, const Tile& acc, Level level, Held held) {
  const Value& v = value(id);
  Partials p;
  p.held = held;
  p.cluster = level == Level::Cluster;
  p.gone = geometry_.onLevel(v.space, value(v.operands[0]).digits & ~v.digits, level);
  // In the memory of a block its own rank is no coordinate. Neighbouring lanes lie side by side.
  std::vector<DigitInfo> kept = geometry_.registers(v.space, v.digits);
  append(kept, geometry_.onLevel(v.space, v.digits, Level::Warp));
  append(kept, geometry_.onLevel(v.space, v.digits, Level::Lane));
  p.element = positionOf(kept);
  p.stride = countOf(kept);
  if (held == Held::Pair) {
    p.element = p.element * 2 + floorDiv(lane(), kHalf);
    p.stride *= 2;
  }
  int64_t parts = p.cluster ? 1 : countOf(p.gone);
  p.slot = s_.arena.alternate(p.cluster ? "kRanks" : "kWarps", parts * p.stride * dataTypeSize(acc.dtype));
  return p;
}

std::string Emitter::partialAddress(const Tile& acc, const Partials& p, const IntExpr& part) {
  IntExpr offset = (part * p.stride + p.element) * dataTypeSize(acc.dtype);
  return offset.isConst(0) ? p.slot : fmt::format("{} + {}", p.slot, text(offset));
}

// One thread for every distinct partial result of this block.
void Emitter::writePartials(ValueId id, const Tile& acc, const Partials& p) {
  const Value& v = value(id);
  uint64_t holds = v.digits | sumOf(p.gone, &DigitInfo::bit);
  for (const DigitInfo& d : geometry_.digits(v.space)) {
    holds |= d.level == Level::Cluster || (p.held == Held::Pair && d.level == Level::Lane) ? d.bit : 0;
  }
  std::vector<std::string> writer = replicaConditions(v.space, holds);
  if (p.held == Held::Pair) {
    writer.push_back(text(mod(lane(), kHalf)) + " == 0");
  }
  std::erase_if(writer, [](const std::string& c) { return c.starts_with("rank "); });
  auto write = [&](Texts) {
    std::string to = partialAddress(acc, p, p.cluster ? IntExpr(0) : positionOf(p.gone));
    line(sharedStore(acc.dtype, to, element(acc)));
  };
  when(joined(writer, " && "), [&] { nest(v.space, v.digits, {}, {.element = write}); });
}

std::string Emitter::readPartial(ValueId id, const Tile& acc, const Partials& p, const IntExpr& part) {
  if (!p.cluster) {
    return sharedLoad(acc.dtype, partialAddress(acc, p, part));
  }
  // The rank of that block along the reduced digits, at this block's other digits.
  IntExpr rank = 0;
  IntExpr rest = part;
  for (auto d = p.gone.rbegin(); d != p.gone.rend(); ++d) {
    rank += mod(rest, d->size) * static_cast<int64_t>(d->weight);
    rest = floorDiv(rest, d->size);
  }
  for (const DigitInfo& d : geometry_.onLevel(value(id).space, value(id).digits, Level::Cluster)) {
    rank += d.value() * d.weight;
  }
  return remoteLoad(acc.dtype, partialAddress(acc, p, 0), fmt::format("(int)({})", text(rank)));
}

// Partial results of warps, or of the blocks of a cluster, through shared memory: written once, read by all in order.
void Emitter::reduceThroughMemory(ValueId id, const Tile& acc, Level level, Held held) {
  const Value& v = value(id);
  Partials p = planPartials(id, acc, level, held);
  beforeWrite(p.slot);
  writePartials(id, acc, p);
  wait(p.cluster ? Arena::Wait::Cluster : Arena::Wait::Block);
  (p.cluster ? s_.arena.open.remote : s_.arena.open.read).insert(p.slot);
  int64_t count = countOf(p.gone);
  bool lanesFree = !p.cluster && geometry_.onLevel(v.space, v.digits, Level::Lane).empty();
  auto assignPart = [&](const IntExpr& part) {
    nest(v.space, v.digits, {}, {.element = [&](Texts) { assign(acc, readPartial(id, acc, p, part)); }});
  };
  if (lanesFree && count >= kManyWarps) {
    // Every lane reads one of them, of a pair those of its half, and a butterfly adds them up.
    assignPart(mod(lane(), count));
    butterfly(id, acc, count / 2, 1);
    return;
  }
  assignPart(0);
  std::string part = s_.names.fresh(p.cluster ? "block" : "w");
  line("#pragma unroll");
  open(fmt::format("for (int {0} = 1; {0} < {1}; ++{0})", part, count));
  auto combine = [&](Texts) {
    std::string other = readPartial(id, acc, p, IntExpr::symbol(part, {0, count - 1, 1}));
    line(combination(acc, v.combiner, other));
  };
  nest(v.space, v.digits, {}, {.element = combine});
  close();
}

}  // namespace meshfuse::cuda
