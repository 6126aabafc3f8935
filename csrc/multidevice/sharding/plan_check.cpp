#include "multidevice/sharding/plan_check.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/index_set.h"
#include "multidevice/sharding/tile_transfer.h"

namespace meshfuse {

namespace {

using Tile = std::vector<IndexSet>;  // one set a dim

int64_t countOf(const Tile& tile) {
  int64_t n = 1;
  for (const IndexSet& s : tile) {
    n *= s.count();
  }
  return n;
}

int64_t shared(const Tile& a, const Tile& b) {
  int64_t n = 1;
  for (size_t k = 0; k < a.size(); k++) {
    n *= a[k].countShared(b[k]);
  }
  return n;
}

// What every device of a mesh holds, by position.
struct Holdings {
  std::vector<Tile> tiles;
  std::vector<std::vector<int64_t>> at;
};

std::vector<int64_t> sizesOf(const DeviceMesh& mesh) {
  std::vector<int64_t> sizes;
  for (int a = 0; a < mesh.numAxes(); a++) {
    sizes.push_back(mesh.axisSize(a).constValue());
  }
  return sizes;
}

class Checker {
 public:
  Checker(std::vector<int64_t> extents, const CommStep& step) : extents_(std::move(extents)), step_(step) {
    for (size_t k = 0; k < extents_.size(); k++) {
      units_.push_back(indexUnit(extents_[k], step.before, step.after, k));
    }
    before_ = holdings(step.mesh, step.before);
    after_ = holdings(step.transfer ? step.transfer->toMesh : step.mesh, step.after);
  }

  void run(int64_t bound) {
    for (const Tile& tile : after_.tiles) {
      require(countOf(tile) <= bound, "leaves the bound");
    }
    int64_t most = 0;
    for (size_t r = 0; r < after_.tiles.size() && !step_.transfer; r++) {
      most = std::max(most, countOf(after_.tiles[r]) - shared(before_.tiles[r], after_.tiles[r]));
      checkDevice(r);
    }
    switch (step_.kind) {
      case StepKind::Permute:
      case StepKind::AllToAll:
      case StepKind::AllToAllV:
      case StepKind::AllGather:
      case StepKind::AllGatherV:
        require(most == step_.elements, "receives another number of elements than planned");
        break;
      case StepKind::Transfer:
      case StepKind::TransferPartial:
        checkTransfer();
        break;
      default:
        break;
    }
  }

 private:
  void require(bool holds, std::string_view what) const {
    if (!holds) {
      throwInternalError(fmt::format("[planner] step {} {}", step_.toString(), what));
    }
  }

  Holdings holdings(const DeviceMesh& mesh, const PlanState& state) const {
    Holdings out;
    const std::vector<int64_t> sizes = sizesOf(mesh);
    for (int64_t position = 0; position < mesh.numDevices(); position++) {
      std::vector<int64_t> c(sizes.size());
      int64_t rest = position;
      for (size_t a = sizes.size(); a-- > 0;) {
        c[a] = rest % sizes[a];
        rest /= sizes[a];
      }
      Tile tile;
      for (size_t k = 0; k < extents_.size(); k++) {
        tile.emplace_back(
            state.dims[k], extents_[k], units_[k], [&](int atom) { return c[atom]; }, state.partsOf(k));
      }
      out.tiles.push_back(std::move(tile));
      out.at.push_back(std::move(c));
    }
    return out;
  }

  // Positions of the devices that differ from `r` in these atoms only.
  std::vector<size_t> teamOf(size_t r, const std::vector<int>& atoms) const {
    std::vector<size_t> team;
    for (size_t q = 0; q < before_.at.size(); q++) {
      bool same = true;
      for (size_t a = 0; a < before_.at[q].size() && same; a++) {
        same = before_.at[q][a] == before_.at[r][a] || std::count(atoms.begin(), atoms.end(), static_cast<int>(a)) > 0;
      }
      if (same) {
        team.push_back(q);
      }
    }
    return team;
  }

  std::vector<int64_t> contribution(size_t q, const std::vector<int>& atoms) const {
    std::vector<int64_t> c;
    for (int a : atoms) {
      c.push_back(before_.at[q][a]);
    }
    return c;
  }

