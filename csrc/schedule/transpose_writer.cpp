#include "schedule/transpose_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <ranges>

#include "base/ranges.h"
#include "base/rounding.h"
#include "digits/row_major.h"
#include "ir/fusion.h"
#include "schedule/axes.h"
#include "schedule/extents.h"
#include "schedule/streamed_reads.h"

namespace meshfuse {

using tile::Level;
using tile::ValueId;

namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kStreamedRunBytes = 128;  // of a block in one row of a result
constexpr int64_t kCachedRun = 256;         // positions of either axis
constexpr int64_t kEnoughParts = 32;        // more would only start more often
constexpr int64_t kElementsOfPart = 32768;
constexpr int64_t kStoredTogether = 8;  // vectors
constexpr int64_t kWarpRunBytes = 128;  // of a warp in one row

std::vector<tile::Builder::DigitSpec> within(std::vector<tile::Builder::DigitSpec> outer,
                                             const std::vector<tile::Builder::DigitSpec>& inner) {
  append(outer, inner);
  return outer;
}

}  // namespace

TransposeBlocks cpuBlocks(const TransposeAxes& axes, int64_t bytesAlongM, int64_t bytesAlongN, bool streams) {
  const int64_t m = usualExtent(axes.M);
  const int64_t n = usualExtent(axes.N);
  TransposeBlocks b;
  b.vector = std::clamp<int64_t>(kLineBytes / std::max(bytesAlongM, bytesAlongN), 8, 16);
  const auto within = [&](int64_t extent, int64_t most) { return std::min(most, roundUp(extent, b.vector)); };
  b.rows = within(m, streams ? kStreamedRunBytes / bytesAlongM : kCachedRun);
  b.columns = within(n, streams ? kPageBytes / bytesAlongN : kCachedRun);
  b.inPart = streams ? divideUp(std::min(m, kPageBytes / bytesAlongM), b.rows) : 1;
  const auto fewParts = [&] {
    return usualExtent(axes.B) * divideUp(m, b.rows * b.inPart) * divideUp(n, b.columns) < kEnoughParts &&
           b.rows * b.inPart * b.columns > kElementsOfPart;
  };
  while (fewParts() && b.inPart > 1) {
    b.inPart = divideUp(b.inPart, 2);
  }
  while (fewParts() && b.columns % (2 * b.vector) == 0) {
    b.columns /= 2;
  }
  return b;
}

