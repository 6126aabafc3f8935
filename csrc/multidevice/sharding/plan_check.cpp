#include "multidevice/sharding/plan_check.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <ranges>
#include <set>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/held_tiles.h"
#include "multidevice/sharding/step_amounts.h"
#include "multidevice/sharding/tile_transfer.h"

namespace meshfuse {

namespace {

// Thrown for the first mistake found.
struct Mistake {
  std::string text;
};

class Checker {
 public:
  Checker(const std::vector<int64_t>& extents, const CommStep& step) : extents_(extents), step_(step) {
    require(isOfTensor(step.before) && isOfTensor(step.after), "has digits that do not match the tensor");
    const bool isPermutation = step.kind == Collective::Transfer && !step.to;
    require(isPermutation == !step.sources.empty() && (!isPermutation || areDevices(step.sources)),
            "receives from ranks that do not exist");
    require(!step.communicates() || !step.axes.empty() || step.to, "has no team");
    require(step.to || hasOwnersOfItsKind(), "assigns a dim to axes that this kind of step cannot assign");
    const std::vector<int64_t> units = indexUnits(step, extents);
    before_ = heldTiles(step.on.atoms, step.before, extents, units);
    after_ = heldTiles(step.to ? step.to->atoms : step.on.atoms, step.after, extents, units);
  }

  void run(int64_t bound) {
    for (const Tile& tile : after_.tiles) {
      require(countOf(tile) <= bound, "exceeds the bound");
    }
    if (step_.to) {
      checkTransfer();
      return;
    }
    for (int64_t r = 0; r < std::ssize(after_.tiles); r++) {
      checkDevice(r);
    }
  }

 private:
  void require(bool holds, std::string_view what) const {
    if (!holds) {
      throw Mistake{fmt::format("step {} {}", step_.toString(), what)};
    }
  }

  // The digits of each dim fill it; the top one may reach beyond its end.
  bool isOfTensor(const PlanState& state) const {
    bool fits = state.dims.size() == extents_.size();
    for (int64_t k = 0; fits && k < std::ssize(extents_); k++) {
      const std::span<const int64_t> parts = state.partsOf(k);
      const int64_t places = parts.empty() ? extents_[k] : paddedExtent(parts);
      fits = parts.empty() || sumOf(parts) == extents_[k];
      int64_t below = 1;
      for (auto d = state.dims[k].rbegin(); fits && d != state.dims[k].rend(); ++d) {
        fits = d->stride == below;
        below *= d->size;
      }
      fits = fits && below >= places;
    }
    return fits;
  }

  // Compares the axes that own digits before and after: the kind says whether the team loses, keeps or gains digits.
  bool hasOwnersOfItsKind() const {
    const std::vector<int64_t> before = usedAtoms(step_.before);
    const std::vector<int64_t> after = usedAtoms(step_.after);
    std::set<int64_t> team;
    for (const int64_t axis : step_.axes) {
      if (!step_.on.atoms.axisSize(axis).isConst(1)) {  // an axis of one owns no digit
        team.insert(axis);
      }
    }
    std::vector<int64_t> expected;
    const CollectiveTraits& kind = traits(step_.kind);
    if (!kind.operandHasBlocks && !kind.resultHasBlocks) {
      return !kind.reduces || step_.after.dims == step_.before.dims;
    }
    if (kind.operandHasBlocks == kind.resultHasBlocks) {
      return after == before;
    }
    if (kind.resultHasBlocks) {
      std::ranges::set_difference(before, team, std::back_inserter(expected));
    } else {
      std::ranges::set_union(before, team, std::back_inserter(expected));
    }
    return after == expected;
  }

  bool areDevices(const std::vector<int64_t>& positions) const {
    const int64_t count = step_.on.mesh.numDevices();
    return std::ssize(positions) == count &&
           std::ranges::all_of(positions, [&](int64_t p) { return p >= 0 && p < count; });
  }

  // Positions of the devices that differ from `r` in these atoms only.
  std::vector<int64_t> teamOf(int64_t r, const std::vector<int64_t>& atoms) const {
    return filtered(indices(before_.at), [&](int64_t q) {
      return std::ranges::all_of(indices(before_.at[q]),
                                 [&](int64_t a) { return before_.at[q][a] == before_.at[r][a] || contains(atoms, a); });
    });
  }

