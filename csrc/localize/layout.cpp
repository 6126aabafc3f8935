#include "localize/layout.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/sharding/atoms.h"

namespace meshfuse {

namespace {

SymbolicRun symbolic(const IndexRun& run) { return {run.start, run.count, run.step}; }

}  // namespace

std::vector<SymbolicRun> wholeRuns(const TensorView* tv) {
  return mapped(tv->shape(), [](const IntExpr& extent) { return SymbolicRun{0, extent}; });
}

TensorView* sliceRuns(TensorView* in, const std::vector<SymbolicRun>& runs) {
  return addSlice(in, mapped(runs, &SymbolicRun::start),
                  mapped(runs, [](const SymbolicRun& r) { return r.last() + 1; }), mapped(runs, &SymbolicRun::step));
}

std::vector<Dim> localDims(const std::vector<int64_t>& sizes) {
  return mapped(sizes, [](int64_t n) { return localDim(n, IterType::Iteration); });
}

TensorView* nothing(Fusion& local, DataType dtype, const std::vector<int64_t>& sizes) {
  TensorView* out = local.tensor(dtype, localDims(sizes));
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

TensorView* rearrange(TensorView* in, const std::vector<int64_t>& pieces, const std::vector<int64_t>& order,
                      const std::vector<int64_t>& shape) {
  // Pieces that remain adjacent move as one piece; pieces of size 1 are skipped.
  const auto isOne = [&](int64_t piece) { return pieces[piece] == 1; };
  std::vector<std::vector<int64_t>> runs;  // in the new order
  for (int64_t p : filtered(order, std::not_fn(isOne))) {
    const int64_t last = runs.empty() ? p : runs.back().back();
    if (last < p && std::ranges::all_of(std::views::iota(last + 1, p), isOne)) {
      runs.back().push_back(p);
    } else {
      runs.push_back({p});
    }
  }
  if (std::ranges::is_sorted(runs)) {
    return addReshape(in, shape);
  }
  std::vector<std::vector<int64_t>> inMemory = runs;
  std::ranges::sort(inMemory);
  const auto sizeOf = [&](const std::vector<int64_t>& run) {
    return productOf(run, [&](int64_t p) { return pieces[p]; });
  };
  const auto placeOf = [&](const std::vector<int64_t>& run) { return positionIn(inMemory, run); };
  return addReshape(addPermute(addReshape(in, mapped(inMemory, sizeOf)), mapped<int64_t>(runs, placeOf)), shape);
}

TensorView* takePart(TensorView* in, const Part& positions) {
  TensorView* out = in;
  // Slices dims with several runs one at a time, and all other dims in one slice.
  for (int64_t k = 0; k < std::ssize(positions.dims); k++) {
    if (positions.dims[k].size() < 2) {
      continue;
    }
    std::vector<SymbolicRun> taken = wholeRuns(out);
    std::vector<Val*> parts = mapped<Val*>(positions.dims[k], [&](const IndexRun& run) {
      taken[k] = symbolic(run);
      return sliceRuns(out, taken);
    });
    std::vector<Dim> dims = dimsOf(out);
    dims[k] = localDim(countOf(positions.dims[k]), IterType::Iteration);
    out = in->fusion().addOp(ExprKind::Cat, std::move(parts), in->dtype(), dims, {.dim = k});
  }
  if (positions.sizes() == out->constantShape()) {
    return out;
  }
  std::vector<SymbolicRun> taken = wholeRuns(out);
  for (int64_t k = 0; k < std::ssize(positions.dims); k++) {
    const IndexRuns& runs = positions.dims[k];
    if (runs.size() < 2) {
      taken[k] = runs.empty() ? SymbolicRun{} : symbolic(runs[0]);
    }
  }
  return sliceRuns(out, taken);
}

std::vector<Dim> localDims(const TensorView* global, const ShardState& state, int64_t rank) {
  const std::vector<IterDomain*> stored = stateDims(global);  // a rank has one contribution
  if (stored.size() != state.dims.size()) {
    throwInternalError(fmt::format("[localize] {} has other dims than its sharding", global->toString()));
  }
  std::vector<Dim> dims;
  for (int64_t k = 0; k < std::ssize(stored); k++) {
    const DigitList& dim = state.dims[k];
    const IntExpr extent = dim.isRagged() ? countOf(heldRuns(dim, state.mesh.coordinates(rank))) : dim.localSize();
    dims.push_back(localDim(extent, stored[k]->iterType()));
  }
  return dims;
}

TensorView* sliceOwned(TensorView* in, const RefinedMesh& on, const PlanState& before, const PlanState& after,
                       const LocalRank& at) {
  const auto coordinates = mapped(indices(on.origins), [&](int64_t atom) {
    return at.coordinates->of(on.mesh, on.origins[atom], on.atoms.axisSize(atom).constValue());
  });
  std::vector<RankDigit> all;  // digits that were local before
  std::vector<SymbolicRun> runs;
  bool oneRunPerDim = true;
  for (int64_t k = 0; k < std::ssize(after.dims); k++) {
    std::vector<RankDigit> digits;
    for (const PlanDigit& d : after.dims[k]) {
      if (d.atom == kLocal) {
        digits.push_back({d.size, std::nullopt});
      } else if (!contains(std::views::transform(before.dims[k], &PlanDigit::atom), d.atom)) {
        digits.push_back({d.size, coordinates[d.atom]});
      }
    }
    const std::optional<SymbolicRun> run = heldRun(digits);
    oneRunPerDim = oneRunPerDim && run;
    runs.push_back(run.value_or(SymbolicRun{}));
    append(all, digits);
  }
  if (std::ranges::none_of(all, &RankDigit::isOwned)) {
    return in;
  }
  if (oneRunPerDim) {
    return sliceRuns(in, runs);
  }
  TensorView* pieces = addReshape(in, mapped(all, [](const RankDigit& d) { return d.size.constValue(); }));
  const auto kept = [](const RankDigit& d) { return d.isOwned() ? SymbolicRun{*d.value, 1} : SymbolicRun{0, d.size}; };
  return addReshape(sliceRuns(pieces, mapped(all, kept)), mapped(after.dims, localExtent));
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
