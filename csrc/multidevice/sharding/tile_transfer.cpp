#include "multidevice/sharding/tile_transfer.h"

#include <algorithm>
#include <map>

#include "base/error.h"
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

bool contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::vector<int> difference(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> out;
  std::copy_if(a.begin(), a.end(), std::back_inserter(out), [&](int x) { return !contains(b, x); });
  return out;
}

// The tiles of one side: by dim the owners, and the coordinates of every device.
struct Side {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int>> owners;
  std::vector<std::vector<int64_t>> at;  // by position

  Side(const DeviceMesh& mesh, const PlanState& state) : sizes(mesh.axisSizes()) {
    for (const PlanDim& dim : state.dims) {
      owners.push_back(ownersOf(dim));
    }
    for (int64_t position = 0; position < mesh.numDevices(); position++) {
      at.push_back(coordinatesAt(position, sizes));
    }
  }

  int64_t number(const std::vector<int>& atoms, const std::vector<int64_t>& coordinates) const {
    int64_t n = 0;
    for (int atom : atoms) {
      n = n * sizes[atom] + coordinates[atom];
    }
    return n;
  }

  int64_t tiles(size_t dim) const {
    int64_t n = 1;
    for (int atom : owners[dim]) {
      n *= sizes[atom];
    }
    return n;
  }

  std::vector<IndexSet> sets(size_t dim, const PlanState& state, int64_t extent, int64_t unit) const {
    std::vector<IndexSet> out(tiles(dim));
    std::vector<bool> known(out.size(), false);
    for (const std::vector<int64_t>& c : at) {
      const auto tile = static_cast<size_t>(number(owners[dim], c));
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
    const std::vector<IndexSet> held = from.sets(k, before, extents[k], unit);
    const std::vector<IndexSet> needed = to.sets(k, after, extents[k], unit);
    for (const IndexSet& h : held) {
      out[k].emplace_back();
      for (const IndexSet& n : needed) {
        out[k].back().push_back(h.countShared(n));
      }
    }
  }
  return out;
}

// Devices that hold the same piece of the same contribution.
struct HeldTile {
  std::vector<int64_t> tile;     // number by dim
  std::vector<int64_t> holders;  // positions, ascending
};

// How partial sums move between the sides; empty without partial sums.
struct Sums {
  std::vector<int> combined;  // contributions that are added up
  std::vector<int> kept;      // atoms partial on both sides
  std::vector<int> zeros;     // newly partial: all but coordinate 0 hold zeros
  std::vector<int> owned;     // newly partial: the owner keeps its piece

  Sums(const Side& from, const PlanState& before, const PlanState& after) {
    combined = difference(before.partial, after.partial);
    kept = difference(before.partial, combined);
    for (int atom : difference(after.partial, before.partial)) {
      const bool isOwned = std::any_of(from.owners.begin(), from.owners.end(),
                                       [&](const std::vector<int>& o) { return contains(o, atom); });
      (isOwned ? owned : zeros).push_back(atom);
    }
  }
};

class Transfers {
 public:
  Transfers(TileTransfer& out, const Side& from, const Side& to, const Sums& sums)
      : out_(out),
        from_(from),
        to_(to),
        sums_(sums),
        overlaps_(overlapsOf(out.extents, from, out.before, to, out.after)),
        oneMesh_(out.fromMesh == out.toMesh) {
    load_.assign(from.at.size(), 0);
    std::map<std::vector<int64_t>, HeldTile> pieces;  // by tile and contribution
    for (size_t position = 0; position < from.at.size(); position++) {
      std::vector<int64_t> key;
      for (const std::vector<int>& owners : from.owners) {
        key.push_back(from.number(owners, from.at[position]));
      }
      std::vector<int64_t> tile = key;
      key.push_back(from.number(sums.combined, from.at[position]));
      key.push_back(from.number(sums.kept, from.at[position]));
      HeldTile& piece = pieces[key];
      piece.tile = std::move(tile);
      piece.holders.push_back(static_cast<int64_t>(position));
    }
    for (auto& [key, piece] : pieces) {
      pieces_.push_back(std::move(piece));
    }
  }

