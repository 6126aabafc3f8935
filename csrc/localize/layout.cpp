#include "localize/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "multidevice/sharding/atoms.h"

namespace meshfuse {

namespace {

bool ownedBefore(const PlanDim& before, int atom) {
  return std::any_of(before.begin(), before.end(), [&](const PlanDigit& d) { return d.atom == atom; });
}

}  // namespace

std::vector<LocalRange> wholeRanges(const TensorView* tv) {
  std::vector<LocalRange> ranges;
  for (const IntExpr& extent : tv->shape()) {
    ranges.push_back({0, extent});
  }
  return ranges;
}

TensorView* sliceRanges(TensorView* in, const std::vector<LocalRange>& ranges) {
  std::vector<IntExpr> starts;
  std::vector<IntExpr> stops;
  std::vector<IntExpr> steps;
  for (const LocalRange& r : ranges) {
    starts.push_back(r.start);
    stops.push_back(r.stop);
    steps.push_back(r.step);
  }
  return addSlice(in, starts, stops, steps);
}

std::optional<LocalRange> rangeOf(const std::vector<RankDigit>& digits) {
  IntExpr start = 0;
  IntExpr count = 1;
  IntExpr below = 1;  // the stride of a digit
  IntExpr owned = 1;
  for (auto d = digits.rbegin(); d != digits.rend(); ++d) {
    start += d->value ? *d->value * below : IntExpr(0);
    (d->value ? owned : count) *= d->size;
    below *= d->size;
  }
  const auto isOwned = [](const RankDigit& d) { return d.value.has_value(); };
  if (std::ranges::is_partitioned(digits, isOwned)) {
    return LocalRange{start, start + count};
  }
  if (std::ranges::is_partitioned(digits, std::not_fn(isOwned))) {
    return LocalRange{start, start + (count - 1) * owned + 1, owned};
  }
  return std::nullopt;
}

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
      std::vector<LocalRange> ranges = wholeRanges(out);
      ranges[k] = {r.start, r.last() + 1, r.step};
      parts.push_back(sliceRanges(out, ranges));
    }
    std::vector<Dim> dims = dimsOf(out);
    dims[k] = localDim(countOf(positions.dims[k]), IterType::Iteration);
    TensorView* joined = in->fusion().tensor(in->dtype(), dims);
    ExprAttributes attributes;
    attributes.dim = static_cast<int>(k);
    in->fusion().addExpr(ExprKind::Cat, std::move(parts), {joined}, attributes);
    out = joined;
  }
  std::vector<LocalRange> ranges = wholeRanges(out);
  for (size_t k = 0; k < positions.dims.size(); k++) {
    const IndexRuns& runs = positions.dims[k];
    if (runs.size() < 2) {
      ranges[k] = runs.empty() ? LocalRange{0, 0} : LocalRange{runs[0].start, runs[0].last() + 1, runs[0].step};
    }
  }
  return positions.sizes() == out->constantShape() ? out : sliceRanges(out, ranges);
}

std::vector<Dim> localDims(const TensorView* global, const ShardState& state, int64_t rank) {
  const std::vector<IterDomain*> stored = stateDims(global);  // a rank has one contribution
  invariant(stored.size() == state.dims.size(), "[localize] {} has other dims than its sharding", global->toString());
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
  std::vector<LocalRange> piecesCut;
  std::vector<LocalRange> dimsCut;
  bool oneRangePerDim = true;
  bool changed = false;
  for (size_t k = 0; k < after.dims.size(); k++) {
    shape.push_back(localExtent(after.dims[k]));
    std::vector<RankDigit> digits;  // those that were local before
    for (const PlanDigit& d : after.dims[k]) {
      if (d.atom == kLocal) {
        digits.push_back({d.size, std::nullopt});
        piecesCut.push_back({0, d.size});
      } else if (!ownedBefore(before.dims[k], d.atom)) {
        digits.push_back({d.size, coordinates[d.atom]});
        piecesCut.push_back({coordinates[d.atom], coordinates[d.atom] + 1});
        changed = true;
      } else {
        continue;
      }
      pieces.push_back(d.size);
    }
    const std::optional<LocalRange> range = rangeOf(digits);
    oneRangePerDim = oneRangePerDim && range;
    dimsCut.push_back(range.value_or(LocalRange{}));
  }
  if (!changed) {
    return in;
  }
  if (oneRangePerDim) {
    return sliceRanges(in, dimsCut);
  }
  return addReshape(sliceRanges(addReshape(in, pieces), piecesCut), shape);
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
