#include "schedule/transpose_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <ranges>

#include "base/ranges.h"
#include "base/rounding.h"
#include "ir/fusion.h"
#include "schedule/axes.h"
#include "schedule/extents.h"
#include "schedule/row_major.h"
#include "schedule/streamed_reads.h"

namespace meshfuse {

using tile::Level;
using tile::ValueId;

namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kRunBytes =
    256;  // of a block along m and along n: four lines, which neighbour in memory, of each row
constexpr int64_t kMostAcross = 256;  // positions of one axis, where the other one is short
constexpr int64_t kEnoughParts = 32;  // more would only start more often
constexpr int64_t kElementsOfPart = 32768;
constexpr int64_t kStoredTogether = 8;  // vectors
constexpr int64_t kWarpRunBytes = 128;  // of a warp in one row

}  // namespace

TransposeBlocks cpuBlocks(const TransposeAxes& axes, int64_t bytesAlongM, int64_t bytesAlongN, bool onlyStreamsAlongM,
                          const DeviceInfo& device) {
  const int64_t m = usualExtent(axes.M);
  const int64_t n = usualExtent(axes.N);
  const int64_t batch = usualExtent(axes.B);
  TransposeBlocks b;
  b.vector = std::max(bytesAlongM, bytesAlongN) == 8 ? 8 : 16;
  // Streaming stores leave as lines, so runs of them may be short; reads gain from longer ones.
  const int64_t lengthened = onlyStreamsAlongM ? 2 : 1;
  const int64_t rows = kRunBytes / lengthened / bytesAlongM;
  const int64_t columns = kRunBytes * lengthened / bytesAlongN;
  const auto grown = [&](int64_t own, int64_t other, int64_t shortened) {
    return std::max(own, std::min(kMostAcross, own * other / shortened / b.vector * b.vector));
  };
  b.columns = std::min(columns, roundUp(n, b.vector));
  b.rows = std::min(grown(rows, columns, b.columns), roundUp(m, b.vector));
  if (b.rows < rows) {
    b.columns = std::min(grown(columns, rows, b.rows), roundUp(n, b.vector));
  }
  const int64_t down = divideUp(m, b.rows);
  const int64_t across = divideUp(n, b.columns);
  b.alongM = across == 1;
  const int64_t others = batch * (b.alongM ? 1 : down);  // parts, if each had all blocks along the axis
  const int64_t most = divideUp(b.alongM ? down : across, divideUp(kEnoughParts, others));
  b.inPart = b.alongM ? std::min(most, std::max<int64_t>(1, kElementsOfPart / (b.rows * b.columns))) : most;
  b.prefetches = batch * m * n > device.l2Bytes / bytesAlongN;
  return b;
}

TransposeWriter::TransposeWriter(const Group& group, const Coordinates& coordinates, const TransposeAxes& axes,
                                 const DeviceInfo& device)
    : group_(group),
      c_(coordinates),
      axes_(axes),
      device_(device),
      builder_("transpose", device.target),
      lowering_(group, builder_, plan_) {
  if (!axes.B.isConst(1)) {
    batch_ = builder_.gridDim("p0", axes.B);
  }
}

KernelPlan TransposeWriter::write() {
  device_.target == tile::Target::Cpu ? onCpu() : onGpu();
  plan_.program = builder_.take();
  if (plan_.program.target == tile::Target::Gpu) {
    streamReads(plan_.program, device_.lastCacheBytes / 4);
  }
  return std::move(plan_);
}

TransposeWriter::Space TransposeWriter::space(const char* name, const char* m, const IntExpr& rows, Specs ofM,
                                              const char* n, Specs ofN) {
  Space s;
  s.id =
      builder_.space(name, {{m, lowering_.size(rows), std::move(ofM)}, {n, lowering_.size(axes_.N), std::move(ofN)}});
  s.m = builder_.coord(s.id, 0);
  s.n = builder_.coord(s.id, 1);
  return s;
}

void TransposeWriter::loop(int64_t space, int64_t axis, int64_t digit, const std::function<void()>& body) {
  builder_.loop(space, axis, digit, {}, [&](std::span<const ValueId>) {
    lowering_.pushScope();
    body();
    lowering_.popScope();
    return std::vector<ValueId>{};
  });
}

