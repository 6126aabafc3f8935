// How axes are cut on a GPU: accesses of up to 16 bytes, a warp on contiguous memory, rows in registers where they fit.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "ir/fusion.h"
#include "schedule/extents.h"
#include "schedule/rows.h"

namespace meshfuse {

namespace {

using tile::Level;
using Specs = std::vector<tile::Builder::DigitSpec>;

int64_t ceilPower(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}

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

// Elements of the widest access: 16 bytes of the widest type that carries traffic, as far as N is divisible.
int64_t vectorOf(const Group& group, const KernelAxes& a) {
  int64_t widest = 1;
  for (const TensorView* tv : tensorsOf(group)) {
    widest = std::max(widest, dataTypeSize(tv->dtype()));
  }
  int64_t v = 16 / widest;
  while (v > 1 && !a.N.divisibleBy(v)) {
    v /= 2;
  }
  return v;
}

// Steps of a thread beside its vector: four, but at most 32 elements in all (vectors of bytes have 16).
int64_t repeatsBeside(int64_t v) { return std::min<int64_t>(4, 32 / v); }

Specs inParts(RowDigits& d, const std::string& symbol, const IntExpr& extent, const Step& step) {
  IntExpr count = ceilDiv(extent, step.width());
  d.grid.push_back({symbol, count});
  return within({{Level::Part, count, symbol}}, step);
}

void pointwise(RowDigits& d, const KernelAxes& a, int64_t v) {
  int64_t vectors = divideUp(usualExtent(a.N), v);
  int64_t lanes = std::min<int64_t>(32, ceilPower(vectors));
  int64_t warps = std::min<int64_t>(4, ceilPower(divideUp(vectors, lanes)));
  int64_t repeats = a.M.isConst(1) && vectors >= 4 * lanes * warps ? repeatsBeside(v) : 1;
  if (!a.M.isConst(1)) {
    int64_t rowRepeats = usualExtent(a.M) >= 1024 ? repeatsBeside(v) : 1;
    d.m = inParts(d, "p0", a.M, {.repeats = rowRepeats, .warps = 4 / warps, .lanes = 32 / lanes});
  }
  d.n = inParts(d, "p1", a.N, {.repeats = repeats, .warps = warps, .lanes = lanes, .vector = v});
}

void inner(RowDigits& d, const Group& group, const KernelAxes& a, int64_t v) {
  int64_t perThread = group.inputs.size() > 2 ? 16 : 32;
  int64_t vectors = divideUp(std::max<int64_t>(1, usualExtent(a.N)), v);
  int64_t threads = std::min<int64_t>(1024, ceilPower(divideUp(vectors, std::max<int64_t>(1, perThread / v))));
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
  if (!a.M.isConst(1)) {
    d.m = inParts(d, "p0", a.M, {.warps = std::max<int64_t>(1, 4 / warps), .lanes = 32 / lanes});
  }
}

void outer(RowDigits& d, const KernelAxes& a, int64_t v) {
  int64_t lanes = std::min<int64_t>(8, ceilPower(divideUp(usualExtent(a.N), v)));
  d.n = inParts(d, "p1", a.N, {.lanes = lanes, .vector = v});
  const Step rows{.repeats = repeatsBeside(v), .warps = 8, .lanes = 32 / lanes};
  d.k = within(summing(divideUp(usualExtent(a.K), rows.width()), 1, rows.width()), rows);
  if (!a.M.isConst(1)) {
    d.m = inParts(d, "p0", a.M, {});
  }
}

}  // namespace

RowDigits gpuDigits(const Group& group, const Coordinates& c, const KernelAxes& a) {
  RowDigits d;
  int64_t v = vectorOf(group, a);
  if (!c.hasReduction()) {
    pointwise(d, a, v);
  } else if (a.innerReduced) {
    inner(d, group, a, v);
  } else {
    outer(d, a, v);
  }
  return d;
}

}  // namespace meshfuse
