#include "multidevice/sharding/moves.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>

#include "base/ranges.h"
#include "multidevice/sharding/permutes.h"

namespace meshfuse {

namespace {

constexpr size_t kAllSubsetsUpTo = 5;

// Subsets of at least `least` atoms, smaller ones first; of many atoms only the smallest and the whole.
std::vector<AtomSet> subsets(AtomSet atoms, size_t least) {
  const std::vector<int64_t> items = atomsOf(atoms);
  std::vector<AtomSet> out;
  for (size_t size = least; size <= items.size(); size++) {
    if (items.size() > kAllSubsetsUpTo && size != least && size != items.size()) {
      continue;
    }
    std::vector<bool> taken(items.size(), false);
    std::fill_n(taken.begin(), size, true);
    do {
      AtomSet set = 0;
      for (int64_t i = 0; i < std::ssize(items); i++) {
        set |= taken[i] ? atomBit(items[i]) : 0;
      }
      out.push_back(set);
    } while (std::prev_permutation(taken.begin(), taken.end()));
  }
  return out;
}

}  // namespace

double LinkCosts::least() const { return byAtom.empty() ? 1 : std::ranges::min(byAtom); }

double LinkCosts::largest(AtomSet atoms) const {
  double most = 0;
  for (; atoms != 0; atoms &= atoms - 1) {
    most = std::max(most, byAtom[std::countr_zero(atoms)]);
  }
  return most;
}

bool LinkCosts::uniform() const {
  return std::ranges::all_of(byAtom, [&](double cost) { return cost == byAtom.front(); });
}

MoveMaker::MoveMaker(PlanSpace& space, MovePrices prices, AllowedMoves allowed)
    : space_(space), prices_(std::move(prices)), allowed_(std::move(allowed)) {}

void MoveMaker::add(Collective kind, AtomSet group, const SearchState& after, bool plain) {
  if (allowed_.has(kind)) {
    moves_.push_back({kind, group, after, plain});
  }
}

void MoveMaker::addExchange(const SearchState& before, AtomSet group, const SearchState& after) {
  add(Collective::AllToAll, group, after, space_.even(before, after, group));
}

// The tensor becomes a partial sum over the atom.
void MoveMaker::addToSum(int64_t atom, SearchState state) {
  if (allowed_.sums == PartialSums::Moved) {
    state.partial |= atomBit(atom);
    moves_.push_back({Collective::Local, atomBit(atom), state, false});
  }
}

// Calls `use` with every state in which the atom has taken a digit.
void MoveMaker::forEachPlace(const SearchState& state, int64_t atom, const auto& use) {
  for (int64_t k = 0; k < space_.numDims(); k++) {
    for (DimId id : space_.places(k, state.dims[k], atom)) {
      SearchState after = state;
      after.dims[k] = id;
      use(after);
    }
  }
}

const std::vector<Move>& MoveMaker::moves(const SearchState& state) {
  const AtomSet used = space_.used(state);
  const AtomSet combined = state.partial & ~space_.to().partial;
  moves_.clear();
  addSlices(state, used, combined);
  if (!moves_.empty() && moves_.back().after.partial != state.partial && combined == 0 &&
      (moves_.back().group & used) == 0) {
    moves_.erase(moves_.begin(), moves_.end() - 1);  // the last move is free and needed
    return moves_;
  }
  addExchanges(state, used);
  addReductions(state, combined);
  if (state.permuted == 0) {
    addPermutes(state);
  }
  return moves_;
}

void MoveMaker::addSlices(const SearchState& state, AtomSet used, AtomSet combined) {
  const bool spread = allowed_.spareSlices || combined != 0;
  for (int64_t atom = 0; atom < space_.numAtoms(); atom++) {
    if (((used | state.partial) & atomBit(atom)) != 0 || space_.atomSize(atom) == 1) {
      continue;
    }
    if ((space_.to().partial & atomBit(atom)) != 0) {
      addToSum(atom, state);
      if (combined == 0) {
        return;
      }
    } else if (space_.goal(atom).dim >= 0 || spread) {
      forEachPlace(state, atom, [&](const SearchState& after) {
        moves_.push_back({Collective::Local, atomBit(atom), after});
      });
    }
  }
}

void MoveMaker::addExchanges(const SearchState& state, AtomSet used) {
  for (int64_t atom : atomsOf(used)) {
    const SearchState freed = space_.drop(state, atomBit(atom));
    if ((space_.to().partial & atomBit(atom)) != 0) {
      addToSum(atom, freed);
    }
    forEachPlace(freed, atom, [&](const SearchState& after) {
      if (after.dims != state.dims) {
        addExchange(state, atomBit(atom), after);
      }
    });
  }
  const AtomSet astray = used & space_.goalAtoms() & ~space_.atGoal(state);
  for (AtomSet group : subsets(astray, 2)) {
    if (std::optional<SearchState> after = space_.putAtGoal(space_.drop(state, group), group)) {
      addExchange(state, group, *after);
    }
  }
  // An atom that a later step gathers gives up its digit in the same call.
  for (int64_t spare : atomsOf(used & ~space_.goalAtoms() & ~space_.to().partial)) {
    for (AtomSet group : subsets(astray, 1)) {
      const AtomSet team = group | atomBit(spare);
      if (std::optional<SearchState> placed = space_.putAtGoal(space_.drop(state, team), group)) {
        forEachPlace(*placed, spare, [&](const SearchState& after) { addExchange(state, team, after); });
      }
    }
  }
}

void MoveMaker::addReductions(const SearchState& state, AtomSet combined) {
  for (AtomSet group : subsets(combined, 1)) {
    const auto addScatter = [&](const SearchState& after) {
      add(Collective::ReduceScatter, group, after, space_.even(state, after, group));
    };
    SearchState after = state;
    after.partial &= ~group;
    add(Collective::AllReduce, group, after, true);
    if (std::popcount(group) == 1) {
      forEachPlace(after, std::countr_zero(group), addScatter);
    } else if (std::optional<SearchState> placed = space_.putAtGoal(after, group)) {
      addScatter(*placed);
    }
  }
}

void MoveMaker::addPermutes(const SearchState& state) {
  if (allowed_.has(Collective::Transfer)) {
    for (const Reassignment& r : reassignments(space_, state, allowed_.sums)) {
      add(Collective::Transfer, r.moved, r.after, r.after.partial == state.partial);
    }
  }
}

std::vector<Move> MoveMaker::gathers(const SearchState& state, AtomSet group) {
  if (group == 0 || !allowed_.has(Collective::AllGather)) {
    return {};
  }
  const bool plain = !space_.isRagged(state);
  std::vector<Move> whole{{Collective::AllGather, group, space_.drop(state, group), plain}};
  std::vector<int64_t> atoms = atomsOf(group);
  const auto costOf = [&](int64_t atom) { return prices_.beta.byAtom[atom]; };
  if (std::ranges::all_of(atoms, [&](int64_t atom) { return costOf(atom) == costOf(atoms[0]); })) {
    return whole;
  }
  // The most expensive link first, while the least data moves.
  std::ranges::stable_sort(atoms, std::greater(), costOf);
  std::vector<Move> single;
  SearchState at = state;
  for (int64_t atom : atoms) {
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
  const std::optional<std::vector<Move>> slices = slicesToGoal(out.back().after);
  if (!slices) {
    return {};
  }
  append(out, *slices);
  return out.back().after.dims == space_.to().dims ? out : std::vector<Move>{};
}

std::optional<std::vector<Move>> MoveMaker::slicesToGoal(SearchState state) {
  std::vector<Move> out;
  AtomSet missing = space_.goalAtoms() & ~space_.used(state);
  while (missing != 0) {
    const int64_t next = space_.outermost(missing);
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
  const auto after = static_cast<double>(space_.localSize(move.after));
  if (move.kind == Collective::Local || reduces(move.kind)) {
    return amountReceived(move.kind, static_cast<double>(space_.localSize(before)), after,
                          static_cast<double>(space_.sizeOf(move.group)));
  }
  const bool movesSums = move.kind == Collective::Transfer && !move.plain;
  return movesSums ? after : static_cast<double>(space_.lacking(before, move.after));
}

double MoveMaker::cost(const SearchState& before, const Move& move) {
  if (move.kind == Collective::Local) {
    return kTieCost;
  }
  // Of equal costs the collective that stands first in its enum, and of one kind the plain form.
  const double tie = (move.kind == Collective::AllToAll && !move.plain ? kTieCost : 0) +
                     1e-6 * (2 * static_cast<double>(move.kind) + (move.plain ? 0 : 1));
  return prices_.alpha.largest(move.group) + tie + received(before, move) * prices_.beta.largest(move.group);
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