TransposeWriter::TransposeWriter(const Group& group, const Coordinates& coordinates, const TransposeAxes& axes,
                                 const DeviceInfo& device)
    : group_(group),
      device_(device),
      builder_("transpose", device.target),
      lowering_(group, builder_, plan_),
      c_(lowering_.withNames(coordinates)),
      axes_(axes) {
  for (IntExpr* extent : {&axes_.M, &axes_.N, &axes_.B}) {
    *extent = lowering_.size(*extent);
  }
  if (!axes_.B.isConst(1)) {
    batch_ = builder_.gridDim("p0", axes_.B);
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
  s.id = builder_.space(name, {{m, rows, std::move(ofM)}, {n, axes_.N, std::move(ofN)}});
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

bool TransposeWriter::streams(const TensorView* output) const { return isLarger(*output, device_.lastCacheBytes / 4); }

int64_t TransposeWriter::widest() const {
  return std::ranges::max(mapped(tensorsOf(group_), [](const TensorView* tv) { return dataTypeSize(tv->dtype()); }));
}

// -- CPU --------------------------------------------------------------------------------------------------------------

void TransposeWriter::onCpu() {
  chooseBlocks();
  lowering_.declareTensors(unaligned_);
  if (shifts_) {
    return writeShifted();
  }
  makeSpaces();
  const std::vector<int64_t> scratch = makeScratch();
  loop(write_.id, write_.axisOfM, serial(write_, write_.axisOfM, "block"), [&] {
    loop(read_.id, 1, serial(read_, 1, "ns"), [&] {
      if (lead_ > 0) {
        lowering_.loadWithin({{-1, read_.m}, {read_.m, axes_.M}});
      }
      readStrip(scratch);
      lowering_.loadWithin({});
      if (isStaged_) {
        lead_ == 0 ? writeStrip(scratch) : writeLines(scratch);
      }
    });
  });
}

void TransposeWriter::chooseBlocks() {
  const auto widestOf = [](const auto& tensors) {
    return std::ranges::max(mapped(tensors, [](const TensorView* tv) { return dataTypeSize(tv->dtype()); }));
  };
  const std::vector<TensorView*> outputsAlongM =
      filtered(group_.outputs, [&](const TensorView* tv) { return !contains(axes_.outputsAlongN, tv); });
  const bool streaming = std::ranges::all_of(outputsAlongM, [&](const TensorView* tv) { return streams(tv); });
  const int64_t written = widestOf(outputsAlongM);
  blocks_ = cpuBlocks(axes_, written, widestOf(axes_.inputsAlongN), streaming);
  unaligned_ = unalignedOutput();
  int64_t readAgain = 0;
  if (unaligned_ != nullptr) {
    lead_ = kLineBytes / dataTypeSize(unaligned_->dtype());
    shifts_ = lead_ == blocks_.vector;
    readAgain = shifts_ ? 0 : lead_;
    blocks_.inPart *= shifts_ ? divideUp(blocks_.rows, lead_) : 1;
    blocks_.rows = shifts_ ? lead_ : 2 * blocks_.rows - lead_;  // few rows are read twice
  }
  fetchesRows_ = streaming && blocks_.inPart > 1 &&
                 (blocks_.rows + readAgain) * std::ssize(axes_.inputsAlongN) > device_.followedStreams;
  isStaged_ = (lead_ > 0 && !shifts_) || (streaming && blocks_.vector * written < kLineBytes);
  fetchesAlongM_ = streaming && !isStaged_;
}

TransposeWriter::Specs TransposeWriter::partDigit(const IntExpr& extent, int64_t size, const char* grid) {
  const IntExpr parts = ceilDiv(extent, size);
  if (parts.isConst(1)) {
    return {};
  }
  builder_.gridDim(grid, parts);
  return {{Level::Part, parts, grid}};
}

TransposeWriter::Specs TransposeWriter::outerDigitsOfN() {
  return within(partDigit(axes_.N, blocks_.columns, "p2"), {{Level::Serial, blocks_.columns / blocks_.vector, "ns"}});
}

// The coordinate at which an axis begins in this part and in these loops.
IntExpr TransposeWriter::corner(const Space& of, int64_t axis, std::initializer_list<std::string_view> loops) const {
  IntExpr corner = 0;
  for (const tile::Digit& d : builder_.program().spaces[of.id].axes[axis].digits) {
    if (d.level == Level::Part || (d.level == Level::Serial && contains(loops, std::string_view(d.symbol)))) {
      corner = corner + IntExpr::symbol(d.symbol, factsBelow(d.size)) * d.stride;
    }
  }
  return corner;
}

// Three spaces share the loops over blocks and strips: a strip as it is read, turned in registers, and as it is written. A staged strip
// lies in scratch as it is written.
void TransposeWriter::makeSpaces() {
  const int64_t v = blocks_.vector;
  const int64_t rowsOfPart = blocks_.rows * blocks_.inPart;
  const IntExpr rows = lead_ == 0 ? axes_.M : ceilDiv(axes_.M + lead_ - 1, blocks_.rows) * blocks_.rows;
  const Specs outerM = within(partDigit(rows, rowsOfPart, "p1"), {{Level::Serial, blocks_.inPart, "block"}});
  const Specs outerN = outerDigitsOfN();
  // With a lead the rows of a block are numbered from its first row.
  const IntExpr readRows = lead_ == 0 ? axes_.M : IntExpr(blocks_.rows + lead_);
  const Specs stepM = {{Level::Serial, (blocks_.rows + lead_) / v, "ms"}};
  const Specs readM = lead_ == 0 ? within(outerM, stepM) : stepM;
  read_ = space("s", "m", readRows, within(readM, {{Level::Repeat, v}}), "n", within(outerN, {{Level::Vector, v}}));
  convert_ =
      space("u", "mu", readRows, within(readM, {{Level::Vector, v}}), "nu", within(outerN, {{Level::Repeat, v}}));
  write_ = convert_;
  if (isStaged_) {
    const int64_t rowSteps = blocks_.rows / v;
    const int64_t together = std::clamp<int64_t>(kStoredTogether / rowSteps, 1, 4);
    // n first: the vectors of a run of m are stored one after the other
    write_.id = builder_.space(
        "t", {{"nt", axes_.N, within(outerN, {{Level::Serial, v / together}, {Level::Repeat, together}})},
              {"mt", rows, within(outerM, {{Level::Serial, 1}, {Level::Repeat, rowSteps}, {Level::Vector, v}})}});
    write_.axisOfM = 1;
    write_.n = builder_.coord(write_.id, 0);
    write_.m = builder_.coord(write_.id, 1);
  }
  corner_ = {corner(write_, write_.axisOfM, {"block"}) - lead_, corner(read_, 1, {"ns"})};
  if (lead_ > 0) {
    read_.m += corner_.m;
    convert_.m += corner_.m;
    write_.m = write_.m - mod(offsetInOutput(write_.n), lead_);
  }
}

// Streaming stores need whole lines. If rows of the only result begin within lines, it is written by lines, which begin up to a line
// before the block: in registers if squares are as wide as lines, else through scratch. Where it is small, this costs more than it saves.
const TensorView* TransposeWriter::unalignedOutput() const {
  const TensorView* out = group_.outputs[0];
  const int64_t size = dataTypeSize(out->dtype());
  const bool isAlone = group_.outputs.size() == 1 && group_.aliases.empty() && !group_.layouts.contains(out->id());
  const bool isUnaligned = axes_.divisorAlongM * size % kLineBytes != 0;
  const bool isLong = isKnownExtent(axes_.M) && usualExtent(axes_.M) >= 4 * blocks_.rows;
  return isAlone && isUnaligned && isLong && streams(out) ? out : nullptr;
}

// The first element of a row, the positions of the result that have m = 0.
IntExpr TransposeWriter::offsetInOutput(const IntExpr& n) {
  const std::vector<IntExpr> strides =
      rowMajorStrides(mapped(unaligned_->shape(), [this](const IntExpr& size) { return lowering_.size(size); }));
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
      writeStrip(scratch);
      lowering_.loadWithin({});
    });
  };
  inLines({{0, part}, {end, axes_.M + 1}}, {});
  inLines({{part, 1}}, inRow);
  inLines({{axes_.M, end}}, inRow);
}

