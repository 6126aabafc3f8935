#include "localize/layout.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/sized_steps.h"

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

std::vector<Dim> localDims(const std::vector<IntExpr>& sizes) {
  return mapped(sizes, [](const IntExpr& n) { return localDim(n, IterType::Iteration); });
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

TensorView* rearrange(TensorView* in, const std::vector<IntExpr>& pieces, const std::vector<int64_t>& order,
                      const std::vector<IntExpr>& shape) {
  // Pieces that remain adjacent move as one piece; pieces of size 1 are skipped.
  const auto isOne = [&](int64_t piece) { return pieces[piece].isConst(1); };
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

std::vector<RankDigit> digitsIn(const PlanDim& before, const SizedDim& after, const RefinedMesh& on,
                                const LocalRank& at) {
  std::vector<RankDigit> digits;
  for (const SizedDigit& d : after) {
    if (d.atom == kLocal) {
      digits.push_back({d.size, std::nullopt});
    } else if (!contains(std::views::transform(before, &PlanDigit::atom), d.atom)) {
      digits.push_back(
          {d.size, at.coordinates->of(on.mesh, on.origins[d.atom], on.atoms.axisSize(d.atom).constValue())});
    }
  }
  return digits;
}

TensorView* sliceOwned(TensorView* in, const std::vector<std::vector<RankDigit>>& dims) {
  std::vector<RankDigit> all;
  std::vector<SymbolicRun> runs;
  bool oneRunPerDim = true;
  for (const std::vector<RankDigit>& digits : dims) {
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
  TensorView* pieces = addReshape(in, mapped(all, &RankDigit::size));
  const auto kept = [](const RankDigit& d) { return d.isOwned() ? SymbolicRun{*d.value, 1} : SymbolicRun{0, d.size}; };
  const auto localSize = [](const std::vector<RankDigit>& digits) {
    return productOf(digits, [](const RankDigit& d) { return d.isOwned() ? IntExpr(1) : d.size; });
  };
  return addReshape(sliceRuns(pieces, mapped(all, kept)), mapped(dims, localSize));
}

namespace {

// Digits of a dim of `needed` that are local in `held`, on whose axes the first has all digits of the second.
std::vector<RankDigit> digitsIn(const DigitList& held, const DigitList& needed, const DeviceMesh& mesh,
                                const LocalRank& at) {
  std::vector<RankDigit> digits;
  for (const Digit& d : needed.digits()) {
    const auto isSame = [&](const Digit& other) { return other.owner == d.owner && other.size == d.size; };
    if (d.owner.isLocal()) {
      digits.push_back({d.size, std::nullopt});
    } else if (std::ranges::none_of(held.digits(), isSame)) {
      check(!owns(held, d.owner.axis),
            "[localize] a dim is held as {} and needed as {}, which one axis cuts in two ways; give constant sizes",
            held.toString(), needed.toString());
      digits.push_back({d.size, mod(floorDiv(at.coordinates->of(mesh, d.owner.axis), d.owner.below), d.size)});
    }
  }
  return digits;
}

}  // namespace

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
  if (!held.isConstant() || !needed.isConstant()) {
    return sliceOwned(in, mapped(indices(held.dims),
                                 [&](int64_t k) { return digitsIn(held.dims[k], needed.dims[k], needed.mesh, at); }));
  }
  const std::optional<AtomPair> pair = atomPair(held, needed, AtomLevel::Axis);
  invariant(pair.has_value(), "[localize] the digits of {} and {} do not nest", held.toString(), needed.toString());
  return sliceOwned(in, mapped(indices(held.dims), [&](int64_t k) {
                      return digitsIn(pair->from.dims[k], digitsFor(pair->to.dims[k], held.dims[k].extent()), pair->on,
                                      at);
                    }));
}

}  // namespace meshfuse