  void run() {
    std::vector<std::pair<size_t, const HeldTile*>> wanted;  // (reader, piece) pairs that need a message
    for (size_t r = 0; r < to_.at.size(); r++) {
      if (std::any_of(sums_.zeros.begin(), sums_.zeros.end(), [&](int a) { return to_.at[r][a] != 0; })) {
        continue;
      }
      const int64_t here = out_.fromMesh.indexOf(out_.toMesh.devices()[r]);
      for (const HeldTile& piece : pieces_) {
        const int64_t n = shared(piece, r);
        if (n == 0) {
          continue;
        }
        if (std::binary_search(piece.holders.begin(), piece.holders.end(), here)) {
          out_.kept.push_back({out_.toMesh.devices()[r], out_.toMesh.devices()[r], n});
        } else {
          wanted.emplace_back(r, &piece);
        }
      }
    }
    std::vector<int64_t> received(to_.at.size(), 0);
    std::vector<int64_t> in(to_.at.size(), 0);
    std::vector<int64_t> outgoing(from_.at.size(), 0);
    std::vector<bool> crossed(from_.sizes.size(), false);
    for (const auto& [r, piece] : wanted) {
      const int64_t q = sender(*piece, r);
      const int64_t n = shared(*piece, r);
      load_[q] += n;
      received[r] += n;
      out_.peers = std::max({out_.peers, ++outgoing[q], ++in[r]});
      out_.messages.push_back({out_.fromMesh.devices()[q], out_.toMesh.devices()[r], n});
      for (size_t a = 0; oneMesh_ && a < crossed.size(); a++) {
        crossed[a] = crossed[a] || from_.at[q][a] != to_.at[r][a];
      }
    }
    for (size_t a = 0; a < crossed.size(); a++) {
      if (crossed[a]) {
        out_.crossed.push_back(static_cast<int>(a));
      }
    }
    out_.received = received.empty() ? 0 : *std::max_element(received.begin(), received.end());
    out_.sent = load_.empty() ? 0 : *std::max_element(load_.begin(), load_.end());
  }

 private:
  int64_t shared(const HeldTile& piece, size_t r) const {
    const std::vector<int64_t>& holder = from_.at[piece.holders.front()];
    const std::vector<int64_t>& mine = to_.at[r];
    auto differs = [&](int atom) { return holder[atom] != mine[atom]; };
    if (std::any_of(sums_.kept.begin(), sums_.kept.end(), differs) ||
        std::any_of(sums_.owned.begin(), sums_.owned.end(), differs)) {
      return 0;
    }
    int64_t n = 1;
    for (size_t k = 0; k < overlaps_.size() && n > 0; k++) {
      n *= overlaps_[k][piece.tile[k]][to_.number(to_.owners[k], mine)];
    }
    return n;
  }

  // Chooses the holder that has sent the fewest elements, then the one that differs in the fewest coordinates, then the first.
  int64_t sender(const HeldTile& piece, size_t r) const {
    auto rank = [&](int64_t q) {
      int64_t apart = 0;
      for (size_t a = 0; oneMesh_ && a < from_.sizes.size(); a++) {
        apart += from_.at[q][a] != to_.at[r][a] ? 1 : 0;
      }
      return std::tuple(load_[q], apart, q);
    };
    return *std::min_element(piece.holders.begin(), piece.holders.end(),
                             [&](int64_t a, int64_t b) { return rank(a) < rank(b); });
  }

  TileTransfer& out_;
  const Side& from_;
  const Side& to_;
  const Sums& sums_;
  Overlaps overlaps_;
  bool oneMesh_;
  std::vector<HeldTile> pieces_;
  std::vector<int64_t> load_;  // elements sent, by position
};

}  // namespace

TileTransfer tileTransfer(const std::vector<int64_t>& extents, const DeviceMesh& fromMesh, const PlanState& before,
                          const DeviceMesh& toMesh, const PlanState& after) {
  if (!(before.partial.empty() && after.partial.empty()) && !(fromMesh == toMesh)) {
    throwInternalError(fmt::format("[transfer] partial sums cannot move from mesh {} to mesh {}; combine them first",
                                   fromMesh.toString(), toMesh.toString()));
  }
  TileTransfer out{fromMesh, toMesh, before, after, extents, {}, {}, 0, 0, 0, {}};
  const Side from(fromMesh, before);
  const Side to(toMesh, after);
  const Sums sums(from, before, after);
  Transfers(out, from, to, sums).run();
  return out;
}

TileTransfer tileTransfer(const CommStep& step, const std::vector<int64_t>& extents) {
  return tileTransfer(extents, step.on.atoms, step.before, step.to->atoms, step.after);
}

}  // namespace meshfuse