// One strip for each exchanged tensor. Its lines are padded: lines a power of two apart would fall into few sets of the cache. If lines
// are shifted, the last square of each strip.
std::vector<int64_t> TransposeWriter::makeScratch() {
  if (!isStaged_ && !shifts_) {
    return {};
  }
  const int64_t rows = shifts_ ? blocks_.columns : blocks_.vector;
  const int64_t length = shifts_ ? blocks_.vector : blocks_.rows + lead_;
  return mapped(indices(axes_.exchanged), [&](int64_t k) {
    const DataType type = axes_.exchanged[k]->dtype();
    const int64_t padding = shifts_ ? 0 : kLineBytes / dataTypeSize(type);
    return builder_.tensor({.name = fmt::format("e{}", k),
                            .dtype = type,
                            .memory = tile::Memory::Scratch,
                            .extents = {rows, length},
                            .strides = {length + padding, 1},
                            .alignment = kLineBytes});
  });
}

int64_t TransposeWriter::serial(const Space& of, int64_t axis, std::string_view symbol) const {
  const std::vector<tile::Digit>& digits = builder_.program().spaces[of.id].axes[axis].digits;
  return std::ranges::find(digits, symbol, &tile::Digit::symbol) - digits.begin();
}

// Square after square: into scratch, or to the results.
void TransposeWriter::readStrip(const std::vector<int64_t>& scratch) {
  loop(read_.id, 0, serial(read_, 0, "ms"), [&] {
    for (int64_t k : indices(axes_.exchanged)) {
      const TensorView* tensor = axes_.exchanged[k];
      const ValueId value = lowering_.value(tensor, position(tensor, read_), read_.id);
      const ValueId turned = builder_.convert(value, convert_.id);
      if (isStaged_) {
        builder_.store(scratch[k], {{convert_.n - corner_.n}, {convert_.m - corner_.m}}, turned);
      } else {
        lowering_.provide(tensor, position(tensor, write_), write_.id, turned);
      }
    }
    storeOutputs(read_, true);
    if (!isStaged_) {
      storeOutputs(write_, false);
    }
    if (fetchesRows_) {
      prefetchNext();
    }
    if (fetchesAlongM_) {
      prefetchAlongM();
    }
  });
}

