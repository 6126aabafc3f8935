#include "multidevice/sharding/moves.h"

#include <algorithm>
#include <bit>

#include "multidevice/sharding/permutes.h"

namespace meshfuse {

namespace {

constexpr size_t kAllSubsetsUpTo = 5;

// Subsets of at least `least` atoms, smaller ones first; of many atoms only the smallest and the whole.
std::vector<AtomSet> subsets(AtomSet atoms, size_t least) {
  const std::vector<int> items = atomsOf(atoms);
  std::vector<AtomSet> out;
  for (size_t size = least; size <= items.size(); size++) {
    if (items.size() > kAllSubsetsUpTo && size != least && size != items.size()) {
      continue;
    }
    std::vector<bool> taken(items.size(), false);
    std::fill_n(taken.begin(), size, true);
    do {
      AtomSet set = 0;
      for (size_t i = 0; i < items.size(); i++) {
        set |= taken[i] ? atomBit(items[i]) : 0;
      }
      out.push_back(set);
    } while (std::prev_permutation(taken.begin(), taken.end()));
  }
  return out;
}

double leastOf(const std::vector<double>& costs) {
  return costs.empty() ? 1 : *std::min_element(costs.begin(), costs.end());
}

double largestOf(const std::vector<double>& costs, AtomSet atoms) {
  double most = 0;
  for (; atoms != 0; atoms &= atoms - 1) {
    most = std::max(most, costs[std::countr_zero(atoms)]);
  }
  return most;
}

}  // namespace

double MovePrices::leastCall() const { return leastOf(alpha); }
double MovePrices::call(AtomSet atoms) const { return largestOf(alpha, atoms); }
double MovePrices::least() const { return leastOf(beta); }
double MovePrices::dearest(AtomSet atoms) const { return largestOf(beta, atoms); }

bool MovePrices::uniform() const {
  const auto isUniform = [](const std::vector<double>& costs) {
    return std::all_of(costs.begin(), costs.end(), [&](double c) { return c == costs.front(); });
  };
  return isUniform(alpha) && isUniform(beta);
}

MoveMaker::MoveMaker(PlanSpace& space, MovePrices prices, StepSet steps, bool spareSlices)
    : space_(space), prices_(std::move(prices)), steps_(steps), spareSlices_(spareSlices) {}

void MoveMaker::add(StepKind kind, AtomSet group, const SearchState& after, std::vector<Move>& out) const {
  if (steps_.has(kind)) {
    out.push_back({kind, group, after});
  }
}

void MoveMaker::addExchange(const SearchState& before, AtomSet group, const SearchState& after,
                            std::vector<Move>& out) const {
  if (steps_.has(StepKind::AllToAllV) || steps_.has(StepKind::AllToAll)) {
    add(space_.even(before, after, group) ? StepKind::AllToAll : StepKind::AllToAllV, group, after, out);
  }
}

void MoveMaker::moves(const SearchState& state, std::vector<Move>& out) {
  const AtomSet used = space_.used(state);
  const AtomSet combined = state.partial & ~space_.to().partial;
  const size_t first = out.size();
  addSlices(state, used, out);
  if (out.size() > first && out.back().kind == StepKind::ToPartial && combined == 0 && (out.back().group & used) == 0) {
    out.erase(out.begin() + static_cast<ptrdiff_t>(first), out.end() - 1);  // it costs nothing and is to be done anyway
    return;
  }
  addExchanges(state, used, out);
  addReductions(state, combined, out);
  if (state.permuted == 0) {
    addPermutes(state, out);
  }
}

void MoveMaker::addSlices(const SearchState& state, AtomSet used, std::vector<Move>& out) {
  const AtomSet combined = state.partial & ~space_.to().partial;
  const bool spread = spareSlices_ || combined != 0;
  for (int atom = 0; atom < space_.numAtoms(); atom++) {
    if (((used | state.partial) & atomBit(atom)) != 0 || space_.atomSize(atom) == 1) {
      continue;
    }
    if ((space_.to().partial & atomBit(atom)) != 0) {
      SearchState after = state;
      after.partial |= atomBit(atom);
      add(StepKind::ToPartial, atomBit(atom), after, out);
      if (combined == 0) {
        return;
      }
    } else if (space_.goal(atom).dim >= 0 || spread) {
      for (int k = 0; k < space_.numDims(); k++) {
        for (DimId id : space_.places(k, state.dims[k], atom)) {
          SearchState after = state;
          after.dims[k] = id;
          add(StepKind::Slice, atomBit(atom), after, out);
        }
      }
    }
  }
}

void MoveMaker::addExchanges(const SearchState& state, AtomSet used, std::vector<Move>& out) {
  for (int atom : atomsOf(used)) {
    const SearchState freed = space_.drop(state, atomBit(atom));
    if ((space_.to().partial & atomBit(atom)) != 0) {
      SearchState after = freed;
      after.partial |= atomBit(atom);
      add(StepKind::ToPartial, atomBit(atom), after, out);
    }
    for (int k = 0; k < space_.numDims(); k++) {
      for (DimId id : space_.places(k, freed.dims[k], atom)) {
        SearchState after = freed;
        after.dims[k] = id;
        if (after.dims != state.dims) {
          addExchange(state, atomBit(atom), after, out);
        }
      }
    }
  }
  const AtomSet astray = used & space_.goalAtoms() & ~space_.atGoal(state);
  for (AtomSet group : subsets(astray, 2)) {
    if (std::optional<SearchState> after = space_.putAtGoal(space_.drop(state, group), group)) {
      addExchange(state, group, *after, out);
    }
  }
  // An atom that will be gathered makes way in the same call.
  for (int spare : atomsOf(used & ~space_.goalAtoms() & ~space_.to().partial)) {
    for (AtomSet group : subsets(astray, 1)) {
      const AtomSet team = group | atomBit(spare);
      std::optional<SearchState> placed = space_.putAtGoal(space_.drop(state, team), group);
      for (int k = 0; placed && k < space_.numDims(); k++) {
        for (DimId id : space_.places(k, placed->dims[k], spare)) {
          SearchState after = *placed;
          after.dims[k] = id;
          addExchange(state, team, after, out);
        }
      }
    }
  }
}

void MoveMaker::addReductions(const SearchState& state, AtomSet combined, std::vector<Move>& out) {
  auto addScatter = [&](AtomSet group, const SearchState& after) {
    add(space_.even(state, after, group) ? StepKind::ReduceScatter : StepKind::ReduceScatterV, group, after, out);
  };
  for (AtomSet group : subsets(combined, 1)) {
    SearchState after = state;
    after.partial &= ~group;
    add(StepKind::AllReduce, group, after, out);
    if (std::popcount(group) > 1) {
      if (std::optional<SearchState> placed = space_.putAtGoal(after, group)) {
        addScatter(group, *placed);
      }
      continue;
    }
    const int atom = std::countr_zero(group);
    for (int k = 0; k < space_.numDims(); k++) {
      for (DimId id : space_.places(k, after.dims[k], atom)) {
        SearchState scattered = after;
        scattered.dims[k] = id;
        addScatter(group, scattered);
      }
    }
  }
}

void MoveMaker::addPermutes(const SearchState& state, std::vector<Move>& out) {
  if (!steps_.has(StepKind::Permute)) {
    return;
  }
  for (const Reassignment& r : reassignments(space_, state, steps_.has(StepKind::PermutePartial))) {
    const StepKind kind = r.after.partial != state.partial ? StepKind::PermutePartial : StepKind::Permute;
    add(kind, r.moved, r.after, out);
  }
}

std::vector<Move> MoveMaker::gathers(const SearchState& state, AtomSet group) {
  const StepKind kind = space_.isRagged(state) ? StepKind::AllGatherV : StepKind::AllGather;
  if (group == 0 || !steps_.has(kind)) {
    return {};
  }
  std::vector<Move> whole{{kind, group, space_.drop(state, group)}};
  const std::vector<int> atoms = atomsOf(group);
  if (std::all_of(atoms.begin(), atoms.end(), [&](int a) { return prices_.beta[a] == prices_.beta[atoms[0]]; })) {
    return whole;
  }
  // The dearest link first, while there is least to move.
  std::vector<int> order = atoms;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return prices_.beta[a] > prices_.beta[b]; });
  std::vector<Move> single;
  SearchState at = state;
  for (int atom : order) {
    at = space_.drop(at, atomBit(atom));
    single.push_back({kind, atomBit(atom), at});
  }
  return cost(state, single) < cost(state, whole) ? single : whole;
}