Lowering::Position TransposeWriter::position(const TensorView* tensor, const Space& at) const {
  return positionOf(c_, tensor, axes_.dims(c_, at.m, at.n, batch_));
}

// A store may overwrite an input: all results read it before.
void TransposeWriter::storeOutputs(const Space& at, bool alongN) {
  const std::vector<TensorView*> outputs =
      filtered(group_.outputs, [&](const TensorView* out) { return contains(axes_.outputsAlongN, out) == alongN; });
  const std::vector<ValueId> values =
      mapped(outputs, [&](const TensorView* out) { return lowering_.value(out, position(out, at), at.id); });
  for (int64_t k : indices(outputs)) {
    lowering_.store(outputs[k], position(outputs[k], at), values[k],
                    streams(outputs[k]) ? tile::Cache::Once : tile::Cache::Keep);
  }
}

bool TransposeWriter::streams(const TensorView* output) const {
  const IntExpr n = product(output->shape());
  return n.isConst() && n.constValue() > device_.lastCacheBytes / 4 / dataTypeSize(output->dtype());
}

int64_t TransposeWriter::widest() const {
  return std::ranges::max(mapped(tensorsOf(group_), [](const TensorView* tv) { return dataTypeSize(tv->dtype()); }));
}

// -- CPU --------------------------------------------------------------------------------------------------------------

void TransposeWriter::onCpu() {
  chooseBlocks();
  lowering_.declareTensors(unaligned_);
  makeSpaces();
  const std::vector<int64_t> scratch = makeScratch();
  const int64_t looped = blocks_.alongM ? 0 : 1;
  const std::vector<tile::Digit>& digits = builder_.program().spaces[read_.id].axes[looped].digits;
  loop(read_.id, looped, digits[0].level == Level::Part ? 1 : 0, [&] {
    if (lead_ > 0) {
      lowering_.loadWithin({{-1, read_.m}, {read_.m, axes_.M}});
    }
    readBlock(scratch);
    lowering_.loadWithin({});
    lead_ == 0 ? writeBlock(scratch) : writeLines(scratch);
  });
}

void TransposeWriter::chooseBlocks() {
  const auto widestOf = [](const auto& tensors) {
    return std::ranges::max(mapped(tensors, [](const TensorView* tv) { return dataTypeSize(tv->dtype()); }));
  };
  const std::vector<TensorView*> outputsAlongM =
      filtered(group_.outputs, [&](const TensorView* tv) { return !contains(axes_.outputsAlongN, tv); });
  const bool readsAlongM = std::ranges::any_of(group_.inputs, [&](const TensorView* tv) {
    return !contains(axes_.inputsAlongN, tv) && !provenLess(product(tv->shape()), axes_.M * axes_.N);
  });
  const bool streamsAlongM = std::ranges::all_of(outputsAlongM, [&](const TensorView* tv) { return streams(tv); });
  blocks_ =
      cpuBlocks(axes_, widestOf(outputsAlongM), widestOf(axes_.inputsAlongN), streamsAlongM && !readsAlongM, device_);
  unaligned_ = unalignedOutput();
  if (unaligned_ != nullptr) {
    lead_ = kLineBytes / dataTypeSize(unaligned_->dtype());
    blocks_.rows = 2 * blocks_.rows - lead_;  // few rows are read twice
  }
}

// The digits of an axis outside of a block: a part, and the loop over the blocks of a part.
TransposeWriter::Specs TransposeWriter::outerDigits(const IntExpr& extent, int64_t block, bool isLooped,
                                                    const char* grid) {
  const int64_t inPart = isLooped ? blocks_.inPart : 1;
  const IntExpr parts = ceilDiv(extent, block * inPart);
  Specs specs;
  if (!parts.isConst(1)) {
    builder_.gridDim(grid, parts);
    specs.push_back({Level::Part, parts, grid});
  }
  if (isLooped) {
    specs.push_back({Level::Serial, inPart, "block"});
  }
  return specs;
}

