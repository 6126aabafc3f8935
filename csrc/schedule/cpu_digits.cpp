// How axes are cut on a CPU: parts of about 16K elements, vectors of 16, two or four of them interleaved.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "base/ranges.h"
#include "base/rounding.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "schedule/extents.h"
#include "schedule/rows.h"

namespace meshfuse {

namespace {

using tile::Level;
using Specs = std::vector<tile::Builder::DigitSpec>;

constexpr int64_t kVector = 16;
constexpr int64_t kPartElements = 16384;
constexpr int64_t kMaxParts = 4096;        // whose sums the last one adds up
constexpr int64_t kRegisterRow = 128;      // rows up to this stay in registers from sweep to sweep
constexpr int64_t kShortRow = 512;         // elements
constexpr int64_t kScratchColumns = 1024;  // columns of one part of an outer reduction

// Of kernels of rows that sum columns too: the last part adds up the sums of all parts.
constexpr int64_t kRowsOfColumns = 16;  // at least, of a part
constexpr int64_t kMinColumnParts = 16;
constexpr int64_t kMaxColumnParts = 64;

constexpr int64_t kPipelineStages = 2;  // more of them have more sums and rows in hand than there are registers
constexpr int64_t kPipelineRows = 64;   // of a part: two or three more rows are computed and not stored
constexpr int64_t kAhead = 2048;        // elements by which a flat loop prefetches

Specs prefixed(Specs outer, const Specs& inner) {
  append(outer, inner);
  return outer;
}

Specs vectors(int64_t interleave) {
  const Specs vector = {{Level::Vector, kVector, ""}};
  return interleave > 1 ? prefixed({{Level::Repeat, interleave, ""}}, vector) : vector;
}

// An axis cut into parts of `chunk` positions, run through serially in steps of the inner digits' extent.
Specs inParts(RowDigits& d, const std::string& symbol, const IntExpr& extent, int64_t chunk, int64_t step,
              const Specs& inner) {
  int64_t steps = std::max<int64_t>(1, divideUp(chunk, step));
  IntExpr count = ceilDiv(extent, steps * step);
  d.grid.push_back({symbol, count});
  return prefixed({{Level::Part, count, symbol}, {Level::Serial, steps, ""}}, inner);
}

// Parts of an axis that is summed.
struct SummedParts {
  int64_t chunk = 1;  // positions of a part
  int64_t step = 1;   // positions of the inner digits
  int64_t lanes = 1;  // sums beside each other in each part
};

// The same, for an axis that is summed, in parts that the symbol p0 counts.
Specs inSummedParts(RowDigits& d, const IntExpr& extent, const SummedParts& parts, const Specs& inner) {
  const int64_t steps = std::max<int64_t>(1, divideUp(parts.chunk, parts.step));
  const Specs sums = summingPart(steps, 1, parts.lanes * divideUp(usualExtent(extent), steps * parts.step));
  const int64_t all = productOf(sums, [](const auto& d) { return d.size.constValue(); });
  const IntExpr count = ceilDiv(extent, all * parts.step);
  d.grid.push_back({"p0", count});
  return prefixed(prefixed({{Level::Part, count, "p0"}}, sums), inner);
}

// Several rows of at most as many elements stay in the second cache.
int64_t cachedRow(const DeviceInfo& device) { return device.l2Bytes / 8 / dataTypeSize(DataType::Float); }

// Whether the second cache holds the next row of all inputs beside this one. A row that does not stay there for the last sweep is read from
// the third cache then, which costs less than to wait for memory in the first sweep. A kernel of one sweep does not wait.
bool hasRoomForNextRow(const Group& group, const Coordinates& c, int64_t row, const DeviceInfo& device) {
  const int64_t bytes =
      sumOf(group.inputs, [&](const TensorView* in) { return c.isSpread(in) ? row * dataTypeSize(in->dtype()) : 0; });
  return row <= cachedRow(device) || ((c.stages > 1 || c.spreadOutputs()) && 2 * bytes <= device.l2Bytes);
}

// Data that fits the second cache is often there already; prefetching would then cost a tenth of the time.
bool outgrowsCache(int64_t elements, const DeviceInfo& device) {
  return elements > device.l2Bytes / dataTypeSize(DataType::Float);
}

// Vectors of a cache line.
int64_t vectorsOfLine(const Group& group) {
  const int64_t narrowest =
      std::ranges::min(mapped(tensorsOf(group), [](const TensorView* tv) { return dataTypeSize(tv->dtype()); }));
  return std::max<int64_t>(1, kLineBytes / (kVector * narrowest));
}

// Whether all it does with what it reads in order takes less time than the reads: no functions, random numbers or lookups.
bool waitsForMemory(const Group& group) {
  return !isCostly(group) && std::ranges::none_of(group.exprs, [](const Expr* e) {
    return e->kind() == ExprKind::Random || isIndexing(*e);
  });
}

void pointwise(RowDigits& d, const Group& group, const KernelAxes& a, int64_t interleave, const DeviceInfo& device) {
  int64_t rows = usualExtent(a.M);
  int64_t columns = usualExtent(a.N);
  const bool ahead = outgrowsCache(rows * columns, device);
  if (ahead && waitsForMemory(group)) {
    // Reads and streaming stores that alternate line by line keep the line fill buffers in use.
    interleave = std::min(interleave, vectorsOfLine(group));
  }
  if (!a.N.isConst() && isKnownExtent(a.N) && columns <= kShortRow && a.N.divisibleBy(kVector)) {
    // Vectors beside each other that may be outside of the row cost more than a loop over one that is not.
    interleave = std::gcd(interleave, a.N.divisor() / kVector);
  }
  const int64_t step = kVector * interleave;
  d.prefetchAhead = ahead ? kAhead : 0;
  if (a.M.isConst(1) || (rows < 8 && columns > 4 * kPartElements)) {
    if (!a.M.isConst(1)) {
      d.m = inParts(d, "p0", a.M, 1, 1, {});
    }
    d.n = inParts(d, "p1", a.N, kPartElements, step, vectors(interleave));
    return;
  }
  d.m = inParts(d, "p0", a.M, std::max<int64_t>(1, kPartElements / std::max<int64_t>(1, columns)), 1, {});
  d.n = prefixed({{Level::Serial, 0, ""}}, vectors(interleave));
  d.prefetchRows = ahead && columns >= 512 && columns <= cachedRow(device);
}

// Few long rows, each part a share of all of them.
void innerInParts(RowDigits& d, const KernelAxes& a, int64_t interleave) {
  const int64_t columns = usualExtent(a.N);
  const int64_t step = kVector * interleave;
  const int64_t lanes = std::min(columns, step);
  d.split = true;
  if (!a.M.isConst(1)) {
    d.m = {{Level::Serial, 0, ""}};
  }
  if (a.K.isConst(1)) {
    const int64_t chunk = std::max(kPartElements, divideUp(columns, kMaxParts));
    d.n = inSummedParts(d, a.N, {.chunk = chunk, .step = step, .lanes = lanes}, vectors(interleave));
  } else {
    const int64_t chunk = std::clamp<int64_t>(kPartElements / columns, 1, kMaxParts);
    d.k = inSummedParts(d, a.K, {.chunk = chunk, .lanes = lanes}, {});
    d.n = prefixed(summing(divideUp(columns, step), 1, lanes), vectors(interleave));
  }
}

void inner(RowDigits& d, const Group& group, const Coordinates& c, const KernelAxes& a, int64_t interleave,
           const DeviceInfo& device) {
  int64_t rows = usualExtent(a.M);
  int64_t row = usualExtent(a.K) * usualExtent(a.N);
  bool simple = c.stages == 1 && !c.spreadOutputs();
  if (c.stages == 1 && !c.lateOutputs && rows < kFewRows && row >= 4 * kPartElements) {
    innerInParts(d, a, interleave);
    return;
  }
  bool pipelined = !simple && c.stages <= kPipelineStages && isCostly(group) && a.K.isConst(1) && row >= 512 &&
                   row <= 2 * cachedRow(device) && rows >= 4 * kPipelineRows && !c.earlyOutputs;
  if (pipelined) {
    d.pipelineRows = kPipelineRows;
    d.grid.push_back({"p0", ceilDiv(a.M, kPipelineRows)});
    d.n = prefixed(summing(divideUp(row, 2 * kVector), 1, 2 * kVector), vectors(2));
    d.spill = true;
    d.prefetchRows = outgrowsCache(rows * row, device);
    return;
  }
  if (!c.columns.empty()) {
    const int64_t few = std::min(kPartElements / std::max<int64_t>(1, row), rows / kMinColumnParts);
    const int64_t chunk = std::max({kRowsOfColumns, few, divideUp(rows, kMaxColumnParts)});
    d.scratchRow = d.split = true;
    d.m = inSummedParts(d, a.M, {.chunk = chunk}, {});
  } else if (!a.M.isConst(1)) {
    d.m = inParts(d, "p0", a.M, std::max<int64_t>(1, kPartElements / std::max<int64_t>(1, row)), 1, {});
  }
  if (const std::optional<int64_t> most = a.N.upper(); most && *most <= kRegisterRow && a.K.isConst(1)) {
    d.n = vectors(divideUp(std::max<int64_t>(1, *most), kVector));
    return;
  }
  const int64_t steps = divideUp(usualExtent(a.N), kVector * interleave);
  const int64_t lanes = std::min(usualExtent(a.N), kVector * interleave);
  if (!a.K.isConst(1)) {
    d.k = summing(usualExtent(a.K), steps, lanes);
  }
  d.n = prefixed(summing(steps, 1, lanes), vectors(interleave));
  d.spill = row <= 2 * cachedRow(device);
  d.prefetchRows = hasRoomForNextRow(group, c, row, device) && row >= 512 && outgrowsCache(rows * row, device);
}

void outer(RowDigits& d, const Coordinates& c, const KernelAxes& a, int64_t interleave) {
  bool simple = c.stages == 1 && !c.spreadOutputs();
  int64_t columns = usualExtent(a.N);
  int64_t rows = usualExtent(a.K);
  if (!a.M.isConst(1)) {
    d.m = inParts(d, "p0", a.M, 1, 1, {});
  }
  if (simple && a.M.isConst(1) && columns <= kScratchColumns && rows * columns >= 8 * kPartElements) {
    d.scratchRow = true;
    d.split = true;
    const int64_t together =
        columns <= kVector ? 16 : 4;  // a step of narrow rows is all loads and stores of the scratch row
    const int64_t chunk = std::max<int64_t>(together, 2 * kPartElements / columns);
    d.k = inSummedParts(d, a.K, {.chunk = chunk, .step = together}, {{Level::Repeat, together, ""}});
    d.n = prefixed({{Level::Serial, 0, ""}}, vectors(interleave));
    return;
  }
  if (!simple || columns * rows < kPartElements || columns < kVector) {
    d.n = inParts(d, "p1", a.N, kVector * interleave, kVector * interleave, vectors(interleave));
    d.k = summing(rows);
    return;
  }
  d.scratchRow = true;
  d.n = inParts(d, "p1", a.N, kScratchColumns, kVector * interleave, vectors(interleave));
  d.k = prefixed(summing(divideUp(rows, 4)), {{Level::Repeat, 4, ""}});
}

}  // namespace

RowDigits cpuDigits(const Group& group, const Coordinates& c, const KernelAxes& a, const DeviceInfo& device) {
  RowDigits d;
  // Chains of expensive ops need four interleaved vectors to use all execution units. Together with accumulators they would spill
  // registers, and compile for longer than a cold kernel may.
  int64_t interleave = std::min<int64_t>(c.hasReduction() && isCostly(group) ? 2 : 4,
                                         std::max<int64_t>(1, divideUp(usualExtent(a.N), kVector)));
  if (!c.hasReduction()) {
    pointwise(d, group, a, interleave, device);
  } else if (a.innerReduced) {
    inner(d, group, c, a, interleave, device);
  } else {
    outer(d, c, a, interleave);
  }
  return d;
}

}  // namespace meshfuse