std::vector<Move> MoveMaker::closingGathers(const SearchState& state) {
  const AtomSet group = space_.used(state) & ~space_.goalAtoms() & ~space_.to().partial;
  if (group == 0 || state.partial != space_.to().partial || space_.drop(state, group).dims != space_.to().dims) {
    return {};
  }
  return gathers(state, group);
}

std::vector<Move> MoveMaker::gatherThenSlice(const SearchState& state) {
  const AtomSet group = space_.used(state) & ~space_.atGoal(state);
  if (group == 0 || state.partial != space_.to().partial) {
    return {};
  }
  std::vector<Move> out = gathers(state, group);
  if (out.empty()) {
    return {};
  }
  std::optional<std::vector<Move>> slices = slicesToGoal(out.back().after);
  if (!slices) {
    return {};
  }
  out.insert(out.end(), slices->begin(), slices->end());
  return out.back().after.dims == space_.to().dims ? out : std::vector<Move>{};
}

std::optional<std::vector<Move>> MoveMaker::slicesToGoal(SearchState state) {
  std::vector<Move> out;
  AtomSet missing = space_.goalAtoms() & ~space_.used(state);
  while (missing != 0) {
    int next = -1;  // outer digits first
    for (int atom : atomsOf(missing)) {
      next = next < 0 || space_.goal(atom).stride > space_.goal(next).stride ? atom : next;
    }
    std::optional<SearchState> after = space_.putAtGoal(state, atomBit(next));
    if (!after) {
      return std::nullopt;
    }
    state = *after;
    out.push_back({StepKind::Slice, atomBit(next), state});
    missing &= ~atomBit(next);
  }
  return out;
}

