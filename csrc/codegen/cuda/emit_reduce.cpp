// Reductions, in a defined order: registers ascending, lanes by halving distances, warps and cluster ranks ascending.
#include <algorithm>

#include "base/error.h"
#include "codegen/cuda/emitter.h"

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

// -- the stages ---------------------------------------------------------------------------------------------------------

namespace {

DataType accumulated(DataType t) { return isHalfPrecision(t) ? DataType::Float : t == DataType::Bool ? DataType::Int32 : t; }

// Position among the threads of `digits`, the last one fastest.
IntExpr positionOf(const std::vector<DigitInfo>& digits) {
  IntExpr position = 0;
  int64_t weight = 1;
  for (auto d = digits.rbegin(); d != digits.rend(); ++d) {
    position += IntExpr::symbol(d->symbol, {0, d->size - 1, 1}) * weight;
    weight *= d->size;
  }
  return position;
}

int64_t countOf(const std::vector<DigitInfo>& digits) {
  int64_t n = 1;
  for (const DigitInfo& d : digits) {
    n *= d.size;
  }
  return n;
}

std::vector<DigitInfo> onLevel(std::vector<DigitInfo> digits, Level level) {
  std::erase_if(digits, [&](const DigitInfo& d) { return d.level != level; });
  return digits;
}

}  // namespace

void Emitter::reduce(ValueId id) {
  const Value& v = value(id);
  const Value& from = value(v.operands[0]);
  Tile acc = newTile("r", id);
  acc.packed = false;
  acc.dtype = accumulated(v.dtype);
  reduceRegisters(id, acc);
  uint64_t gone = from.digits & ~v.digits;
  if (!onLevel(geometry_.threads(v.space, gone), Level::Lane).empty()) {
    reduceLanes(id, acc);
  }
  for (Level level : {Level::Warp, Level::Cluster}) {
    if (!onLevel(geometry_.threads(v.space, gone), level).empty()) {
      reduceThroughMemory(id, acc, level);
    }
  }
  if (acc.dtype == v.dtype) {
    s_.tiles[id] = acc;
    return;
  }
  Tile result = newTile("r", id);
  declare(result);
  Hooks hooks;
  hooks.element = [&](std::span<const std::string>) { assign(result, castText(element(acc), acc.dtype, v.dtype, s_.uses)); };
  nest(v.space, v.digits, {}, hooks);
  s_.tiles[id] = result;
}

