// How axes are cut on a GPU: accesses of up to 16 bytes, a warp on contiguous memory, rows in registers where they fit.
#include <algorithm>
#include <bit>

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

void push(Specs& s, Level level, int64_t size) {
  if (size > 1) {
    s.push_back({level, size, ""});
  }
}

// Elements of the widest access: 16 bytes of the widest type that carries traffic, as far as N is divisible.
int64_t vectorOf(const Group& group, const KernelAxes& a) {
  int widest = 1;
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

Specs inParts(RowDigits& d, const std::string& symbol, const IntExpr& extent, int64_t block, Specs inner) {
  IntExpr count = ceilDiv(extent, block);
  d.grid.push_back({symbol, count});
  inner.insert(inner.begin(), {Level::Part, count, symbol});
  return inner;
}

void pointwise(RowDigits& d, const KernelAxes& a, int64_t v) {
  int64_t vectors = divideUp(usualExtent(a.N), v);
  int64_t lanes = std::min<int64_t>(32, ceilPower(vectors));
  int64_t warps = std::min<int64_t>(4, ceilPower(divideUp(vectors, lanes)));
  int64_t repeats = a.M.isConst(1) && vectors >= 4 * lanes * warps ? repeatsBeside(v) : 1;
  Specs n;
  push(n, Level::Repeat, repeats);
  push(n, Level::Warp, warps);
  push(n, Level::Lane, lanes);
  push(n, Level::Vector, v);
  if (!a.M.isConst(1)) {
    Specs m;
    int64_t rowRepeats = usualExtent(a.M) >= 1024 ? repeatsBeside(v) : 1;
    push(m, Level::Repeat, rowRepeats);
    push(m, Level::Warp, 4 / warps);
    push(m, Level::Lane, 32 / lanes);
    d.m = inParts(d, "p0", a.M, rowRepeats * (4 / warps) * (32 / lanes), m);
  }
  d.n = inParts(d, "p1", a.N, repeats * warps * lanes * v, n);
}

void inner(RowDigits& d, const Group& group, const KernelAxes& a, int64_t v) {
  int64_t perThread = group.inputs.size() > 2 ? 16 : 32;
  int64_t vectors = divideUp(std::max<int64_t>(1, usualExtent(a.N)), v);
  int64_t threads = std::min<int64_t>(1024, ceilPower(divideUp(vectors, std::max<int64_t>(1, perThread / v))));
  int64_t repeats = divideUp(vectors, threads);
  int64_t lanes = std::min<int64_t>(32, threads);
  int64_t warps = std::max<int64_t>(1, threads / 32);
  Specs n;
  if (repeats * v > perThread || !a.K.isConst(1)) {
    repeats = std::min<int64_t>(repeats, std::max<int64_t>(1, 8 / v));
    const int64_t steps = divideUp(vectors, repeats * threads);
    n = summing(steps);
    if (!a.K.isConst(1)) {
      d.k = summing(usualExtent(a.K), steps);
    }
  }
  push(n, Level::Repeat, repeats);
  push(n, Level::Warp, warps);
  push(n, Level::Lane, lanes);
  push(n, Level::Vector, v);
  d.n = n;
  if (!a.M.isConst(1)) {
    int64_t rowWarps = std::max<int64_t>(1, 4 / warps);
    Specs m;
    push(m, Level::Warp, rowWarps);
    push(m, Level::Lane, 32 / lanes);
    d.m = inParts(d, "p0", a.M, rowWarps * (32 / lanes), m);
  }
}

void outer(RowDigits& d, const KernelAxes& a, int64_t v) {
  int64_t lanes = std::min<int64_t>(8, ceilPower(divideUp(usualExtent(a.N), v)));
  Specs n;
  push(n, Level::Lane, lanes);
  push(n, Level::Vector, v);
  d.n = inParts(d, "p1", a.N, lanes * v, n);
  const int64_t rows = repeatsBeside(v) * 8 * (32 / lanes);  // of a step
  Specs k = summing(divideUp(usualExtent(a.K), rows), repeatsBeside(v));
  push(k, Level::Repeat, repeatsBeside(v));
  push(k, Level::Warp, 8);
  push(k, Level::Lane, 32 / lanes);
  d.k = k;
  if (!a.M.isConst(1)) {
    d.m = inParts(d, "p0", a.M, 1, {});
  }
}

}  // namespace

DeviceInfo DeviceInfo::hopper() {
  DeviceInfo d;
  d.target = tile::Target::Gpu;
  d.lastCacheBytes = 50 << 20;
  d.architecture = "sm_90a";
  return d;
}

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