double MoveMaker::received(const SearchState& before, const Move& move) {
  const double n = static_cast<double>(space_.sizeOf(move.group));
  switch (move.kind) {
    case StepKind::Slice:
    case StepKind::ToPartial:
      return 0;
    case StepKind::AllReduce:
      return 2 * static_cast<double>(space_.localSize(before)) * (n - 1) / n;
    case StepKind::ReduceScatter:
    case StepKind::ReduceScatterV:
      return (n - 1) * static_cast<double>(space_.localSize(move.after));
    case StepKind::PermutePartial:
      return static_cast<double>(space_.localSize(move.after));
    default:
      return static_cast<double>(space_.lacking(before, move.after));
  }
}

double MoveMaker::cost(const SearchState& before, const Move& move) {
  if (move.kind == StepKind::Slice || move.kind == StepKind::ToPartial) {
    return kTieCost;
  }
  const double tie = (move.kind == StepKind::AllToAllV ? kTieCost : 0) + 1e-6 * static_cast<double>(move.kind);
  return prices_.call(move.group) + tie + received(before, move) * prices_.dearest(move.group);
}

double MoveMaker::cost(SearchState before, const std::vector<Move>& chain) {
  double sum = 0;
  for (const Move& move : chain) {
    sum += cost(before, move);
    before = move.after;
  }
  return sum;
}

}  // namespace meshfuse