void Emitter::reduceRegisters(ValueId id, const Tile& acc) {
  const Value& v = value(id);
  const Value& from = value(v.operands[0]);
  std::vector<DigitInfo> gone = geometry_.registers(v.space, from.digits & ~v.digits);
  // Only an axis that loses a digit needs its bound: beyond the bound of another one the result is unspecified anyway.
  const Space& s = space(v.space);
  std::vector<Pred> preds = openPredicates(v.space, from.digits, {}, v.where,
                                           [&](int a) {
                                             bool loses = ((from.digits & ~v.digits) & axisDigits(s, a)) != 0;
                                             return loses && !padding_.isIdentity(id, a);
                                           });
  DataType fromType = accumulated(v.dtype);
  auto operand = [&](const std::string& t) { return v.dtype == fromType ? t : castText(t, v.dtype, fromType, s_.uses); };
  std::string start = identityText(v.combiner, v.dtype);
  Hooks hooks;
  if (gone.empty()) {
    declare(acc);
    hooks.element = [&](std::span<const std::string> t) {
      std::string condition;
      for (const Pred& p : preds) {
        condition += (condition.empty() ? "" : " && ") + conditionText(p);
      }
      std::string x = operand(t[0]);
      assign(acc, condition.empty() ? x : fmt::format("{} ? {} : {}", condition, x, start));
    };
    nest(v.space, from.digits, std::span(&v.operands[0], 1), hooks);
    return;
  }
  if (acc.elements == 1) {
    line(fmt::format("{} {} = {};", registerType(acc.dtype), acc.name, unwrapped(start)));
  } else {
    declare(acc);
    Hooks clear;
    clear.element = [&](std::span<const std::string>) { assign(acc, start); };
    nest(v.space, v.digits, {}, clear);
  }
  // A bound that a whole vector shares is tested without its last digit, so that the compiler tests once.
  DigitInfo last = geometry_.registers(v.space, from.digits).back();
  std::string condition;
  bool shared = last.level == Level::Vector;
  for (Pred& p : preds) {
    std::optional<LinearForm> form = p.lhs.linearIn(last.symbol);
    if (last.level == Level::Vector && form && form->slope.isConst(1) && !p.rhs.contains(last.symbol) && p.rhs.divisibleBy(last.size) &&
        form->rest.divisibleBy(last.size)) {
      p.lhs = form->rest;
    }
    shared = shared && !p.lhs.contains(last.symbol) && !p.rhs.contains(last.symbol);
    condition += (condition.empty() ? "" : " && ") + conditionText(p);
  }
  if (shared && !condition.empty()) {
    hooks.beforeVector = [this, condition] { open(fmt::format("if ({})", condition)); };
    hooks.afterVector = [this] { close(); };
    condition.clear();
  }
  hooks.element = [&](std::span<const std::string> t) {
    std::string target = element(acc);
    std::string text = fmt::format("{} = {};", target, combineText(v.combiner, v.dtype, target, operand(t[0]), s_.uses));
    line(condition.empty() ? text : fmt::format("if ({}) {}", condition, text));
  };
  nest(v.space, from.digits, std::span(&v.operands[0], 1), hooks);
}

// Butterflies: all lanes end with the same bits, since both partners add the same two numbers.
void Emitter::reduceLanes(ValueId id, const Tile& acc) {
  const Value& v = value(id);
  std::vector<int> masks;
  for (const DigitInfo& d : onLevel(geometry_.threads(v.space, value(v.operands[0]).digits & ~v.digits), Level::Lane)) {
    for (int64_t bit = 1; bit < d.size; bit *= 2) {
      masks.push_back(static_cast<int>(bit) * d.weight);
    }
  }
  std::sort(masks.rbegin(), masks.rend());
  use("shuffle_xor");
  bool run = masks.size() > 1 && masks.front() == masks.back() << (masks.size() - 1);
  auto step = [&](const std::string& mask) {
    Hooks hooks;
    hooks.element = [&](std::span<const std::string>) {
      std::string other = fmt::format("shuffleXor({}, {}, {})", element(acc), mask, nextSite());
      line(fmt::format("{} = {};", element(acc), combineText(v.combiner, v.dtype, element(acc), other, s_.uses)));
    };
    nest(v.space, v.digits, {}, hooks);
  };
  if (run) {
    line("#pragma unroll");
    open(fmt::format("for (int mask = {}; mask >= {}; mask >>= 1)", masks.front(), masks.back()));
    step("mask");
    close();
    return;
  }
  for (int mask : masks) {
    step(std::to_string(mask));
  }
}