// Three spaces share the loop over blocks: a block as it is read, turned in registers, and as it is written. Blocks lie in scratch as they
// are written.
void TransposeWriter::makeSpaces() {
  const Specs outerM = outerDigits(lead_ == 0 ? axes_.M : axes_.M + lead_ - 1, blocks_.rows, blocks_.alongM, "p1");
  const Specs outerN = outerDigits(axes_.N, blocks_.columns, !blocks_.alongM, "p2");
  const auto within = [](Specs outer, const Specs& inner) {
    append(outer, inner);
    return outer;
  };
  const int64_t v = blocks_.vector;
  const int64_t rowSteps = blocks_.rows / v;
  const int64_t together = std::clamp<int64_t>(kStoredTogether / rowSteps, 1, 4);
  const Specs stepM = {{Level::Serial, (blocks_.rows + lead_) / v, "ms"}};
  const Specs stepN = within(outerN, {{Level::Serial, blocks_.columns / v, "ns"}});
  // With a lead the rows of a block are numbered from its first row.
  const IntExpr readRows = lead_ == 0 ? axes_.M : IntExpr(blocks_.rows + lead_);
  const Specs readM = lead_ == 0 ? within(outerM, stepM) : stepM;
  read_ = space("s", "m", readRows, within(readM, {{Level::Repeat, v}}), "n", within(stepN, {{Level::Vector, v}}));
  convert_ = space("u", "mu", readRows, within(readM, {{Level::Vector, v}}), "nu", within(stepN, {{Level::Repeat, v}}));
  // n first: the vectors of a run of m are stored one after the other
  write_.id =
      builder_.space("t", {{"nt", lowering_.size(axes_.N),
                            within(outerN, {{Level::Serial, blocks_.columns / together}, {Level::Repeat, together}})},
                           {"mt", lead_ == 0 ? lowering_.size(axes_.M) : outerM[0].size * blocks_.rows,
                            within(outerM, {{Level::Serial, 1}, {Level::Repeat, rowSteps}, {Level::Vector, v}})}});
  write_.n = builder_.coord(write_.id, 0);
  write_.m = builder_.coord(write_.id, 1);
  const auto cornerOf = [&](int64_t axis) {
    const std::vector<tile::Digit>& digits = builder_.program().spaces[read_.id].axes[axis].digits;
    return sumOf(digits | std::views::take(lastSerial(axis, read_)),
                 [&](const tile::Digit& d) { return IntExpr::symbol(d.symbol, factsBelow(d.size)) * d.stride; });
  };
  corner_ = {cornerOf(0), cornerOf(1)};
  if (lead_ > 0) {
    corner_.m = IntExpr::symbol("p1", factsBelow(outerM[0].size)) * blocks_.rows - lead_;
    read_.m += corner_.m;
    convert_.m += corner_.m;
    write_.m = write_.m - mod(offsetInOutput(write_.n), lead_);
  }
  next_ = {corner_.m + (blocks_.alongM ? blocks_.rows : 0), corner_.n + (blocks_.alongM ? 0 : blocks_.columns)};
}

// Streaming stores need whole lines. If rows of the only result begin within lines, it is written by lines, which begin up to a line
// before the block. Where it is small, or its blocks do not follow one another along n, this costs more than it saves.
const TensorView* TransposeWriter::unalignedOutput() const {
  const TensorView* out = group_.outputs[0];
  const int64_t size = dataTypeSize(out->dtype());
  const bool isAlone = group_.outputs.size() == 1 && group_.aliases.empty() && !group_.layouts.contains(out->id());
  const bool isUnaligned = axes_.divisorAlongM * size % kLineBytes != 0;
  const bool isLong = axes_.M.isConst() && axes_.M.constValue() >= 4 * blocks_.rows && !blocks_.alongM &&
                      usualExtent(axes_.N) >= 2 * blocks_.columns;
  return isAlone && isUnaligned && isLong && streams(out) ? out : nullptr;
}

// The first element of a row, the positions of the result that have m = 0.
IntExpr TransposeWriter::offsetInOutput(const IntExpr& n) const {
  const std::vector<IntExpr> strides = rowMajorStrides(unaligned_->shape());
  const Lowering::Position at = positionOf(c_, unaligned_, axes_.dims(c_, 0, n, batch_));
  return sumOf(indices(at), [&](int64_t d) { return at[d].expr * strides[d]; });
}

