#include "preseg_passes/local_layout.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ir/reshape.h"
#include "ir/window.h"

namespace meshfuse {

namespace {

std::vector<Dim> dimsOf(const TensorView* tv) {
  std::vector<Dim> dims;
  for (const IterDomain* id : tv->noReductions()) {
    dims.push_back({id->extent(), id->iterType()});
  }
  return dims;
}

std::vector<int64_t> localShape(const PlanState& state) {
  std::vector<int64_t> shape;
  for (const PlanDim& dim : state.dims) {
    shape.push_back(localExtent(dim));
  }
  return shape;
}

bool ownedBefore(const PlanDim& before, int atom) {
  return std::any_of(before.begin(), before.end(), [&](const PlanDigit& d) { return d.atom == atom; });
}

}  // namespace

IntExpr coordinate(const DeviceMesh& mesh, int axis) {
  return IntExpr::symbol("coord." + mesh.axisName(axis), {.lower = 0, .upper = mesh.axisSize(axis).constValue() - 1});
}

IntExpr coordinate(const DeviceMesh& mesh, const AtomOrigin& origin, int64_t size) {
  return mod(floorDiv(coordinate(mesh, origin.axis), origin.below), size);
}

Dim localDim(const IntExpr& extent, IterType globalType) {
  return {extent, globalType == IterType::Iteration && extent.isConst(1) ? IterType::Broadcast : globalType};
}

std::vector<int64_t> constantShape(const TensorView* tv) {
  std::vector<int64_t> shape;
  for (const IntExpr& e : tv->shape()) {
    invariant(e.isConst(), "[localize] {} has extent {}; bind sizes first", tv->toString(), e.toString());
    shape.push_back(e.constValue());
  }
  return shape;
}

TensorView* localReshape(TensorView* in, const std::vector<int64_t>& shape) {
  if (constantShape(in) == shape) {
    return in;
  }
  const std::vector<IntExpr> extents(shape.begin(), shape.end());
  TensorView* out = in->fusion().tensorFromRoot(
      in->dtype(), dimsOf(in),
      [&](Fusion& fusion, const std::vector<IterDomain*>& root) { return connectReshape(fusion, root, extents); });
  in->fusion().addExpr(ExprKind::Reshape, {in}, {out});
  return out;
}

TensorView* localPermute(TensorView* in, const std::vector<int>& order) {
  if (std::is_sorted(order.begin(), order.end())) {
    return in;
  }
  TensorView* out =
      in->fusion().tensorFromRoot(in->dtype(), dimsOf(in), [&](Fusion&, const std::vector<IterDomain*>& root) {
        std::vector<IterDomain*> logical;
        for (int old : order) {
          logical.push_back(root[old]);
        }
        return logical;
      });
  ExprAttributes attributes;
  attributes.order = order;
  in->fusion().addExpr(ExprKind::Permute, {in}, {out}, attributes);
  return out;
}

TensorView* localSlice(TensorView* in, const std::vector<IntExpr>& starts, const std::vector<IntExpr>& stops,
                       const std::vector<IntExpr>& steps) {
  TensorView* out =
      in->fusion().tensorFromRoot(in->dtype(), dimsOf(in), [&](Fusion& fusion, const std::vector<IterDomain*>& root) {
        return connectSlice(fusion, root, starts, stops, steps);
      });
  ExprAttributes attributes;
  attributes.starts = starts;
  attributes.stops = stops;
  attributes.steps = steps;
  in->fusion().addExpr(ExprKind::Slice, {in}, {out}, attributes);
  return out;
}

TensorView* rearrange(TensorView* in, const std::vector<int64_t>& pieces, const std::vector<int>& order,
                      const std::vector<int64_t>& shape) {
  // Pieces that stay neighbours travel as one, pieces of size 1 not at all.
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
  // newToOld[k]: which run stands k-th in memory now.
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
    return localReshape(in, shape);
  }
  return localReshape(localPermute(localReshape(in, sizes), permutation), shape);
}

TensorView* sliceOwned(TensorView* in, const PlanState& before, const PlanState& after,
                       const std::vector<IntExpr>& coordinates) {
  // Every dim as the digits of `after` that were local before; those owned now are cut to one value.
  std::vector<int64_t> pieces;
  std::vector<IntExpr> cutStarts;
  std::vector<IntExpr> cutStops;
  std::vector<IntExpr> starts;
  std::vector<IntExpr> stops;
  std::vector<IntExpr> steps;
  bool oneWindowPerDim = true;
  bool changed = false;
  for (size_t k = 0; k < after.dims.size(); k++) {
    PlanDim digits;
    for (const PlanDigit& d : after.dims[k]) {
      if (d.atom == kLocal || !ownedBefore(before.dims[k], d.atom)) {
        digits.push_back(d);
      }
    }
    IntExpr offset = 0;
    int64_t local = 1;
    int64_t stride = 1;
    int64_t smallestCut = 0;
    bool localSeen = false;
    bool outer = true;  // all cut digits stand above all local ones
    bool inner = true;  // all cut digits stand below
    for (const PlanDigit& d : digits) {
      if (d.atom == kLocal) {
        localSeen = true;
        local *= d.size;
      } else {
        outer = outer && !localSeen;
      }
    }
    bool cutSeen = false;
    for (size_t i = 0; i < digits.size(); i++) {
      cutSeen |= digits[i].atom != kLocal;
      inner = inner && !(digits[i].atom == kLocal && cutSeen);
    }
    for (auto d = digits.rbegin(); d != digits.rend(); ++d) {
      if (d->atom != kLocal) {
        offset += coordinates[d->atom] * stride;
        smallestCut = smallestCut == 0 ? stride : smallestCut;
        changed = true;
      }
      stride *= d->size;
    }
    for (const PlanDigit& d : digits) {
      pieces.push_back(d.size);
      cutStarts.push_back(d.atom == kLocal ? IntExpr(0) : coordinates[d.atom]);
      cutStops.push_back(d.atom == kLocal ? IntExpr(d.size) : coordinates[d.atom] + 1);
    }
    if (!cutSeen) {
      starts.push_back(0);
      stops.push_back(local);
      steps.push_back(1);
    } else if (outer) {
      starts.push_back(offset);
      stops.push_back(offset + local);
      steps.push_back(1);
    } else if (inner) {
      const int64_t step = stride / local;
      starts.push_back(offset);
      stops.push_back(offset + (local - 1) * step + 1);
      steps.push_back(step);
    } else {
      oneWindowPerDim = false;
    }
  }
  if (!changed) {
    return in;
  }
  if (oneWindowPerDim) {
    return localSlice(in, starts, stops, steps);
  }
  const std::vector<IntExpr> ones(pieces.size(), 1);
  return localReshape(localSlice(localReshape(in, pieces), cutStarts, cutStops, ones), localShape(after));
}

}  // namespace meshfuse