void TransposeWriter::writeStrip(const std::vector<int64_t>& scratch) {
  const auto lastSerial = [&](int64_t axis) {
    const std::vector<tile::Digit>& digits = builder_.program().spaces[write_.id].axes[axis].digits;
    const auto found = std::ranges::find(digits.rbegin(), digits.rend(), Level::Serial, &tile::Digit::level);
    return digits.rend() - found - 1;
  };
  loop(write_.id, 0, lastSerial(0), [&] {
    loop(write_.id, 1, lastSerial(1), [&] {
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
  });
}

// A share of the rows of the next block for each square. A processor drops prefetches that are more than its misses under way.
void TransposeWriter::prefetchNext() {
  const auto digit = [&](int64_t axis, const char* symbol) {
    return builder_.program().spaces[read_.id].axes[axis].digits[serial(read_, axis, symbol)];
  };
  const tile::Digit strip = digit(1, "ns");
  const tile::Digit square = digit(0, "ms");
  const IntExpr step = IntExpr::symbol(strip.symbol, factsBelow(strip.size)) * square.size +
                       IntExpr::symbol(square.symbol, factsBelow(square.size));
  const int64_t steps = (strip.size * square.size).constValue();
  const int64_t rows = divideUp(blocks_.rows, steps);
  const int64_t sharing = std::max<int64_t>(1, steps / blocks_.rows);  // steps that bring in the same row
  const IntExpr firstColumn = corner_.n - IntExpr::symbol(strip.symbol, factsBelow(strip.size)) * strip.stride;
  const IntExpr firstRow = corner_.m + lead_ + blocks_.rows + floorDiv(step, sharing) * rows;
  for (const TensorView* in : axes_.inputsAlongN) {
    if (!c_.index.contains(in->id())) {
      continue;  // a window of it is read
    }
    const int64_t size = dataTypeSize(in->dtype());
    const bool isAligned = axes_.divisorAlongN * size % kLineBytes == 0;  // else a row ends one line later
    const int64_t share = divideUp(divideUp(blocks_.columns * size, kLineBytes) + (isAligned ? 0 : 1), sharing);
    const IntExpr from = firstColumn + mod(step, sharing) * (share * kLineBytes / size);
    for (int64_t k = 0; k < rows; k++) {
      const std::vector<IntExpr> dims = axes_.dims(c_, firstRow + k, from, batch_);
      // Lines of rows that are a power of two apart compete for few places in the first cache.
      builder_.prefetch(lowering_.tensorParam(in), positionOf(c_, in, dims), share, 2);
    }
  }
}

// Inputs along m have a line or two in each of many rows, which no processor foresees: the square of the next strip is fetched.
void TransposeWriter::prefetchAlongM() {
  const int64_t digit = serial(read_, 0, "ms");
  const tile::Digit square = builder_.program().spaces[read_.id].axes[0].digits[digit];
  const IntExpr m = corner_.m + IntExpr::symbol(square.symbol, factsBelow(square.size)) * square.stride;
  for (const TensorView* in : axes_.inputsAlongM) {
    for (int64_t k = 0; k < blocks_.vector && c_.index.contains(in->id()); k++) {
      const std::vector<IntExpr> dims = axes_.dims(c_, m, corner_.n + blocks_.vector + k, batch_);
      // Into the second cache, for the reason that prefetchNext gives.
      builder_.prefetch(lowering_.tensorParam(in), positionOf(c_, in, dims),
                        divideUp(blocks_.vector * dataTypeSize(in->dtype()), kLineBytes), 2);
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
