#include "multidevice/sharding/tile_transfer.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/sharding/held_part.h"

namespace meshfuse {

namespace {

std::vector<int64_t> difference(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return filtered(a, [&](int64_t x) { return !contains(b, x); });
}

// The tiles of one side: by dim the owners, and the coordinates of every device.
struct Side {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> owners;
  std::vector<std::vector<int64_t>> at;  // by position

  Side(const DeviceMesh& mesh, const PlanState& state)
      : sizes(mesh.axisSizes()),
        owners(mapped(state.dims, ownersOf)),
        at(mapped(indices(mesh.devices()), [&](int64_t position) { return coordinatesAt(position, sizes); })) {}

  std::vector<IndexRuns> runs(int64_t dim, const PlanState& state, int64_t extent) const {
    std::vector<IndexRuns> out(productOf(owners[dim], [&](int64_t atom) { return sizes[atom]; }));
    std::vector<bool> known(out.size(), false);
    for (const std::vector<int64_t>& c : at) {
      const int64_t tile = positionAmong(owners[dim], c, sizes);
      if (!known[tile]) {
        known[tile] = true;
        out[tile] = heldRuns(state, dim, extent, c);
      }
    }
    return out;
  }
};

// By dim: elements that tile i of one side shares with tile j of the other.
using Overlaps = std::vector<std::vector<std::vector<int64_t>>>;

Overlaps overlapsOf(const CommStep& step, const std::vector<int64_t>& extents, const Side& from, const Side& to) {
  return mapped(indices(extents), [&](int64_t k) {
    const std::vector<IndexRuns> needed = to.runs(k, step.after, extents[k]);
    return mapped(from.runs(k, step.before, extents[k]), [&](const IndexRuns& held) {
      return mapped(needed, [&](const IndexRuns& n) { return countOf(intersection(held, n)); });
    });
  });
}

// How partial sums move between the sides; empty without partial sums.
struct Sums {
  std::vector<int64_t> combined;  // contributions that are added up
  std::vector<int64_t> kept;      // atoms partial on both sides
  std::vector<int64_t> zeros;     // newly partial: all but coordinate 0 hold zeros
  std::vector<int64_t> owned;     // newly partial: the owner keeps its piece

  Sums(const Side& from, const PlanState& before, const PlanState& after)
      : combined(difference(before.partial, after.partial)), kept(difference(before.partial, combined)) {
    for (int64_t atom : difference(after.partial, before.partial)) {
      const bool isOwned = std::ranges::any_of(from.owners, [&](const auto& atoms) { return contains(atoms, atom); });
      (isOwned ? owned : zeros).push_back(atom);
    }
  }
};

TileMessages messagesOf(const CommStep& step, const std::vector<int64_t>& extents) {
  const Side from(step.on.atoms, step.before);
  const Side to(step.to->atoms, step.after);
  const Sums sums(from, step.before, step.after);
  const Overlaps overlaps = overlapsOf(step, extents, from, to);
  // Devices that hold the same piece of the same contribution, by the number of the piece in every dim and the contribution.
  std::map<std::vector<int64_t>, std::vector<int64_t>> pieces;
  for (const int64_t position : indices(from.at)) {
    const auto number = [&](const std::vector<int64_t>& atoms) {
      return positionAmong(atoms, from.at[position], from.sizes);
    };
    std::vector<int64_t> key = mapped(from.owners, number);
    key.push_back(number(sums.combined));
    key.push_back(number(sums.kept));
    pieces[key].push_back(position);
  }
  const std::vector<std::vector<int64_t>> numbers = mapped(pieces, [](const auto& piece) { return piece.first; });
  const std::vector<std::vector<int64_t>> holders = mapped(pieces, [](const auto& piece) { return piece.second; });
  return tileMessages(step.on.atoms, step.to->atoms, holders, [&](int64_t piece, int64_t reader) {
    const std::vector<int64_t>& holder = from.at[holders[piece].front()];
    const std::vector<int64_t>& mine = to.at[reader];
    const auto differs = [&](int64_t atom) { return holder[atom] != mine[atom]; };
    if (std::ranges::any_of(sums.zeros, [&](int64_t atom) { return mine[atom] != 0; }) ||
        std::ranges::any_of(sums.kept, differs) || std::ranges::any_of(sums.owned, differs)) {
      return int64_t{0};
    }
    int64_t n = 1;
    for (int64_t k = 0; k < std::ssize(overlaps) && n > 0; k++) {
      n *= overlaps[k][numbers[piece][k]][positionAmong(to.owners[k], mine, to.sizes)];
    }
    return n;
  });
}

}  // namespace

TileTransfer tileTransfer(const CommStep& step, const std::vector<int64_t>& extents) {
  const DeviceMesh& from = step.on.atoms;
  const DeviceMesh& to = step.to->atoms;
  if (!(step.before.partial.empty() && step.after.partial.empty()) && !(from == to)) {
    throwInternalError(fmt::format("[transfer] partial sums cannot move from mesh {} to mesh {}; combine them first",
                                   from.toString(), to.toString()));
  }
  return {messagesOf(step, extents), from, to, step.before, step.after};
}

}  // namespace meshfuse
