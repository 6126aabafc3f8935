// How axes are cut on a GPU: accesses as wide as the GPU has them, a warp on contiguous memory, rows in registers where they fit, and parts
// enough for all multiprocessors.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <ranges>
#include <utility>

#include "base/ranges.h"
#include "base/rounding.h"
#include "ir/expr.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "schedule/extents.h"
#include "schedule/reads.h"
#include "schedule/rows.h"

namespace meshfuse {

namespace {

using tile::Level;
using Specs = std::vector<tile::Builder::DigitSpec>;

// The digits of one step over an axis.
struct Step {
  int64_t repeats = 1;
  int64_t warps = 1;
  int64_t lanes = 1;
  int64_t vector = 1;
  int64_t width() const { return repeats * warps * lanes * vector; }
};

// Digits of size 1 are left out.
Specs within(Specs outer, const Step& step) {
  for (auto [level, size] : {std::pair(Level::Repeat, step.repeats), std::pair(Level::Warp, step.warps),
                             std::pair(Level::Lane, step.lanes), std::pair(Level::Vector, step.vector)}) {
    if (size > 1) {
      outer.push_back({level, size, ""});
    }
  }
  return outer;
}

// Whether the position of a tensor is known to change along dims of an axis.
bool movesAlong(const std::vector<int64_t>& axis, const Coordinates& c, const TensorView* tv) {
  const auto position = c.index.find(tv->id());
  return position != c.index.end() &&
         std::ranges::any_of(axis, [&](int64_t d) { return runsOver(position->second, d); });
}

// Whether the accesses of a tensor are known to move along n and from row to row: it is neither an index or a mean of a row, nor a bias of
// all rows, which caches hold.
bool carriesTraffic(const Coordinates& c, const KernelAxes& a, const TensorView* tv) {
  return movesAlong(a.n, c, tv) && (movesAlong(a.m, c, tv) || movesAlong(a.k, c, tv) || (a.m.empty() && a.k.empty()));
}

// Bytes of an element of the widest type that carries traffic; of all types if none does.
int64_t widestOf(const Group& group, const Coordinates& c, const KernelAxes& a) {
  int64_t widest = 0;
  int64_t widestOfAll = 1;
  for (const TensorView* tv : tensorsOf(group)) {
    const int64_t bytes = dataTypeSize(tv->dtype());
    widestOfAll = std::max(widestOfAll, bytes);
    widest = carriesTraffic(c, a, tv) ? std::max(widest, bytes) : widest;
  }
  return widest > 0 ? widest : widestOfAll;
}

// Elements of the widest access of the widest type, as far as N is divisible. Wider accesses than 16 bytes need memory that is aligned to
// them: in two halves, each would leave out half of the bytes that a warp fetches.
int64_t vectorOf(const Group& group, const KernelAxes& a, int64_t widest, const GpuFacts& gpu) {
  int64_t bytes = gpu.accessBytes;
  for (const TensorView* tv : tensorsOf(group)) {
    const auto layout = group.layouts.find(tv->id());
    bytes = layout != group.layouts.end() && layout->second.alignment < bytes ? 16 : bytes;
  }
  int64_t v = bytes / widest;
  while (v > 1 && !a.N.divisibleBy(v)) {
    v /= 2;
  }
  return v;
}

// Steps of a thread beside its vector, of a reduction: four, but at most 32 elements in all (vectors of bytes have 16).
int64_t repeatsBeside(int64_t v) { return std::clamp<int64_t>(32 / v, 1, 4); }

Specs inParts(RowDigits& d, const std::string& symbol, const IntExpr& extent, const Step& step) {
  IntExpr count = ceilDiv(extent, step.width());
  d.grid.push_back({symbol, count});
  return within({{Level::Part, count, symbol}}, step);
}

// With the positions of indices and of what they are computed from, and of tables as far as they move: along the dims of the result.
Coordinates withIndices(const Group& group, Coordinates c) {
  for (const Expr* e : std::views::reverse(group.exprs)) {
    const auto result = c.index.find(e->output()->id());
    if (result == c.index.end() || (readsElsewhere(*e) && !isIndexing(*e))) {
      continue;
    }
    for (int64_t k : indices(e->tensorInputs())) {
      const TensorView* tv = e->tensorInputs()[k];
      c.index.insert({tv->id(), !isIndexing(*e)    ? readBy(*e, k, result->second, std::identity()).at
                                : k == tableOf(*e) ? result->second
                                                   : stretched(tv->shape(), positionOfIndex(*e, result->second))});
    }
  }
  return c;
}

// Whether rows have values of their own, such as an index, and share none, such as a bias: a thread then takes its vectors from one row.
bool rowsShareNothing(const Group& group, const Coordinates& c, const KernelAxes& a) {
  const std::vector<TensorView*> tensors = tensorsOf(group);
  return std::ranges::any_of(tensors, [&](const TensorView* tv) { return !movesAlong(a.n, c, tv); }) &&
         std::ranges::none_of(tensors,
                              [&](const TensorView* tv) { return movesAlong(a.n, c, tv) && !movesAlong(a.m, c, tv); });
}

// Whether nothing of a row but an index can be read at once: all else is read where that index says. `all` has the positions of indices too.
bool rowsWaitForIndex(const Group& group, const Coordinates& c, const Coordinates& all, const KernelAxes& a,
                      const std::vector<Expr*>& indexing) {
  const auto waits = [&](const Expr* e) {
    const TensorView* index = e->input(indexOf(*e))->asTensor();
    return movesAlong(a.m, all, index) && !movesAlong(a.n, all, index);
  };
  const auto isTable = [&](const TensorView* tv) {
    return std::ranges::any_of(indexing, [&](const Expr* e) { return e->input(tableOf(*e)) == tv; });
  };
  const auto isReadAtOnce = [&](const TensorView* tv) {
    return movesAlong(a.n, c, tv) || (!isTable(tv) && usualElements(*tv) > usualExtent(a.M));
  };
  return !indexing.empty() && std::ranges::all_of(indexing, waits) && std::ranges::none_of(group.inputs, isReadAtOnce);
}

// Steps of a thread beside its vector: two, where the vectors are enough for all threads that the GPU runs at a time. With four an addition
// was 6 % slower on an H200, with one a gelu of 16 bits 1 %. A row that waits for its index has four, so that all its loads are on their way
// at once.
void pointwise(RowDigits& d, const Group& group, const Coordinates& c, const KernelAxes& a, int64_t v,
               const GpuFacts& gpu) {
  const std::vector<Expr*> indexing = filtered(group.exprs, [](const Expr* e) { return isIndexing(*e); });
  int64_t vectors = divideUp(usualExtent(a.N), v);
  int64_t lanes = std::min<int64_t>(32, powerAtLeast(vectors));
  int64_t warps = std::min<int64_t>(4, powerAtLeast(divideUp(vectors, lanes)));
  const Coordinates all = indexing.empty() ? c : withIndices(group, c);
  const bool shareNothing = rowsShareNothing(group, all, a);
  const auto fillsGpu = [&](int64_t r) { return usualExtent(a.M) * vectors >= r * gpu.processors * gpu.threads; };
  const auto fillsRow = [&](int64_t r) { return shareNothing && vectors % (r * warps * lanes) == 0; };
  const bool takesFour = fillsGpu(4) && fillsRow(4) && rowsWaitForIndex(group, c, all, a, indexing);
  const int64_t repeats = takesFour ? 4 : fillsGpu(2) ? 2 : 1;
  const bool inOneRow = a.M.isConst(1) || fillsRow(repeats);
  if (!a.M.isConst(1)) {
    const int64_t rowRepeats = inOneRow ? 1 : std::min(repeats, powerAtMost(usualExtent(a.M)));
    d.m = inParts(d, "p0", a.M, {.repeats = rowRepeats, .warps = 4 / warps, .lanes = 32 / lanes});
  }
  d.n = inParts(d, "p1", a.N, {.repeats = inOneRow ? repeats : 1, .warps = warps, .lanes = lanes, .vector = v});
}

constexpr int64_t kMostThreads = 1024;   // of a block
constexpr int64_t kOtherRegisters = 32;  // of a thread, beside the elements of its rows
constexpr int64_t kSplitWarps = 8;
constexpr int64_t kSweptRows = 16;  // which each part of a long reduction sweeps one after the other

// Elements of a row that a thread of a block of this size holds in registers, for each of `inputs` inputs.
int64_t heldElements(int64_t threads, int64_t inputs, const GpuFacts& gpu) {
  const int64_t registers = std::min<int64_t>(255, gpu.registers / threads) - kOtherRegisters;
  return powerAtMost(registers / std::max<int64_t>(1, inputs));
}

// Parts into which a long reduction of `steps` steps is cut: a few for each multiprocessor, each of at least four steps.
int64_t splitParts(int64_t steps, const GpuFacts& gpu) {
  const int64_t resident = gpu.threads / (32 * kSplitWarps);  // blocks of a multiprocessor
  return std::clamp<int64_t>(steps / 4, 1, gpu.processors * std::min<int64_t>(resident, 4));
}

// An axis that is summed in parts, each in steps of the inner digits.
Specs inSummedParts(RowDigits& d, const IntExpr& extent, const Step& step, int64_t sums, const GpuFacts& gpu) {
  const int64_t steps = divideUp(usualExtent(extent), step.width());
  const int64_t parts = splitParts(steps, gpu);
  const Specs serial = summingPart(divideUp(steps, parts), 1, sums * parts);
  const int64_t each = step.width() * productOf(serial, [](const auto& s) { return s.size.constValue(); });
  const IntExpr count = ceilDiv(extent, each);
  d.split = true;
  d.grid.push_back({"p0", count});
  Specs digits = {{Level::Part, count, "p0"}};
  append(digits, serial);
  return within(std::move(digits), step);
}

// Few long rows, each part a share of all of them.
bool innerInParts(RowDigits& d, const KernelAxes& a, int64_t v, const GpuFacts& gpu) {
  const Step step{.repeats = repeatsBeside(v), .warps = kSplitWarps, .lanes = 32, .vector = v};
  const bool isLong = a.K.isConst(1) && splitParts(divideUp(usualExtent(a.N), step.width()), gpu) > 1;
  if (!isLong || !a.M.isConst() || usualExtent(a.M) > kSweptRows) {
    return false;
  }
  if (!a.M.isConst(1)) {
    d.m = {{Level::Serial, 0, ""}};
  }
  d.n = inSummedParts(d, a.N, step, step.width(), gpu);
  return true;
}

// Inputs that have elements along a row.
int64_t spreadInputs(const Group& group, const Coordinates& c) {
  return std::ranges::count_if(group.inputs, [&](const TensorView* in) { return c.isSpread(in); });
}

// Elements of a row of each input that a thread takes: 32 bytes, since more leave fewer rows on their way to a multiprocessor; 64 bytes of a row
// that is only read and has them for a whole warp, for which the registers of all threads of a multiprocessor have room. More in rows for which the largest block has too few
// threads. Rows of 16-bit types that need more than 32 bytes are read once more instead: on an H200 a softmax of 32768 bfloat16 was 12 % faster
// so, one of 32768 Floats 21 % slower.
int64_t elementsOfThread(const Group& group, const Coordinates& c, int64_t widest, int64_t row, bool isOneDim) {
  const bool onlyReadsOne = !c.spreadOutputs() && spreadInputs(group, c) == 1;
  const bool isWide = widest >= 4 && row * widest >= 32 * 64;
  const int64_t bytes = isOneDim && isWide && onlyReadsOne ? 64 : 32;
  const int64_t usual = std::max<int64_t>(1, bytes / widest);
  const int64_t most = widest < 4 ? usual : group.inputs.size() > 2 ? 16 : 32;
  return std::clamp(powerAtLeast(divideUp(row, kMostThreads)), usual, std::max(usual, most));
}

// Of kernels of rows that sum columns too.
constexpr int64_t kColumnThreads = 512;  // of a block: each holds its columns' sums beside its elements of a row
constexpr int64_t kRowsOfSums = 8;       // at least, of a part, whose sums are written and read once more
constexpr int64_t kRowsOfOneSum = 64;    // at most, of a part that sums its rows without blocks, see summingPart()

// Registers for each element of a row that a thread holds: inputs and sums of columns, and those of a block of rows beside if a part has many.
int64_t heldBesideColumns(const Group& group, const Coordinates& c, const KernelAxes& a, int64_t widest,
                          const GpuFacts& gpu) {
  const int64_t parts = std::max<int64_t>(1, gpu.processors * gpu.threads / 2 / kColumnThreads);
  const int64_t levels = usualExtent(a.M) > kRowsOfOneSum * parts ? 2 : 1;
  return divideUp<int64_t>(widest, 4) * (spreadInputs(group, c) + levels * std::ssize(c.columns));
}

// Rows in parts for as many blocks as run at a time, half of the threads of each multiprocessor, in groups of about as many parts as there are
// groups. `rows`: the warps and lanes that take rows beside each other; `threads`: of a block.
void rowsInGroups(RowDigits& d, const KernelAxes& a, const Step& rows, int64_t threads, const GpuFacts& gpu) {
  const int64_t most = std::max<int64_t>(1, gpu.processors * gpu.threads / 2 / threads);
  const int64_t steps = divideUp(std::max(kRowsOfSums, divideUp(usualExtent(a.M), most)), rows.width());
  const int64_t parts = divideUp(usualExtent(a.M), steps * rows.width());
  int64_t ofGroup = rows.width();
  while (ofGroup * ofGroup < parts) {
    ofGroup *= 2;
  }
  const Specs serial = summingPart(steps, 1, rows.width() * parts);
  const int64_t each = rows.width() * productOf(serial, [](const auto& s) { return s.size.constValue(); });
  const IntExpr groups = ceilDiv(a.M, each * ofGroup);
  d.split = true;
  d.grid = {{"p0", groups}, {"p1", ofGroup}};
  d.m = {{Level::Part, groups, "p0"}, {Level::Part, ofGroup, "p1"}};
  append(d.m, serial);
  d.m = within(std::move(d.m), rows);
}

void inner(RowDigits& d, const Group& group, const Coordinates& c, const KernelAxes& a, int64_t widest, int64_t v,
           const GpuFacts& gpu) {
  const int64_t row = usualExtent(a.N);
  const int64_t vectors = divideUp(std::max<int64_t>(1, row), v);
  const int64_t most = c.columns.empty() ? kMostThreads : kColumnThreads;
  const auto threadsFor = [&](int64_t elements) {
    return std::min(most, powerAtLeast(divideUp(vectors, std::max<int64_t>(1, elements / v))));
  };
  // Sums of columns are as wide as Floats at least.
  int64_t perThread = c.columns.empty()
                          ? elementsOfThread(group, c, widest, row, a.K.isConst(1))
                          : std::max({v, 32 / std::max<int64_t>(4, widest), powerAtLeast(divideUp(row, most))});
  const int64_t held = c.columns.empty() ? std::ssize(group.inputs) : heldBesideColumns(group, c, a, widest, gpu);
  perThread = std::min(perThread, heldElements(threadsFor(perThread), held, gpu));
  int64_t threads = threadsFor(perThread);
  int64_t repeats = divideUp(vectors, threads);
  int64_t lanes = std::min<int64_t>(32, threads);
  int64_t warps = std::max<int64_t>(1, threads / 32);
  Specs loops;
  if (repeats * v > perThread || !a.K.isConst(1)) {
    repeats = std::min<int64_t>(repeats, std::max<int64_t>(1, 8 / v));
    const int64_t steps = divideUp(vectors, repeats * threads);
    const int64_t sums = repeats * threads * v;
    loops = summing(steps, 1, sums);
    if (!a.K.isConst(1)) {
      d.k = summing(usualExtent(a.K), steps, sums);
    }
  }
  d.n = within(std::move(loops), {.repeats = repeats, .warps = warps, .lanes = lanes, .vector = v});
  const Step rows{.warps = std::max<int64_t>(1, 4 / warps), .lanes = 32 / lanes};
  if (!c.columns.empty()) {
    rowsInGroups(d, a, rows, lanes * warps * rows.width(), gpu);
  } else if (!a.M.isConst(1)) {
    d.m = inParts(d, "p0", a.M, rows);
  }
}

void outer(RowDigits& d, const KernelAxes& a, int64_t v, bool isSimple, const GpuFacts& gpu) {
  int64_t lanes = std::min<int64_t>(8, powerAtLeast(divideUp(usualExtent(a.N), v)));
  const Step columns{.lanes = lanes, .vector = v};
  const Step rows{.repeats = repeatsBeside(v), .warps = kSplitWarps, .lanes = 32 / lanes};
  const int64_t steps = divideUp(usualExtent(a.K), rows.width());
  // too few columns for all multiprocessors
  const bool isNarrow = divideUp(usualExtent(a.N), columns.width()) < gpu.processors;
  if (isSimple && isNarrow && a.M.isConst(1) && splitParts(steps, gpu) > 1) {
    d.k = inSummedParts(d, a.K, rows, rows.width(), gpu);
  } else {
    d.k = within(summing(steps, 1, rows.width()), rows);
  }
  d.n = inParts(d, "p1", a.N, columns);
  if (!a.M.isConst(1)) {
    d.m = inParts(d, "p0", a.M, {});
  }
}

}  // namespace

RowDigits gpuDigits(const Group& group, const Coordinates& c, const KernelAxes& a, const DeviceInfo& device) {
  RowDigits d;
  const GpuFacts& gpu = device.gpu;
  const int64_t widest = widestOf(group, c, a);
  const int64_t v = vectorOf(group, a, widest, gpu);
  const bool isSimple = c.stages == 1 && !c.spreadOutputs();
  if (!c.hasReduction()) {
    pointwise(d, group, c, a, v, gpu);
  } else if (!a.innerReduced) {
    outer(d, a, v, isSimple, gpu);
  } else if (!isSimple || !innerInParts(d, a, v, gpu)) {
    inner(d, group, c, a, widest, v, gpu);
  }
  return d;
}

}  // namespace meshfuse
