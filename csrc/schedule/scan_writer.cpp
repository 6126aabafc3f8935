#include "schedule/scan_writer.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/ranges.h"
#include "base/rounding.h"
#include "ir/fusion.h"
#include "schedule/streamed_reads.h"

namespace meshfuse {

using tile::Level;
using tile::ValueId;

namespace {

constexpr int64_t kSegment = 16;  // as in runtime/cuda/scan.cuh
constexpr int64_t kWarp = 32;
constexpr int64_t kThreads = 256;
constexpr int64_t kMostThreadsOfScan = 512;
constexpr int64_t kBlocksPerProcessor = 4;

using Specs = std::vector<tile::Builder::DigitSpec>;

void addDigit(Specs& to, Level level, int64_t size) {
  if (size > 1) {
    to.push_back({level, size});
  }
}

// Powers of two of threads on axes, lanes first on the first of them.
struct Placed {
  int64_t lanes = 1, warps = 1;
};
template <size_t n>
std::array<Placed, n> placed(const std::array<int64_t, n>& threads) {
  std::array<Placed, n> result;
  int64_t room = kWarp;
  for (size_t i = 0; i < n; i++) {
    result[i].lanes = std::min(room, threads[i]);
    result[i].warps = threads[i] / result[i].lanes;
    room /= result[i].lanes;
  }
  return result;
}

int64_t narrowestOf(const std::vector<const TensorView*>& tensors) {
  return std::ranges::min(mapped(tensors, [](const TensorView* tv) { return dataTypeSize(tv->dtype()); }));
}

}  // namespace

ScanWriter::ScanWriter(const ScanJudgement& judgement)
    : j_(judgement),
      group_(j_.group),
      operand_(j_.scan->tensorInputs()[0]),
      result_(j_.scan->tensorOutput()),
      builder_("scan", tile::Target::Gpu),
      lowering_(group_, builder_, plan_),
      M_(j_.axes.M.constValue()),
      K_(j_.axes.K.constValue()),
      N_(j_.axes.N.constValue()),
      isInner_(j_.axes.n.empty()) {
  lowering_.declareTensors();
}

KernelPlan ScanWriter::write() {
  const Threads threads = chooseThreads();
  isCarried_ = threads.k * kSegment < K_;
  const std::vector<const TensorView*> exchanged = {exchangedOperand(), exchangedResult()};
  const Space at = scanning(threads, isInner_ ? std::min(kSegment, 16 / narrowestOf(exchanged)) : 1);
  const Space io = isInner_ ? reading(threads, vectorOf(j_.device.gpu.accessBytes)) : at;
  const tile::Combiner combiner = j_.scan->attributes().reduce;
  const DataType wide = tile::totalType(combiner, result_->dtype());
  if (isCarried_) {
    const tile::Space& space = builder_.program().spaces[at.id];
    uint64_t others = 0;
    for (int64_t a : indices(space.axes)) {
      others |= a == 1 ? 0 : tile::axisDigits(space, a);
    }
    builder_.loop(at.id, 1, 0, {tile::identity(builder_, combiner, wide, at.id, others)},
                  [&](std::span<const ValueId> carried) {
                    lowering_.pushScope();
                    const ValueId total = scanTile(at, io, carried[0]);
                    lowering_.popScope();
                    return std::vector<ValueId>{total};
                  });
  } else {
    scanTile(at, io, tile::identity(builder_, combiner, wide, at.id));
  }
  plan_.program = builder_.take();
  streamReads(plan_.program, j_.device.lastCacheBytes / 4);
  return std::move(plan_);
}

// Whole lines where a block holds them; the other threads get further lines.
ScanWriter::Threads ScanWriter::chooseThreads() const {
  const int64_t processors = std::max<int64_t>(1, j_.device.gpu.processors);
  const int64_t segments = powerAtLeast(divideUp(K_, kSegment));
  Threads t;
  if (isInner_) {
    t.k = segments <= kMostThreadsOfScan ? segments : kThreads;
    t.m = std::max<int64_t>(1, kThreads / t.k);
    while (t.m > 1 && t.all() > kWarp && divideUp(M_, t.m) < kBlocksPerProcessor * processors) {
      t.m /= 2;
    }
    return t;
  }
  t.n = std::min(kWarp, powerAtLeast(N_));
  const int64_t most = M_ * divideUp(N_, t.n) < kBlocksPerProcessor * processors ? kMostThreadsOfScan : kThreads;
  t.k = std::min(segments, most / t.n);
  t.n = std::min(std::max(kThreads / t.k, t.n), powerAtLeast(N_));
  while (t.n > kWarp && M_ * divideUp(N_, t.n) < kBlocksPerProcessor * processors) {
    t.n /= 2;
  }
  t.m = std::max<int64_t>(1, kWarp / (t.k * t.n));
  while (t.all() < kThreads && divideUp(M_, 2 * t.m) >= kBlocksPerProcessor * processors) {
    t.m *= 2;
  }
  return t;
}

// The space of the scan: segments in registers, vectors innermost.
ScanWriter::Space ScanWriter::scanning(const Threads& threads, int64_t vector) {
  builder_.gridDim("p1", ceilDiv(IntExpr(M_), threads.m));
  Specs m = {{Level::Part, 0, "p1"}};
  Specs k;
  Specs n;
  if (isCarried_) {
    k.push_back({Level::Serial, 0, "tile"});
  }
  const auto [ofN, ofK, ofM] = placed(std::array{threads.n, threads.k, threads.m});
  if (!isInner_) {
    builder_.gridDim("p2", ceilDiv(IntExpr(N_), threads.n));
    n.push_back({Level::Part, 0, "p2"});
  }
  for (const auto& [to, of] : {std::pair{&m, ofM}, {&k, ofK}, {&n, ofN}}) {
    addDigit(*to, Level::Warp, of.warps);
    addDigit(*to, Level::Lane, of.lanes);
  }
  addDigit(k, Level::Repeat, kSegment / vector);
  addDigit(k, Level::Vector, vector);
  std::vector<tile::Builder::AxisSpec> axes = {{"m", M_, std::move(m)}, {"k", K_, std::move(k)}};
  if (!isInner_) {
    axes.push_back({"n", N_, std::move(n)});
  }
  Space s;
  s.id = builder_.space("t", std::move(axes));
  s.m = builder_.coord(s.id, 0);
  s.k = builder_.coord(s.id, 1);
  s.n = isInner_ ? IntExpr(0) : builder_.coord(s.id, 2);
  return s;
}

// The space of loads and stores of lines along memory: neighbouring lanes hold neighbouring vectors.
ScanWriter::Space ScanWriter::reading(const Threads& threads, int64_t vector) {
  const int64_t vectors = threads.k * kSegment / vector;  // of a line in a tile
  const auto [ofK, ofM] =
      placed(std::array{std::min(vectors, threads.all()), threads.all() / std::min(vectors, threads.all())});
  Specs m = {{Level::Part, 0, "p1"}};
  Specs k;
  if (isCarried_) {
    k.push_back({Level::Serial, 0, "tile"});
  }
  addDigit(m, Level::Repeat, threads.m / (ofM.warps * ofM.lanes));
  addDigit(k, Level::Repeat, vectors / (ofK.warps * ofK.lanes));
  for (const auto& [to, of] : {std::pair{&m, ofM}, {&k, ofK}}) {
    addDigit(*to, Level::Warp, of.warps);
    addDigit(*to, Level::Lane, of.lanes);
  }
  addDigit(k, Level::Vector, vector);
  Space s;
  s.id = builder_.space("s", {{"mv", M_, std::move(m)}, {"kv", K_, std::move(k)}});
  s.m = builder_.coord(s.id, 0);
  s.k = builder_.coord(s.id, 1);
  s.n = 0;
  return s;
}

// Elements of the widest aligned access of all tensors along the lines.
int64_t ScanWriter::vectorOf(int64_t bytes) const {
  int64_t divisor = K_;
  int64_t widest = 1;
  for (const TensorView* tv : tensorsOf(group_)) {
    const std::vector<IntExpr>& index = j_.coordinates.index.at(tv->id());
    if (!runsOver(index, j_.axes.k[0])) {
      continue;
    }
    widest = std::max(widest, dataTypeSize(tv->dtype()));
    const std::vector<int64_t> strides = constantStrides(tv, group_.layouts);
    for (int64_t d : indices(index)) {
      divisor = index[d].isConst(0) || runsOver(index[d], j_.axes.k[0]) ? divisor : std::gcd(divisor, strides[d]);
    }
  }
  int64_t v = std::clamp<int64_t>(bytes / widest, 1, kSegment);
  while (v > 1 && divisor % v != 0) {
    v /= 2;
  }
  return v;
}

Lowering::Position ScanWriter::position(const TensorView* tensor, const Space& at) const {
  return positionOf(j_.coordinates, tensor, j_.axes.dims(j_.coordinates, at.m, at.k, at.n));
}

// What is exchanged instead of the operand: of casts to wider types, what they read.
const TensorView* ScanWriter::exchangedOperand() const {
  const TensorView* tv = operand_;
  while (contains(group_.exprs, tv->definition()) && tv->definition()->kind() == ExprKind::Cast &&
         dataTypeSize(tv->definition()->input(0)->dtype()) < dataTypeSize(tv->dtype())) {
    tv = tv->definition()->tensorInputs()[0];
  }
  return tv;
}

// And instead of the result: what casts to narrower types make of it, if nothing else reads it.
const TensorView* ScanWriter::exchangedResult() const {
  const TensorView* tv = result_;
  while (!contains(group_.outputs, tv)) {
    const std::vector<Expr*> uses =
        filtered(group_.exprs, [&](const Expr* e) { return contains(e->tensorInputs(), tv); });
    if (uses.size() != 1 || uses[0]->kind() != ExprKind::Cast ||
        dataTypeSize(uses[0]->output()->dtype()) >= dataTypeSize(tv->dtype())) {
      break;
    }
    tv = uses[0]->tensorOutput();
  }
  return tv;
}

// The scanned value, with all digits of the lines, in registers.
ValueId ScanWriter::operandOf(const Space& at) {
  const ValueId x = lowering_.value(operand_, position(operand_, at), at.id);
  const auto& values = builder_.program().values;
  const uint64_t along = tile::axisDigits(builder_.program().spaces[at.id], 1);
  if ((values[x].digits & along) != along) {
    const tile::Combiner combiner = j_.scan->attributes().reduce;
    const ValueId none = tile::identity(builder_, combiner, operand_->dtype(), at.id, along);
    return builder_.keep(builder_.point(combineOp(combiner, operand_->dtype()), {none, x}));
  }
  const auto isStored = [&](ValueId id) {
    return values[id].kind == tile::ValueKind::Load || values[id].kind == tile::ValueKind::Convert;
  };
  const bool isCast = values[x].kind == tile::ValueKind::Cast && isStored(values[x].operands[0]);
  return isStored(x) || isCast ? x : builder_.keep(x);
}

// In registers first, so that threads move whole vectors.
void ScanWriter::exchange(const TensorView* tensor, const Space& from, const Space& to) {
  const ValueId value = lowering_.value(tensor, position(tensor, from), from.id);
  const bool isLoad = builder_.program().values[value].kind == tile::ValueKind::Load;
  const ValueId kept = isLoad ? value : builder_.keep(value);
  lowering_.provide(tensor, position(tensor, to), to.id, builder_.convert(kept, to.id));
}

// The total after the tile.
ValueId ScanWriter::scanTile(const Space& at, const Space& io, ValueId before) {
  if (isInner_) {
    exchange(exchangedOperand(), io, at);
  }
  const ValueId scan = builder_.scan(operandOf(at), before, 1, j_.scan->attributes().reduce);
  const ValueId total = isCarried_ ? builder_.scanTotal(scan) : tile::kNone;
  lowering_.provide(result_, position(result_, at), at.id, scan);
  if (isInner_) {
    exchange(exchangedResult(), at, io);
  }
  storeOutputs(io);
  return total;
}

void ScanWriter::storeOutputs(const Space& at) {
  for (const TensorView* out : group_.outputs) {
    const bool streams = product(out->shape()).constValue() > j_.device.lastCacheBytes / 4 / dataTypeSize(out->dtype());
    lowering_.store(out, position(out, at), lowering_.value(out, position(out, at), at.id),
                    streams ? tile::Cache::Once : tile::Cache::Keep);
  }
}

}  // namespace meshfuse
