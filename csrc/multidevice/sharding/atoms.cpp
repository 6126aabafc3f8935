#include "multidevice/sharding/atoms.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace meshfuse {

namespace {

// Positions at which each axis is cut: c means that c coordinates lie below the cut. 1 and the size are always there.
using Cuts = std::vector<std::set<int64_t>>;

struct Piece {
  int64_t below;
  int64_t size;
};

Piece pieceOf(const Digit& d) { return {d.owner.below.constValue(), d.size.constValue()}; }

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
        const Piece p = pieceOf(d);
        cuts[d.owner.axis].insert({p.below, p.below * p.size});
      }
    }
  }
}

// Adds `c` where all cuts still nest.
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
        const Piece p = pieceOf(d);
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

// Position of the atom of `axis` that starts at cut `below`, and the end of it. The outer parts of an axis come first.
struct Refinement {
  DeviceMesh mesh;
  std::vector<AtomOrigin> origins;
  std::vector<std::vector<std::pair<int64_t, int>>> atoms;  // by axis: (cut below, atom), ascending by cut

  int atom(int axis, int64_t below) const {
    for (const auto& [cut, index] : atoms[axis]) {
      if (cut == below) {
        return index;
      }
    }
    throwInternalError(fmt::format("[atoms] no atom of axis {} starts at {}", axis, below));
  }
};

// x_2: the part of x with 2 coordinates below it.
std::string partName(const DeviceMesh& mesh, int axis, int64_t below) {
  std::string name = fmt::format("{}_{}", mesh.axisName(axis), below);
  for (int a = 0; a < mesh.numAxes(); a++) {
    if (mesh.axisName(a) == name) {
      name += "_";
      a = -1;
    }
  }
  return name;
}

Refinement refine(const DeviceMesh& mesh, const Cuts& cuts) {
  Refinement r;
  std::vector<DeviceMesh::Axis> axes;
  bool refined = false;
  for (int a = 0; a < mesh.numAxes(); a++) {
    const std::vector<int64_t> at(cuts[a].begin(), cuts[a].end());
    r.atoms.emplace_back();
    if (at.size() <= 2) {
      r.atoms.back().push_back({1, static_cast<int>(axes.size())});
      r.origins.push_back({a, 1});
      axes.emplace_back(mesh.axisName(a), mesh.axisSize(a).constValue());
      continue;
    }
    refined = true;
    for (size_t i = at.size() - 1; i > 0; i--) {
      r.atoms.back().insert(r.atoms.back().begin(), {at[i - 1], static_cast<int>(axes.size())});
      r.origins.push_back({a, at[i - 1]});
      axes.emplace_back(partName(mesh, a, at[i - 1]), at[i] / at[i - 1]);
    }
  }
  r.mesh = refined ? DeviceMesh::create(axes, mesh.devices()) : mesh;
  return r;
}

PlanState onAtoms(const ShardState& state, const Refinement& r) {
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
      const Piece p = pieceOf(d);
      const auto& atoms = r.atoms[d.owner.axis];
      for (size_t i = atoms.size(); i-- > 0;) {
        const int64_t below = atoms[i].first;
        if (below >= p.below && below < p.below * p.size) {
          const int64_t n = r.mesh.axisSize(atoms[i].second).constValue();
          digits.push_back({stride * (below / p.below), n, atoms[i].second});
        }
      }
    }
    out.dims.push_back(normalForm(digits));
  }
  for (size_t k = 0; k < state.dims.size(); k++) {
    if (state.dims[k].hasParts()) {
      std::vector<int64_t> parts;
      for (const IntExpr& size : state.dims[k].digits().front().parts) {
        parts.push_back(size.constValue());
      }
      out.setParts(k, parts);
    }
  }
  for (int axis : state.partial) {
    for (const auto& [below, atom] : r.atoms[axis]) {
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
  const Refinement r = refine(mesh, cuts);
  return AtomPair{r.mesh, r.origins, onAtoms(from, r), onAtoms(to, r)};
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
