#include "multidevice/sharding/tile_transfer.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/sharding/index_set.h"

namespace meshfuse {

namespace {

std::vector<int> ownersOf(const PlanDim& dim) {
  std::vector<int> atoms;
  for (const PlanDigit& d : dim) {
    if (d.atom != kLocal) {
      atoms.push_back(d.atom);
    }
  }
  return atoms;
}

std::vector<int> difference(const std::vector<int>& a, const std::vector<int>& b) {
  return filtered(a, [&](int x) { return !contains(b, x); });
}

// The tiles of one side: by dim the owners, and the coordinates of every device.
struct Side {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int>> owners;
  std::vector<std::vector<int64_t>> at;  // by position

  Side(const DeviceMesh& mesh, const PlanState& state)
      : sizes(mesh.axisSizes()),
        owners(mapped(state.dims, ownersOf)),
        at(mapped(indices(mesh.devices()), [&](int64_t position) { return coordinatesAt(position, sizes); })) {}

  std::vector<IndexSet> sets(size_t dim, const PlanState& state, int64_t extent, int64_t unit) const {
    std::vector<IndexSet> out(productOf(owners[dim], [&](int atom) { return sizes[atom]; }));
    std::vector<bool> known(out.size(), false);
    for (const std::vector<int64_t>& c : at) {
      const int64_t tile = positionAmong(owners[dim], c, sizes);
      if (!known[tile]) {
        known[tile] = true;
        out[tile] = IndexSet(
            state.dims[dim], extent, unit, [&](int atom) { return c[atom]; }, state.partsOf(dim));
      }
    }
    return out;
  }
};

// By dim: elements that tile i of one side shares with tile j of the other.
using Overlaps = std::vector<std::vector<std::vector<int64_t>>>;

Overlaps overlapsOf(const std::vector<int64_t>& extents, const Side& from, const PlanState& before, const Side& to,
                    const PlanState& after) {
  Overlaps out(extents.size());
  for (size_t k = 0; k < extents.size(); k++) {
    const int64_t unit = indexUnit(extents[k], before, after, k);
    const std::vector<IndexSet> needed = to.sets(k, after, extents[k], unit);
    out[k] = mapped(from.sets(k, before, extents[k], unit), [&](const IndexSet& held) {
      return mapped(needed, [&](const IndexSet& n) { return held.countShared(n); });
    });
  }
  return out;
}

// How partial sums move between the sides; empty without partial sums.
struct Sums {
  std::vector<int> combined;  // contributions that are added up
  std::vector<int> kept;      // atoms partial on both sides
  std::vector<int> zeros;     // newly partial: all but coordinate 0 hold zeros
  std::vector<int> owned;     // newly partial: the owner keeps its piece

  Sums(const Side& from, const PlanState& before, const PlanState& after)
      : combined(difference(before.partial, after.partial)), kept(difference(before.partial, combined)) {
    for (int atom : difference(after.partial, before.partial)) {
      const bool isOwned = std::ranges::any_of(from.owners, [&](const auto& atoms) { return contains(atoms, atom); });
      (isOwned ? owned : zeros).push_back(atom);
    }
  }
};

TileMessages messagesOf(const std::vector<int64_t>& extents, const DeviceMesh& fromMesh, const PlanState& before,
                        const DeviceMesh& toMesh, const PlanState& after) {
  const Side from(fromMesh, before);
  const Side to(toMesh, after);
  const Sums sums(from, before, after);
  const Overlaps overlaps = overlapsOf(extents, from, before, to, after);
  // Devices that hold the same piece of the same contribution, by the number of the piece in every dim and the contribution.
  std::map<std::vector<int64_t>, std::vector<int64_t>> pieces;
  for (const int64_t position : indices(from.at)) {
    const auto number = [&](const std::vector<int>& atoms) {
      return positionAmong(atoms, from.at[position], from.sizes);
    };
    std::vector<int64_t> key = mapped(from.owners, number);
    key.push_back(number(sums.combined));
    key.push_back(number(sums.kept));
    pieces[key].push_back(position);
  }
  const std::vector<std::vector<int64_t>> numbers = mapped(pieces, [](const auto& piece) { return piece.first; });
  const std::vector<std::vector<int64_t>> holders = mapped(pieces, [](const auto& piece) { return piece.second; });
  return tileMessages(fromMesh, toMesh, holders, [&](size_t piece, size_t reader) {
    const std::vector<int64_t>& holder = from.at[holders[piece].front()];
    const std::vector<int64_t>& mine = to.at[reader];
    const auto differs = [&](int atom) { return holder[atom] != mine[atom]; };
    if (std::ranges::any_of(sums.zeros, [&](int atom) { return mine[atom] != 0; }) ||
        std::ranges::any_of(sums.kept, differs) || std::ranges::any_of(sums.owned, differs)) {
      return int64_t{0};
    }
    int64_t n = 1;
    for (size_t k = 0; k < overlaps.size() && n > 0; k++) {
      n *= overlaps[k][numbers[piece][k]][positionAmong(to.owners[k], mine, to.sizes)];
    }
    return n;
  });
}

}  // namespace

TileTransfer tileTransfer(const std::vector<int64_t>& extents, const DeviceMesh& fromMesh, const PlanState& before,
                          const DeviceMesh& toMesh, const PlanState& after) {
  if (!(before.partial.empty() && after.partial.empty()) && !(fromMesh == toMesh)) {
    throwInternalError(fmt::format("[transfer] partial sums cannot move from mesh {} to mesh {}; combine them first",
                                   fromMesh.toString(), toMesh.toString()));
  }
  return {messagesOf(extents, fromMesh, before, toMesh, after), fromMesh, toMesh, before, after};
}

TileTransfer tileTransfer(const CommStep& step, const std::vector<int64_t>& extents) {
  return tileTransfer(extents, step.on.atoms, step.before, step.to->atoms, step.after);
}

}  // namespace meshfuse
