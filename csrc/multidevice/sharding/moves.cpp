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
double MovePrices::costliest(AtomSet atoms) const { return largestOf(beta, atoms); }

bool MovePrices::uniform() const {
  const auto isUniform = [](const std::vector<double>& costs) {
    return std::all_of(costs.begin(), costs.end(), [&](double c) { return c == costs.front(); });
  };
  return isUniform(alpha) && isUniform(beta);
}

MoveMaker::MoveMaker(PlanSpace& space, MovePrices prices, AllowedMoves allowed, bool spareSlices)
    : space_(space), prices_(std::move(prices)), allowed_(std::move(allowed)), spareSlices_(spareSlices) {}

void MoveMaker::add(Collective kind, AtomSet group, const SearchState& after, bool plain,
                    std::vector<Move>& out) const {
  if (allowed_.has(kind)) {
    out.push_back({kind, group, after, plain});
  }
}

void MoveMaker::addExchange(const SearchState& before, AtomSet group, const SearchState& after,
                            std::vector<Move>& out) const {
  add(Collective::AllToAll, group, after, space_.even(before, after, group), out);
}

// The tensor becomes a partial sum over the atom.
void MoveMaker::addToSum(int atom, const SearchState& after, std::vector<Move>& out) const {
  if (allowed_.sums == PartialSums::Moved) {
    out.push_back({Collective::Local, atomBit(atom), after, false});
  }
}

void MoveMaker::moves(const SearchState& state, std::vector<Move>& out) {
  const AtomSet used = space_.used(state);
  const AtomSet combined = state.partial & ~space_.to().partial;
  const size_t first = out.size();
  addSlices(state, used, out);
  if (out.size() > first && out.back().after.partial != state.partial && combined == 0 &&
      (out.back().group & used) == 0) {
    out.erase(out.begin() + static_cast<ptrdiff_t>(first), out.end() - 1);  // the last move is free and needed
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
      addToSum(atom, after, out);
      if (combined == 0) {
        return;
      }
    } else if (space_.goal(atom).dim >= 0 || spread) {
      for (int k = 0; k < space_.numDims(); k++) {
        for (DimId id : space_.places(k, state.dims[k], atom)) {
          SearchState after = state;
          after.dims[k] = id;
          out.push_back({Collective::Local, atomBit(atom), after});
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
      addToSum(atom, after, out);
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
  // An atom that a later step gathers gives up its digit in the same call.
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
    add(Collective::ReduceScatter, group, after, space_.even(state, after, group), out);
  };
  for (AtomSet group : subsets(combined, 1)) {
    SearchState after = state;
    after.partial &= ~group;
    add(Collective::AllReduce, group, after, true, out);
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
  if (!allowed_.has(Collective::Transfer)) {
    return;
  }
  for (const Reassignment& r : reassignments(space_, state, allowed_.sums)) {
    add(Collective::Transfer, r.moved, r.after, r.after.partial == state.partial, out);
  }
}

std::vector<Move> MoveMaker::gathers(const SearchState& state, AtomSet group) {
  if (group == 0 || !allowed_.has(Collective::AllGather)) {
    return {};
  }
  const bool plain = !space_.isRagged(state);
  std::vector<Move> whole{{Collective::AllGather, group, space_.drop(state, group), plain}};
  const std::vector<int> atoms = atomsOf(group);
  if (std::all_of(atoms.begin(), atoms.end(), [&](int a) { return prices_.beta[a] == prices_.beta[atoms[0]]; })) {
    return whole;
  }
  // The most expensive link first, while the least data moves.
  std::vector<int> order = atoms;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return prices_.beta[a] > prices_.beta[b]; });
  std::vector<Move> single;
  SearchState at = state;
  for (int atom : order) {
    at = space_.drop(at, atomBit(atom));
    single.push_back({Collective::AllGather, atomBit(atom), at, plain});
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
    const int next = space_.outermost(missing);
    std::optional<SearchState> after = space_.putAtGoal(state, atomBit(next));
    if (!after) {
      return std::nullopt;
    }
    state = *after;
    out.push_back({Collective::Local, atomBit(next), state});
    missing &= ~atomBit(next);
  }
  return out;
}

double MoveMaker::received(const SearchState& before, const Move& move) {
  const bool sums = move.kind == Collective::Transfer && !move.plain;
  if (move.kind == Collective::Local || reduces(move.kind) || sums) {
    const auto after = static_cast<double>(space_.localSize(move.after));
    return sums ? after
                : amountReceived(move.kind, static_cast<double>(space_.localSize(before)), after,
                                 static_cast<double>(space_.sizeOf(move.group)));
  }
  return static_cast<double>(space_.lacking(before, move.after));
}

double MoveMaker::cost(const SearchState& before, const Move& move) {
  if (move.kind == Collective::Local) {
    return kTieCost;
  }
  // Of equal costs the collective that stands first in its enum, and of one kind the plain form.
  const double tie = (move.kind == Collective::AllToAll && !move.plain ? kTieCost : 0) +
                     1e-6 * (2 * static_cast<double>(move.kind) + (move.plain ? 0 : 1));
  return prices_.call(move.group) + tie + received(before, move) * prices_.costliest(move.group);
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