  bool holdsAll(int64_t q, int64_t r) const {
    const Tile& wanted = after_.tiles[r];
    return countOf(wanted) == 0 || countShared(before_.tiles[q], wanted) == countOf(wanted);
  }

  void checkDevice(int64_t r) const {
    const std::vector<int64_t> team = teamOf(r, step_.axes);
    std::vector<int64_t> partial = step_.before.partial;
    switch (step_.kind) {
      case Collective::Local:
        if (step_.before.partial == step_.after.partial) {
          require(holdsAll(r, r), "slices elements that a rank does not hold");
          break;
        }
        append(partial, step_.axes);
        std::ranges::sort(partial);
        require(partial == step_.after.partial, "makes a different partial sum than planned");
        checkSpread(r, team);
        break;
      case Collective::Transfer: {
        const int64_t source = step_.sources[r];
        require(contains(team, source), "receives from outside the team");
        require(before_.tiles[source] == after_.tiles[r], "receives a different tile than planned");
        std::set<std::vector<int64_t>> contributions;
        const std::vector<int64_t> summed = teamOf(r, step_.after.partial);
        for (int64_t q : summed) {
          const std::vector<int64_t>& sender = before_.at[step_.sources[q]];
          contributions.insert(mapped(step_.before.partial, [&](int64_t atom) { return sender[atom]; }));
        }
        require(contributions.size() == summed.size(), "counts a contribution twice");
        break;
      }
      case Collective::AllReduce:
      case Collective::ReduceScatter:
        std::erase_if(partial, [&](int64_t a) { return contains(step_.axes, a); });
        require(partial == step_.after.partial && step_.before.partial.size() == partial.size() + step_.axes.size(),
                "sums over different axes than planned");
        for (int64_t q : team) {
          require(holdsAll(q, r), "sums elements that a rank does not hold");
        }
        break;
      default:
        checkGathered(r, team);
        break;
    }
  }

  // Tiles of a team are equal or disjoint: each distinct one counts once.
  void checkGathered(int64_t r, const std::vector<int64_t>& team) const {
    require(step_.before.partial == step_.after.partial, "loses a sum");
    std::set<Tile> distinct;
    int64_t found = 0;
    std::set<int64_t> counts;
    for (int64_t q : team) {
      const int64_t n = countShared(before_.tiles[q], after_.tiles[r]);
      found += distinct.insert(before_.tiles[q]).second ? n : 0;
      counts.insert(n);
    }
    require(found == countOf(after_.tiles[r]), "delivers elements that no rank holds");
    require(!isEven(step_, extents_) || counts.size() == 1, "exchanges unevenly");
  }

  // A new partial sum counts every element once: at its owner, or at coordinate 0.
  void checkSpread(int64_t r, const std::vector<int64_t>& team) const {
    int64_t found = 0;
    const bool owned = contains(usedAtoms(step_.before), step_.axes[0]);
    for (int64_t q : team) {
      found += owned || before_.at[q][step_.axes[0]] == 0 ? countShared(before_.tiles[q], after_.tiles[r]) : 0;
    }
    require(found == countOf(after_.tiles[r]), "does not count each element of the sum once");
  }

  // Messages and kept tiles bring every element once for each contribution to it.
  void checkTransfer() const {
    const TileTransfer t = tileTransfer(step_, extents_);
    std::vector<int64_t> got(after_.tiles.size(), 0);
    for (const std::vector<TileMessage>* list : {&t.messages, &t.kept}) {
      for (const TileMessage& m : *list) {
        got[t.toMesh.indexOf(m.to)] += m.elements;
      }
    }
    const int64_t contributions = productOf(t.before.partial, [&](int64_t a) {
      return contains(t.after.partial, a) ? int64_t{1} : t.fromMesh.axisSize(a).constValue();
    });
    const bool spreads =
        std::ranges::any_of(t.after.partial, [&](int64_t a) { return !contains(t.before.partial, a); });
    for (int64_t r = 0; r < std::ssize(got); r++) {
      const int64_t all = contributions * countOf(after_.tiles[r]);
      require(got[r] <= all && (spreads || got[r] == all), "transfers a different number of elements than planned");
    }
  }