  bool holdsAll(size_t q, size_t r) const {
    const Tile& wanted = after_.tiles[r];
    return countOf(wanted) == 0 || shared(before_.tiles[q], wanted) == countOf(wanted);
  }

  void checkDevice(size_t r) const {
    const std::vector<size_t> team = teamOf(r, step_.axes);
    std::vector<int> partial = step_.before.partial;
    switch (step_.kind) {
      case StepKind::Slice:
        require(holdsAll(r, r), "slices what is not there");
        require(step_.before.partial == step_.after.partial, "loses a sum");
        break;
      case StepKind::ToPartial: {
        partial.insert(partial.end(), step_.axes.begin(), step_.axes.end());
        std::sort(partial.begin(), partial.end());
        require(partial == step_.after.partial, "makes another sum");
        checkSpread(r, team);
        break;
      }
      case StepKind::Permute:
      case StepKind::PermutePartial: {
        const auto source = static_cast<size_t>(step_.sources[r]);
        require(std::count(team.begin(), team.end(), source) == 1, "receives from outside the team");
        require(before_.tiles[source] == after_.tiles[r], "receives another tile");
        std::set<std::vector<int64_t>> contributions;
        const std::vector<size_t> summed = teamOf(r, step_.after.partial);
        for (size_t q : summed) {
          contributions.insert(contribution(static_cast<size_t>(step_.sources[q]), step_.before.partial));
        }
        require(contributions.size() == summed.size(), "counts a contribution twice");
        break;
      }
      case StepKind::AllReduce:
      case StepKind::ReduceScatter:
      case StepKind::ReduceScatterV:
        std::erase_if(partial, [&](int a) { return std::count(step_.axes.begin(), step_.axes.end(), a) > 0; });
        require(partial == step_.after.partial && step_.before.partial.size() == partial.size() + step_.axes.size(),
                "sums over other axes");
        for (size_t q : team) {
          require(holdsAll(q, r), "sums what a rank does not hold");
        }
        break;
      default:
        checkGathered(r, team);
        break;
    }
  }

  // Tiles of a team are equal or disjoint: each distinct one counts once.
  void checkGathered(size_t r, const std::vector<size_t>& team) const {
    require(step_.before.partial == step_.after.partial, "loses a sum");
    std::set<Tile> distinct;
    int64_t found = 0;
    std::set<int64_t> counts;
    for (size_t q : team) {
      const int64_t n = shared(before_.tiles[q], after_.tiles[r]);
      found += distinct.insert(before_.tiles[q]).second ? n : 0;
      counts.insert(n);
    }
    require(found == countOf(after_.tiles[r]), "delivers what nobody holds");
    const bool even = step_.kind == StepKind::AllToAll || step_.kind == StepKind::AllGather;
    require(!even || counts.size() == 1, "exchanges unevenly");
  }

  // Of a new sum every element is counted once: by its owner, or by coordinate 0.
  void checkSpread(size_t r, const std::vector<size_t>& team) const {
    int64_t found = 0;
    const std::vector<int> owners = usedAtoms(step_.before);
    const bool owned = std::binary_search(owners.begin(), owners.end(), step_.axes[0]);
    for (size_t q : team) {
      found += owned || before_.at[q][step_.axes[0]] == 0 ? shared(before_.tiles[q], after_.tiles[r]) : 0;
    }
    require(found == countOf(after_.tiles[r]), "counts an element of the sum twice, or never");
  }

  // Every element comes as often as contributions to it are added up, counted by messages and what is kept.
  void checkTransfer() const {
    const TileTransfer& t = *step_.transfer;
    std::vector<int64_t> got(after_.tiles.size(), 0);
    for (const std::vector<TileMessage>* list : {&t.messages, &t.kept}) {
      for (const TileMessage& m : *list) {
        got[static_cast<size_t>(t.toMesh.indexOf(m.to))] += m.elements;
      }
    }
    int64_t contributions = 1;
    std::vector<int> fresh;
    for (int a : t.before.partial) {
      contributions *=
          std::count(t.after.partial.begin(), t.after.partial.end(), a) > 0 ? 1 : t.fromMesh.axisSize(a).constValue();
    }
    for (int a : t.after.partial) {
      if (std::count(t.before.partial.begin(), t.before.partial.end(), a) == 0) {
        fresh.push_back(a);
      }
    }
    for (size_t r = 0; r < got.size(); r++) {
      const int64_t all = contributions * countOf(after_.tiles[r]);
      require(got[r] <= all && (!fresh.empty() || got[r] == all), "transfers another number of elements");
    }
  }

