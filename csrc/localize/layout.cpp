#include "localize/layout.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "multidevice/sharding/atoms.h"

namespace meshfuse {

namespace {

bool ownedBefore(const PlanDim& before, int atom) {
  return std::any_of(before.begin(), before.end(), [&](const PlanDigit& d) { return d.atom == atom; });
}

bool isCut(const PlanDigit& d) { return d.atom != kLocal; }

// The range of a slice in each dim.
struct Ranges {
  std::vector<IntExpr> starts, stops, steps;
  void add(const IntExpr& start, const IntExpr& stop, const IntExpr& step) {
    starts.push_back(start);
    stops.push_back(stop);
    steps.push_back(step);
  }
};

// Cuts the owned digits of a dim to one value each. The rest is one range of the dim if all cut digits are above the
// local ones or all are below them; otherwise returns false.
bool addWindow(const PlanDim& digits, const std::vector<IntExpr>& coordinates, Ranges& range) {
  IntExpr offset = 0;
  int64_t local = 1;
  int64_t size = 1;
  for (auto d = digits.rbegin(); d != digits.rend(); ++d) {
    if (isCut(*d)) {
      offset += coordinates[d->atom] * size;
    } else {
      local *= d->size;
    }
    size *= d->size;
  }
  if (std::ranges::is_partitioned(digits, isCut)) {
    range.add(offset, offset + local, 1);
    return true;
  }
  if (std::ranges::is_partitioned(digits, [](const PlanDigit& d) { return !isCut(d); })) {
    const int64_t step = size / local;
    range.add(offset, offset + (local - 1) * step + 1, step);
    return true;
  }
  return false;
}

}  // namespace

TensorView* localTensor(Fusion& local, DataType dtype, const std::vector<int64_t>& sizes) {
  std::vector<Dim> dims;
  for (int64_t n : sizes) {
    dims.push_back(localDim(n, IterType::Iteration));
  }
  return local.tensor(dtype, dims);
}

TensorView* nothing(Fusion& local, DataType dtype, const std::vector<int64_t>& sizes) {
  TensorView* out = localTensor(local, dtype, sizes);
  local.addExpr(ExprKind::Full, {zeroOf(local, dtype)}, {out});
  return out;
}

Dim localDim(const IntExpr& extent, IterType globalType) {
  if (globalType == IterType::Broadcast && extent.isConst(0)) {
    return {extent, IterType::Iteration};  // the one element is on another rank
  }
  return {extent, globalType == IterType::Iteration && extent.isConst(1) ? IterType::Broadcast : globalType};
}

Val* zeroOf(Fusion& local, DataType dtype) {
  if (isFloatingPoint(dtype)) {
    return local.scalar(0.0);
  }
  return dtype == DataType::Bool ? local.scalar(false) : local.intScalar(0);
}

TensorView* rearrange(TensorView* in, const std::vector<int64_t>& pieces, const std::vector<int>& order,
                      const std::vector<int64_t>& shape) {
  // Pieces that remain adjacent move as one piece; pieces of size 1 are skipped.
  std::vector<int> kept;
  for (int p : order) {
    if (pieces[p] != 1) {
      kept.push_back(p);
    }
  }
  std::vector<std::vector<int>> runs;  // in the new order
  for (int p : kept) {
    const auto gap = [&](int from) {
      return std::all_of(pieces.begin() + from + 1, pieces.begin() + p, [](int64_t n) { return n == 1; });
    };
    if (!runs.empty() && runs.back().back() < p && gap(runs.back().back())) {
      runs.back().push_back(p);
    } else {
      runs.push_back({p});
    }
  }
  std::vector<int> newToOld(runs.size());
  std::iota(newToOld.begin(), newToOld.end(), 0);
  std::sort(newToOld.begin(), newToOld.end(), [&](int a, int b) { return runs[a].front() < runs[b].front(); });
  // newToOld[k]: the run that is currently k-th in memory.
  std::vector<int64_t> sizes;
  std::vector<int> permutation(runs.size());
  for (size_t k = 0; k < newToOld.size(); k++) {
    int64_t n = 1;
    for (int p : runs[newToOld[k]]) {
      n *= pieces[p];
    }
    sizes.push_back(n);
    permutation[newToOld[k]] = static_cast<int>(k);
  }
  if (std::is_sorted(permutation.begin(), permutation.end())) {
    return addReshape(in, shape);
  }
  return addReshape(addPermute(addReshape(in, sizes), permutation), shape);
}

TensorView* takePart(TensorView* in, const Part& positions) {
  TensorView* out = in;
  // Slices dims with several runs one at a time, and all other dims in one slice.
  for (size_t k = 0; k < positions.dims.size(); k++) {
    if (positions.dims[k].size() < 2) {
      continue;
    }
    std::vector<Val*> parts;
    for (const IndexRun& r : positions.dims[k]) {
      std::vector<IntExpr> starts(positions.dims.size(), 0);
      std::vector<IntExpr> stops = out->shape();
      std::vector<IntExpr> steps(positions.dims.size(), 1);
      starts[k] = r.start;
      stops[k] = r.last() + 1;
      steps[k] = r.step;
      parts.push_back(addSlice(out, starts, stops, steps));
    }
    std::vector<Dim> dims = dimsOf(out);
    dims[k] = localDim(countOf(positions.dims[k]), IterType::Iteration);
    TensorView* joined = in->fusion().tensor(in->dtype(), dims);
    ExprAttributes attributes;
    attributes.dim = static_cast<int>(k);
    in->fusion().addExpr(ExprKind::Cat, std::move(parts), {joined}, attributes);
    out = joined;
  }
  Ranges ranges;
  bool changes = false;
  const std::vector<int64_t> shape = out->constantShape();
  for (size_t k = 0; k < positions.dims.size(); k++) {
    if (positions.dims[k].empty()) {
      ranges.add(0, 0, 1);
    } else if (positions.dims[k].size() == 1) {
      const IndexRun& r = positions.dims[k][0];
      ranges.add(r.start, r.last() + 1, r.step);
    } else {
      ranges.add(0, shape[k], 1);
    }
    changes = changes || countOf(positions.dims[k]) != shape[k];
  }
  return changes ? addSlice(out, ranges.starts, ranges.stops, ranges.steps) : out;
}

std::vector<Dim> localDims(const TensorView* global, const ShardState& state, int64_t rank) {
  const std::vector<IterDomain*> stored = stateDims(global);  // a rank has one contribution
  std::vector<Dim> dims;
  for (size_t k = 0; k < stored.size(); k++) {
    const DigitList& dim = state.dims[k];
    const IntExpr extent = dim.isRagged() ? countOf(heldRuns(dim, state.mesh.coordinates(rank))) : dim.localSize();
    dims.push_back(localDim(extent, stored[k]->iterType()));
  }
  return dims;
}

TensorView* sliceOwned(TensorView* in, const RefinedMesh& on, const PlanState& before, const PlanState& after,
                       const LocalRank& at) {
  std::vector<IntExpr> coordinates;
  for (int atom = 0; atom < std::ssize(on.origins); atom++) {
    coordinates.push_back(at.coordinates->of(on.mesh, on.origins[atom], on.atoms.axisSize(atom).constValue()));
  }
  std::vector<int64_t> shape;
  std::vector<int64_t> pieces;
  Ranges piecesCut;
  Ranges dimsCut;
  bool oneWindowPerDim = true;
  bool changed = false;
  for (size_t k = 0; k < after.dims.size(); k++) {
    shape.push_back(localExtent(after.dims[k]));
    PlanDim digits;  // those that were local before
    for (const PlanDigit& d : after.dims[k]) {
      if (!isCut(d) || !ownedBefore(before.dims[k], d.atom)) {
        digits.push_back(d);
        pieces.push_back(d.size);
        piecesCut.add(isCut(d) ? coordinates[d.atom] : IntExpr(0), isCut(d) ? coordinates[d.atom] + 1 : IntExpr(d.size),
                      1);
      }
    }
    changed = changed || std::ranges::any_of(digits, isCut);
    oneWindowPerDim = addWindow(digits, coordinates, dimsCut) && oneWindowPerDim;
  }
  if (!changed) {
    return in;
  }
  if (oneWindowPerDim) {
    return addSlice(in, dimsCut.starts, dimsCut.stops, dimsCut.steps);
  }
  return addReshape(addSlice(addReshape(in, pieces), piecesCut.starts, piecesCut.stops, piecesCut.steps), shape);
}

TensorView* cut(TensorView* in, ShardState held, const ShardState& needed, const LocalRank& at) {
  if (needed.mesh.empty()) {
    return in;
  }
  if (held.mesh.empty()) {
    held.mesh = needed.mesh;
  }
  if (isRagged(held) || isRagged(needed) || !(held.mesh == needed.mesh)) {
    return takePart(in, heldPart(held, at.rank).positionsOf(heldPart(needed, at.rank)));
  }
  const std::optional<AtomPair> pair = atomPair(held, needed, AtomLevel::Axis);
  invariant(pair.has_value(), "[localize] the digits of {} and {} do not nest", held.toString(), needed.toString());
  return sliceOwned(in, pair->on, pair->from, pair->to, at);
}

}  // namespace meshfuse