// Only the lines at the ends of rows have conditions: in the others no lane is masked.
void TransposeWriter::writeLines(const std::vector<int64_t>& scratch) {
  const IntExpr part = divideExactly(corner_.m + lead_, blocks_.rows).value();
  const IntExpr end = (part + 1) * blocks_.rows;
  const IntExpr line = builder_.coord(write_.id, 1);
  const IntExpr phase = line - write_.m;
  const std::vector<tile::Pred> inRow = {{phase - 1, line}, {line, axes_.M + phase}};
  const auto inLines = [&](std::vector<tile::Pred> parts, std::vector<tile::Pred> where) {
    builder_.when(std::move(parts), [&] {
      ends_ = std::move(where);
      lowering_.loadWithin(ends_);
      writeBlock(scratch);
      lowering_.loadWithin({});
    });
  };
  inLines({{0, part}, {end, axes_.M + 1}}, {});
  inLines({{part, 1}}, inRow);
  inLines({{axes_.M, end}}, inRow);
}

// One block for each exchanged tensor. Its lines are padded: lines a power of two apart would fall into few sets of the cache.
std::vector<int64_t> TransposeWriter::makeScratch() {
  return mapped(indices(axes_.exchanged), [&](int64_t k) {
    const DataType type = axes_.exchanged[k]->dtype();
    return builder_.tensor({.name = fmt::format("e{}", k),
                            .dtype = type,
                            .memory = tile::Memory::Scratch,
                            .extents = {blocks_.columns, blocks_.rows + lead_},
                            .strides = {blocks_.rows + lead_ + kLineBytes / dataTypeSize(type), 1},
                            .alignment = kLineBytes});
  });
}

// The digit that steps within a block.
int64_t TransposeWriter::lastSerial(int64_t axis, const Space& of) const {
  const std::vector<tile::Digit>& digits = builder_.program().spaces[of.id].axes[axis].digits;
  const auto serial = std::ranges::find(digits.rbegin(), digits.rend(), Level::Serial, &tile::Digit::level);
  return digits.rend() - serial - 1;
}

void TransposeWriter::readBlock(const std::vector<int64_t>& scratch) {
  loop(read_.id, 0, lastSerial(0, read_), [&] {
    loop(read_.id, 1, lastSerial(1, read_), [&] {
      for (int64_t k : indices(axes_.exchanged)) {
        const TensorView* tensor = axes_.exchanged[k];
        const ValueId value = lowering_.value(tensor, position(tensor, read_), read_.id);
        builder_.store(scratch[k], {{convert_.n - corner_.n}, {convert_.m - corner_.m}},
                       builder_.convert(value, convert_.id));
      }
      storeOutputs(read_, true);
    });
  });
}

void TransposeWriter::writeBlock(const std::vector<int64_t>& scratch) {
  const int64_t n = lastSerial(0, write_);
  const tile::Digit step = builder_.program().spaces[write_.id].axes[0].digits[n];
  loop(write_.id, 0, n, [&] {
    loop(write_.id, 1, lastSerial(1, write_), [&] {
      for (int64_t k : indices(axes_.exchanged)) {
        const ValueId value = builder_.load(scratch[k], {{write_.n - corner_.n}, {write_.m - corner_.m}}, write_.id);
        lowering_.provide(axes_.exchanged[k], position(axes_.exchanged[k], write_), write_.id, value);
      }
      if (lead_ == 0) {
        storeOutputs(write_, false);
      } else {
        const IntExpr line = floorDiv(offsetInOutput(write_.n), lead_) * lead_ + builder_.coord(write_.id, 1);
        const ValueId value = lowering_.value(unaligned_, position(unaligned_, write_), write_.id);
        builder_.store(lowering_.tensorParam(unaligned_), {{line}}, value,
                       {.where = ends_, .cache = tile::Cache::Once});
      }
    });
    if (blocks_.prefetches) {
      prefetchNext(IntExpr::symbol(step.symbol, factsBelow(step.size)), step.size.constValue());
    }
  });
}