// Partial results of warps, or of the blocks of a cluster, through shared memory: written once, read by everyone in order.
void Emitter::reduceThroughMemory(ValueId id, const Tile& acc, Level level) {
  const Value& v = value(id);
  uint64_t from = value(v.operands[0]).digits;
  bool cluster = level == Level::Cluster;
  std::vector<DigitInfo> gone = onLevel(geometry_.threads(v.space, from & ~v.digits), level);
  std::vector<DigitInfo> keptThreads = geometry_.threads(v.space, v.digits);
  // In the memory of a block its own rank is no coordinate.
  std::erase_if(keptThreads, [&](const DigitInfo& d) { return d.level == Level::Cluster; });
  std::vector<DigitInfo> lanes = onLevel(keptThreads, Level::Lane);
  std::vector<DigitInfo> warps = onLevel(keptThreads, Level::Warp);
  std::vector<DigitInfo> kept = warps;
  kept.insert(kept.end(), lanes.begin(), lanes.end());
  int64_t parts = cluster ? 1 : countOf(gone);
  int64_t stride = acc.elements * countOf(kept);  // of one part, in elements
  int size = dataTypeSize(acc.dtype);
  std::string_view type = storageType(acc.dtype);
  std::string slot = s_.arena.alternate(cluster ? "kRanks" : "kWarps", parts * stride * size);

  IntExpr element = positionOf(kept);
  std::vector<DigitInfo> registers = geometry_.registers(v.space, v.digits);
  IntExpr inRegisters = 0;
  int64_t weight = countOf(kept);
  for (auto d = registers.rbegin(); d != registers.rend(); ++d) {
    inRegisters += IntExpr::symbol(d->symbol, {0, d->size - 1, 1}) * weight;
    weight *= d->size;
  }
  element += inRegisters;
  auto at = [&](const IntExpr& part) {
    IntExpr offset = (part * stride + element) * size;
    return offset.isConst(0) ? slot : fmt::format("{} + {}", slot, text(offset));
  };

  // Writers: one thread for every distinct partial result of this block.
  uint64_t holds = v.digits;
  for (const DigitInfo& d : gone) {
    holds |= d.bit;
  }
  for (const DigitInfo& d : geometry_.digits(v.space)) {
    holds |= d.level == Level::Cluster ? d.bit : 0;
  }
  std::vector<std::string> writer = replicaConditions(v.space, holds);
  std::erase_if(writer, [](const std::string& c) { return c.starts_with("rank "); });
  beforeWrite(slot);
  use("shared_store");
  if (!writer.empty()) {
    open(fmt::format("if ({})", joined(writer)));
  }
  Hooks write;
  write.element = [&](std::span<const std::string>) {
    line(fmt::format("sharedStore<{}>({}, {}, {});", type, at(cluster ? IntExpr(0) : positionOf(gone)), this->element(acc), nextSite()));
  };
  nest(v.space, v.digits, {}, write);
  if (!writer.empty()) {
    close();
  }

  wait(cluster ? Arena::Wait::Cluster : Arena::Wait::Block);
  (cluster ? s_.arena.open.remote : s_.arena.open.read).insert(slot);
  use(cluster ? "remote_load" : "shared_load");
  std::string part = s_.names.fresh(cluster ? "block" : "w");
  auto read = [&](const IntExpr& p) {
    if (!cluster) {
      return fmt::format("sharedLoad<{}>({}, {})", type, at(p), nextSite());
    }
    // The rank of the p-th block along the reduced digits, at this block's other digits.
    IntExpr rank = 0;
    IntExpr rest = p;
    for (auto d = gone.rbegin(); d != gone.rend(); ++d) {
      rank += mod(rest, d->size) * static_cast<int64_t>(d->weight);
      rest = floorDiv(rest, d->size);
    }
    for (const DigitInfo& d : onLevel(geometry_.threads(v.space, v.digits), Level::Cluster)) {
      rank += IntExpr::symbol(d.symbol, {0, d.size - 1, 1}) * static_cast<int64_t>(d.weight);
    }
    return fmt::format("remoteLoad<{}>({}, (int)({}), {})", type, at(0), text(rank), nextSite());
  };
  Hooks first;
  first.element = [&](std::span<const std::string>) { assign(acc, read(0)); };
  nest(v.space, v.digits, {}, first);
  int64_t count = countOf(gone);
  line("#pragma unroll");
  open(fmt::format("for (int {0} = 1; {0} < {1}; ++{0})", part, count));
  Hooks more;
  more.element = [&](std::span<const std::string>) {
    std::string other = read(IntExpr::symbol(part, {0, count - 1, 1}));
    line(fmt::format("{} = {};", this->element(acc), combineText(v.combiner, v.dtype, this->element(acc), other, s_.uses)));
  };
  nest(v.space, v.digits, {}, more);
  close();
}

}  // namespace meshfuse::cuda