  const std::vector<int64_t>& extents_;
  const CommStep& step_;
  HeldTiles before_;
  HeldTiles after_;
};

bool areEqual(const IndexRuns& a, const IndexRuns& b) {
  return countOf(a) == countOf(b) && countOf(intersection(a, b)) == countOf(a);
}

// Compares the first or last state of the plan with the state of the tensor. `where`: the step, and "starts" or "ends".
void checkEnd(const ShardState& state, const RefinedMesh& on, const PlanState& reached,
              const std::vector<int64_t>& extents, const std::string& where) {
  if (on.mesh.devices() != state.mesh.devices()) {
    throw Mistake{fmt::format("{} on a different mesh than {}", where, state.toString())};
  }
  for (int64_t id : state.mesh.devices()) {
    const Part held = heldPart(reached, extents, on.atoms.coordinates(id));
    if (!std::ranges::equal(held.dims, heldPart(state, id).dims, areEqual)) {
      throw Mistake{fmt::format("{} at a different state than {}", where, state.toString())};
    }
  }
  if (on.atoms.teamSize(reached.partial) != state.mesh.teamSize(state.partial)) {
    throw Mistake{fmt::format("{} with different partial sums than {}", where, state.toString())};
  }
}

void checkSteps(std::span<const CommStep> steps, const ShardState& from, const ShardState& to, int64_t bound) {
  const std::vector<int64_t> extents = from.constantShape();
  for (const CommStep& step : steps) {
    Checker(extents, step).run(bound);
  }
  if (steps.empty()) {
    if (!provenEqual(from, to) && !contains(extents, 0)) {
      throw Mistake{fmt::format("the plan has no step, expected a first one that starts at {}", from.toString())};
    }
    return;
  }
  const CommStep& first = steps.front();
  const CommStep& last = steps.back();
  checkEnd(from, first.on, first.before, extents, fmt::format("the first step, {}, starts", first.toString()));
  checkEnd(to, last.to ? *last.to : last.on, last.after, extents,
           fmt::format("the last step, {}, ends", last.toString()));
  for (int64_t i = 1; i < std::ssize(steps); i++) {
    const CommStep& earlier = steps[i - 1];
    const CommStep& later = steps[i];
    const RefinedMesh& reached = earlier.to ? *earlier.to : earlier.on;
    // A replicated tensor may continue with any order of the ranks.
    const bool isWhole = usedAtoms(earlier.after).empty() && usedAtoms(later.before).empty() &&
                         haveSameDevices(reached.mesh, later.on.mesh);
    const bool meets = reached == later.on ? earlier.after == later.before
                                           : isWhole || reached.mesh.devices() == later.on.mesh.devices();
    if (!meets) {
      throw Mistake{
          fmt::format("step {} does not begin with the state at the end of {}", later.toString(), earlier.toString())};
    }
  }
}

std::optional<std::string> mistakeIn(std::span<const CommStep> steps, const ShardState& from, const ShardState& to,
                                     int64_t bound) {
  try {
    checkSteps(steps, from, to, bound);
  } catch (const Mistake& mistake) {
    return mistake.text;
  }
  return std::nullopt;
}

}  // namespace

void checkPlan(const RedistributionPlan& plan, const ShardState& from, const ShardState& to, int64_t bound) {
  if (const std::optional<std::string> mistake = mistakeIn(plan.steps, from, to, bound)) {
    throwInternalError("[planner] " + *mistake);
  }
  const int64_t received =
      sumOf(plan.steps, [&](const CommStep& step) { return elementsReceived(step, from.constantShape()); });
  invariant(received == plan.elements, "[planner] the plan receives {} elements, its steps {}", plan.elements,
            received);
}

std::optional<std::string> mistakeOf(std::span<const CommStep> steps, const ShardState& from, const ShardState& to) {
  for (const CommStep& step : steps) {
    const bool isSum = !step.before.partial.empty() || !step.after.partial.empty();
    if (isSum && !reduces(step.kind) &&
        (step.before.partial != step.after.partial || step.kind == Collective::Transfer)) {
      return fmt::format("step {} moves a sum before it is combined", step.toString());
    }
  }
  return mistakeIn(steps, from, to, std::numeric_limits<int64_t>::max());
}

}  // namespace meshfuse
