#include "multidevice/sharding/atoms.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/sharding/held_part.h"

namespace meshfuse {

namespace {

// Strides at which each axis is cut: c means that a block of c coordinates lies below the cut. 1 and the size are always cuts.
using Cuts = std::vector<std::set<int64_t>>;

// An owned digit of a dim: its value is (coordinate / below) mod size on an axis.
struct Piece {
  size_t dim;
  int64_t stride;
  int64_t axis;
  int64_t below;
  int64_t size;
};

Piece pieceOf(const Digit& d, size_t dim) {
  return {dim, d.stride.constValue(), d.owner.axis, d.owner.below.constValue(), d.size.constValue()};
}

bool nests(const std::set<int64_t>& cuts) {
  const auto breaks = [](int64_t cut, int64_t next) { return next % cut != 0; };
  return std::ranges::adjacent_find(cuts, breaks) == cuts.end();
}

// Adds the cut `c` if all cuts still nest.
bool addCut(std::set<int64_t>& cuts, int64_t c) {
  std::set<int64_t> more = cuts;
  more.insert(c);
  if (more.size() == cuts.size() || !nests(more)) {
    return false;
  }
  cuts = std::move(more);
  return true;
}

// A stride of the dim inside an owned digit cuts its axis, and a cut of an axis inside a digit adds a stride.
bool cutOnce(const std::vector<Piece>& pieces, std::vector<std::set<int64_t>>& strides, Cuts& cuts) {
  bool changed = false;
  for (const Piece& p : pieces) {
    for (int64_t t : std::set<int64_t>(strides[p.dim])) {
      if (t > p.stride && t < p.stride * p.size && t % p.stride == 0 && p.size % (t / p.stride) == 0) {
        changed |= addCut(cuts[p.axis], p.below * (t / p.stride));
      }
    }
    for (int64_t c : cuts[p.axis]) {
      if (c > p.below && c < p.below * p.size && c % p.below == 0) {
        changed |= strides[p.dim].insert(p.stride * (c / p.below)).second;
      }
    }
  }
  return changed;
}

void cutToPrimes(std::set<int64_t>& cuts) {
  const std::vector<int64_t> at(cuts.begin(), cuts.end());
  for (int64_t i = 1; i < std::ssize(at); i++) {
    int64_t rest = at[i] / at[i - 1];
    int64_t cut = at[i - 1];
    for (int64_t factor = 2; rest > 1; factor++) {
      for (; rest % factor == 0; rest /= factor) {
        cut *= factor;
        cuts.insert(cut);
      }
    }
  }
}

PlanState onAtoms(const ShardState& state, const RefinedMesh& refined) {
  PlanState out;
  for (const DigitList& dim : state.dims) {
    if (dim.isOpaque()) {
      throwInternalError(
          fmt::format("[atoms] a dim is opaque in {}; it should have been refused before", state.toString()));
    }
    PlanDim digits;
    for (const Digit& d : dim.digits()) {
      if (!d.owner.isDevice()) {
        digits.push_back({d.stride.constValue(), d.size.constValue(), kLocal});
        continue;
      }
      const Piece p = pieceOf(d, out.dims.size());
      for (int64_t atom = 0; atom < std::ssize(refined.origins); atom++) {  // the outer parts of an axis come first
        const auto& [axis, below] = refined.origins[atom];
        if (axis == p.axis && below >= p.below && below < p.below * p.size) {
          const auto place = atom;
          digits.push_back({p.stride * (below / p.below), refined.atoms.axisSize(place).constValue(), place});
        }
      }
    }
    out.dims.push_back(normalForm(digits));
  }
  for (int64_t k = 0; k < std::ssize(state.dims); k++) {
    out.setParts(k, constantParts(state.dims[k]));
  }
  for (int64_t atom = 0; atom < std::ssize(refined.origins); atom++) {
    if (contains(state.partial, refined.origins[atom].axis)) {
      out.partial.push_back(atom);
    }
  }
  return out;
}

}  // namespace

std::optional<AtomPair> atomPair(const ShardState& from, const ShardState& to, AtomLevel level) {
  const DeviceMesh& mesh = from.mesh;
  Cuts cuts(mesh.numAxes());
  for (int64_t a = 0; a < mesh.numAxes(); a++) {
    cuts[a] = {1, mesh.axisSize(a).constValue()};
  }
  std::vector<std::set<int64_t>> strides(from.dims.size());
  std::vector<Piece> pieces;
  for (const ShardState* state : {&from, &to}) {
    for (int64_t k = 0; k < std::ssize(state->dims); k++) {
      for (const Digit& d : state->dims[k].digits()) {
        strides[k].insert(d.stride.constValue());
        if (d.owner.isDevice()) {
          const Piece& p = pieces.emplace_back(pieceOf(d, k));
          cuts[p.axis].insert({p.below, p.below * p.size});
        }
      }
    }
  }
  if (!std::ranges::all_of(cuts, nests)) {
    return std::nullopt;
  }
  if (level == AtomLevel::Digit) {
    while (cutOnce(pieces, strides, cuts)) {
    }
  }
  if (level == AtomLevel::Prime) {
    for (std::set<int64_t>& axis : cuts) {
      cutToPrimes(axis);
    }
  }
  RefinedMesh refined = RefinedMesh::cut(
      mesh, mapped(cuts, [](const std::set<int64_t>& axis) { return std::vector<int64_t>(axis.begin(), axis.end()); }));
  PlanState before = onAtoms(from, refined);
  PlanState after = onAtoms(to, refined);
  return AtomPair{std::move(refined), std::move(before), std::move(after)};
}

AtomPair nestedAtoms(const ShardState& from, const ShardState& to) {
  std::optional<AtomPair> pair = atomPair(from, to, AtomLevel::Axis);
  if (!pair) {
    throwInternalError(fmt::format("[planner] the digits of {} cut an axis in ways that do not nest",
                                   (from.isSharded() ? from : to).toString()));
  }
  return *std::move(pair);
}

ShardState shardState(const PlanState& state, const DeviceMesh& mesh, const std::vector<IntExpr>& shape) {
  ShardState out{mesh, {}, state.partial};
  for (int64_t k = 0; k < std::ssize(state.dims); k++) {
    std::vector<Digit> owned;
    for (const PlanDigit& d : state.dims[k]) {
      if (d.atom != kLocal) {
        const std::span<const int64_t> parts = state.partsOf(k);
        owned.push_back({k, d.stride, d.size, Owner::device(d.atom), Digit::kEven,
                         std::vector<IntExpr>(parts.begin(), parts.end())});
      }
    }
    out.dims.push_back(shape[k].isConst() ? fillRagged(k, shape[k].constValue(), owned)
                                          : fillLocal(k, shape[k], owned));
  }
  return out;
}

}  // namespace meshfuse