// A share of the next block for each step of the writing: memory is then busy in both directions all the time.
void TransposeWriter::prefetchNext(const IntExpr& step, int64_t steps) {
  const int64_t rows = divideUp(blocks_.rows + lead_, steps);
  const int64_t sharing = std::max<int64_t>(1, steps / (blocks_.rows + lead_));  // steps that bring in the same row
  for (const TensorView* in : axes_.inputsAlongN) {
    if (!c_.index.contains(in->id())) {
      continue;  // a window of it is read
    }
    const int64_t size = dataTypeSize(in->dtype());
    const int64_t lines = divideUp(blocks_.columns * size, kLineBytes);
    // A row that begins within a line ends one line later. Along n its first line is also the last one of the block before.
    const bool isAligned = axes_.divisorAlongN * size % kLineBytes == 0;
    const int64_t first = isAligned || blocks_.alongM ? 0 : kLineBytes / size;
    const int64_t share = divideUp(isAligned || !blocks_.alongM ? lines : lines + 1, sharing);
    const IntExpr from = next_.n + first + mod(step, sharing) * (share * kLineBytes / size);
    for (int64_t k = 0; k < rows; k++) {
      const std::vector<IntExpr> dims = axes_.dims(c_, next_.m + floorDiv(step, sharing) * rows + k, from, batch_);
      // Lines of rows that are a power of two apart compete for few places in the first cache.
      builder_.prefetch(lowering_.tensorParam(in), positionOf(c_, in, dims), share, 2);
    }
  }
}

// -- GPU --------------------------------------------------------------------------------------------------------------

// Each warp reads, and writes, whole lines of 128 bytes of several rows. A block reads 256 bytes of a row. Blocks that run at the same time follow
// each other along M, so what they write lies together. Of 130 choices these were the fastest on an H200, for 2 and for 4 bytes.
void TransposeWriter::onGpu() {
  lowering_.declareTensors();
  constexpr int64_t kLeastSide = 8;
  constexpr int64_t kWarps = 16;
  const int64_t bytes = widest();
  const int64_t sides[2] = {
      std::clamp(powerAtLeast(usualExtent(axes_.M)), kLeastSide, std::clamp<int64_t>(128 / bytes, 64, 128)),
      std::clamp(powerAtLeast(usualExtent(axes_.N)), kLeastSide, std::clamp<int64_t>(256 / bytes, 32, 128))};
  const auto vectorOf = [&](const IntExpr& extent, int64_t divisor) {
    int64_t v = std::max<int64_t>(1, device_.gpu.accessBytes / bytes);
    while (v > 1 && (!extent.divisibleBy(v) || divisor % v != 0)) {
      v /= 2;
    }
    return v;
  };
  const IntExpr parts[2] = {ceilDiv(axes_.M, sides[0]), ceilDiv(axes_.N, sides[1])};
  builder_.gridDim("p2", parts[1]);
  builder_.gridDim("p1", parts[0]);
  // The digits of both axes, where accesses lie along the axis `along`.
  const auto digits = [&](int64_t along, int64_t v) {
    const int64_t lanes = std::min({int64_t{32}, std::max<int64_t>(kWarpRunBytes / (v * bytes), 1), sides[along] / v});
    const int64_t others = sides[1 - along];
    const int64_t otherLanes = std::min(32 / lanes, others);
    const int64_t warps = std::min(kWarps, others / otherLanes);
    std::vector<Specs> specs(2);
    const auto add = [](Specs& to, Level level, int64_t size) {
      if (size > 1) {
        to.push_back({level, size});
      }
    };
    for (int64_t axis : {0, 1}) {
      specs[axis].push_back({Level::Part, parts[axis], axis == 0 ? "p1" : "p2"});
    }
    add(specs[along], Level::Repeat, sides[along] / (lanes * v));
    add(specs[along], Level::Lane, lanes);
    add(specs[along], Level::Vector, v);
    add(specs[1 - along], Level::Repeat, others / (otherLanes * warps));
    add(specs[1 - along], Level::Warp, warps);
    add(specs[1 - along], Level::Lane, otherLanes);
    return specs;
  };
  const std::vector<Specs> reading = digits(1, vectorOf(axes_.N, axes_.divisorAlongN));
  const std::vector<Specs> writing = digits(0, vectorOf(axes_.M, axes_.divisorAlongM));
  read_ = space("s", "m", axes_.M, reading[0], "n", reading[1]);
  write_ = space("t", "mt", axes_.M, writing[0], "nt", writing[1]);
  for (const TensorView* tensor : axes_.exchanged) {
    const ValueId value = lowering_.value(tensor, position(tensor, read_), read_.id);
    lowering_.provide(tensor, position(tensor, write_), write_.id, builder_.convert(value, write_.id));
  }
  storeOutputs(read_, true);
  storeOutputs(write_, false);
}

}  // namespace meshfuse