  std::vector<int64_t> extents_;
  const CommStep& step_;
  std::vector<int64_t> units_;
  Holdings before_;
  Holdings after_;
};

// The digits of one dim as a rank of the tensor's mesh has them.
IndexSet setOf(const DigitList& dim, int64_t extent, const std::vector<int64_t>& at) {
  PlanDim digits;
  std::vector<int64_t> values;
  for (const Digit& d : dim.digits()) {
    const bool owned = d.owner.isDevice();
    digits.push_back({d.stride.constValue(), d.size.constValue(), owned ? static_cast<int>(values.size()) : kLocal});
    if (owned) {
      values.push_back(at[d.owner.axis] / d.owner.below.constValue() % d.size.constValue());
    }
  }
  std::vector<int64_t> parts;
  for (size_t part = 0; dim.hasParts() && part < dim.digits().front().parts.size(); part++) {
    parts.push_back(dim.digits().front().parts[part].constValue());
  }
  return IndexSet(
      digits, extent, 1, [&](int k) { return values[k]; }, parts);
}

// The state of a step against a state of the tensor, which one end of the plan is.
void checkEnd(const ShardState& state, const DeviceMesh& mesh, const PlanState& reached, const DeviceMesh& tensorMesh,
              const std::vector<int64_t>& extents, std::string_view where) {
  invariant(tensorMesh.devices() == state.mesh.devices(), "[planner] the plan {} on another mesh", where);
  const std::vector<int64_t> sizes = sizesOf(mesh);
  for (int64_t id : state.mesh.devices()) {
    const std::vector<int64_t> atoms = mesh.coordinates(id);
    const std::vector<int64_t> axes = state.mesh.coordinates(id);
    for (size_t k = 0; k < extents.size(); k++) {
      const IndexSet held(
          reached.dims[k], extents[k], 1, [&](int atom) { return atoms[atom]; }, reached.partsOf(k));
      if (!(held == setOf(state.dims[k], extents[k], axes))) {
        throwInternalError(fmt::format("[planner] the plan {} at another state than {}", where, state.toString()));
      }
    }
  }
  int64_t summed = 1;
  for (int a : reached.partial) {
    summed *= sizes[a];
  }
  int64_t wanted = 1;
  for (int a : state.partial) {
    wanted *= state.mesh.axisSize(a).constValue();
  }
  if (summed != wanted) {
    throwInternalError(fmt::format("[planner] the plan {} with other sums than {}", where, state.toString()));
  }
}

}  // namespace

void checkPlan(const RedistributionPlan& plan, const ShardState& from, const ShardState& to, int64_t bound) {
  std::vector<int64_t> extents;
  for (const DigitList& dim : from.dims) {
    extents.push_back(dim.extent().constValue());
  }
  for (const CommStep& step : plan.steps) {
    Checker(extents, step).run(bound);
  }
  if (plan.steps.empty()) {
    if (!provenEqual(from, to)) {
      throwInternalError(fmt::format("[planner] no step from {} to {}", from.toString(), to.toString()));
    }
    return;
  }
  const CommStep& first = plan.steps.front();
  const CommStep& last = plan.steps.back();
  checkEnd(from, first.mesh, first.before, first.tensorMesh, extents, "starts");
  checkEnd(to, last.transfer ? last.transfer->toMesh : last.mesh, last.after,
           last.transfer ? last.transfer->toMesh : last.tensorMesh, extents, "ends");
  for (size_t i = 1; i < plan.steps.size(); i++) {
    const CommStep& earlier = plan.steps[i - 1];
    const CommStep& later = plan.steps[i];
    if (!earlier.transfer && earlier.mesh == later.mesh) {
      if (!(earlier.after == later.before)) {
        throwInternalError(
            fmt::format("[planner] step {} does not start where {} ends", later.toString(), earlier.toString()));
      }
    }
  }
}

}  // namespace meshfuse
