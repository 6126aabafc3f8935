#include "multidevice/sharding/atoms.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "multidevice/sharding/held_part.h"

namespace meshfuse {

namespace {

// Strides at which each axis is cut: c means that a block of c coordinates lies below the cut. 1 and the size are always cuts.
using Cuts = std::vector<std::set<int64_t>>;

struct AxisPiece {
  int64_t below;
  int64_t size;
};

AxisPiece pieceOf(const Digit& d) { return {d.owner.below.constValue(), d.size.constValue()}; }

bool nests(const std::set<int64_t>& cuts) {
  int64_t previous = 1;
  for (int64_t c : cuts) {
    if (c % previous != 0) {
      return false;
    }
    previous = c;
  }
  return true;
}

void cutAtOwnedPieces(const ShardState& state, Cuts& cuts) {
  for (const DigitList& dim : state.dims) {
    for (const Digit& d : dim.digits()) {
      if (d.owner.isDevice()) {
        const AxisPiece p = pieceOf(d);
        cuts[d.owner.axis].insert({p.below, p.below * p.size});
      }
    }
  }
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
bool cutOnce(const std::vector<const ShardState*>& states, std::vector<std::set<int64_t>>& strides, Cuts& cuts) {
  bool changed = false;
  for (const ShardState* state : states) {
    for (size_t k = 0; k < state->dims.size(); k++) {
      for (const Digit& d : state->dims[k].digits()) {
        if (!d.owner.isDevice()) {
          continue;
        }
        const AxisPiece p = pieceOf(d);
        const int64_t stride = d.stride.constValue();
        for (int64_t t : std::set<int64_t>(strides[k])) {
          if (t > stride && t < stride * p.size && t % stride == 0 && p.size % (t / stride) == 0) {
            changed |= addCut(cuts[d.owner.axis], p.below * (t / stride));
          }
        }
        for (int64_t c : cuts[d.owner.axis]) {
          if (c > p.below && c < p.below * p.size && c % p.below == 0) {
            changed |= strides[k].insert(stride * (c / p.below)).second;
          }
        }
      }
    }
  }
  return changed;
}

std::vector<std::set<int64_t>> stridesOf(const std::vector<const ShardState*>& states) {
  std::vector<std::set<int64_t>> strides(states.front()->dims.size());
  for (const ShardState* state : states) {
    for (size_t k = 0; k < state->dims.size(); k++) {
      for (const Digit& d : state->dims[k].digits()) {
        strides[k].insert(d.stride.constValue());
      }
    }
  }
  return strides;
}

void cutToPrimes(std::set<int64_t>& cuts) {
  const std::vector<int64_t> at(cuts.begin(), cuts.end());
  for (size_t i = 1; i < at.size(); i++) {
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

// The atoms of each axis, as (cut below, atom), ascending by cut.
using AtomsByAxis = std::vector<std::vector<std::pair<int64_t, int>>>;

AtomsByAxis atomsByAxis(const RefinedMesh& refined) {
  AtomsByAxis atoms(refined.mesh.numAxes());
  for (size_t atom = refined.origins.size(); atom-- > 0;) {  // the outer parts of an axis come first
    const AtomOrigin& origin = refined.origins[atom];
    atoms[origin.axis].emplace_back(origin.below, static_cast<int>(atom));
  }
  return atoms;
}

PlanState onAtoms(const ShardState& state, const RefinedMesh& refined, const AtomsByAxis& byAxis) {
  PlanState out;
  for (const DigitList& dim : state.dims) {
    if (dim.isOpaque()) {
      throwInternalError(
          fmt::format("[atoms] a dim is opaque in {}; it should have been refused before", state.toString()));
    }
    PlanDim digits;
    for (const Digit& d : dim.digits()) {
      const int64_t stride = d.stride.constValue();
      const int64_t size = d.size.constValue();
      if (!d.owner.isDevice()) {
        digits.push_back({stride, size, kLocal});
        continue;
      }
      const AxisPiece p = pieceOf(d);
      const auto& atoms = byAxis[d.owner.axis];
      for (size_t i = atoms.size(); i-- > 0;) {
        const int64_t below = atoms[i].first;
        if (below >= p.below && below < p.below * p.size) {
          const int64_t n = refined.atoms.axisSize(atoms[i].second).constValue();
          digits.push_back({stride * (below / p.below), n, atoms[i].second});
        }
      }
    }
    out.dims.push_back(normalForm(digits));
  }
  for (size_t k = 0; k < state.dims.size(); k++) {
    out.setParts(k, constantParts(state.dims[k]));
  }
  for (int axis : state.partial) {
    for (const auto& [below, atom] : byAxis[axis]) {
      out.partial.push_back(atom);
    }
  }
  std::sort(out.partial.begin(), out.partial.end());
  return out;
}

}  // namespace

std::optional<AtomPair> atomPair(const ShardState& from, const ShardState& to, AtomLevel level) {
  const DeviceMesh& mesh = from.mesh;
  Cuts cuts(mesh.numAxes());
  for (int a = 0; a < mesh.numAxes(); a++) {
    cuts[a] = {1, mesh.axisSize(a).constValue()};
  }
  cutAtOwnedPieces(from, cuts);
  cutAtOwnedPieces(to, cuts);
  if (!std::all_of(cuts.begin(), cuts.end(), nests)) {
    return std::nullopt;
  }
  if (level == AtomLevel::Digit) {
    std::vector<std::set<int64_t>> strides = stridesOf({&from, &to});
    while (cutOnce({&from, &to}, strides, cuts)) {
    }
  }
  if (level == AtomLevel::Prime) {
    for (std::set<int64_t>& axis : cuts) {
      cutToPrimes(axis);
    }
  }
  std::vector<std::vector<int64_t>> at;
  for (const std::set<int64_t>& axis : cuts) {
    at.emplace_back(axis.begin(), axis.end());
  }
  RefinedMesh refined = RefinedMesh::cut(mesh, at);
  const AtomsByAxis byAxis = atomsByAxis(refined);
  PlanState before = onAtoms(from, refined, byAxis);
  PlanState after = onAtoms(to, refined, byAxis);
  return AtomPair{std::move(refined), std::move(before), std::move(after)};
}

ShardState shardState(const PlanState& state, const DeviceMesh& mesh, const std::vector<IntExpr>& shape) {
  ShardState out{mesh, {}, state.partial};
  for (size_t k = 0; k < state.dims.size(); k++) {
    std::vector<Digit> owned;
    for (const PlanDigit& d : state.dims[k]) {
      if (d.atom != kLocal) {
        const std::span<const int64_t> parts = state.partsOf(k);
        owned.push_back({static_cast<int>(k), d.stride, d.size, Owner::device(d.atom), Digit::kEven,
                         std::vector<IntExpr>(parts.begin(), parts.end())});
      }
    }
    out.dims.push_back(shape[k].isConst() ? fillRagged(static_cast<int>(k), shape[k].constValue(), owned)
                                          : fillLocal(static_cast<int>(k), shape[k], owned));
  }
  return out;
}

}  // namespace meshfuse
