#include "multidevice/sharding/moves.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace meshfuse {

namespace {

bool contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Subsets of at least `least` elements, smaller ones first; beyond five elements only the smallest and the whole.
std::vector<std::vector<int>> subsets(const std::vector<int>& items, size_t least) {
  std::vector<std::vector<int>> out;
  for (size_t size = least; size <= items.size(); size++) {
    if (items.size() > 5 && size != least && size != items.size()) {
      continue;
    }
    std::vector<bool> taken(items.size(), false);
    std::fill_n(taken.begin(), size, true);
    do {
      out.emplace_back();
      for (size_t i = 0; i < items.size(); i++) {
        if (taken[i]) {
          out.back().push_back(items[i]);
        }
      }
    } while (std::prev_permutation(taken.begin(), taken.end()));
  }
  return out;
}

// `atom` takes the digit of this stride and the atom's size out of a local digit of the dim.
std::optional<PlanDim> put(const PlanProblem& problem, const PlanDim& dim, int atom, int64_t stride) {
  const int64_t size = problem.atomSizes[atom];
  for (size_t i = 0; i < dim.size(); i++) {
    const PlanDigit& d = dim[i];
    if (d.atom != kLocal || stride < d.stride || stride % d.stride != 0 || (d.stride * d.size) % (stride * size) != 0) {
      continue;
    }
    PlanDim out(dim.begin(), dim.begin() + static_cast<ptrdiff_t>(i));
    out.push_back({stride * size, d.stride * d.size / (stride * size), kLocal});
    out.push_back({stride, size, atom});
    out.push_back({d.stride, stride / d.stride, kLocal});
    out.insert(out.end(), dim.begin() + static_cast<ptrdiff_t>(i) + 1, dim.end());
    return normalForm(out);
  }
  return std::nullopt;
}

struct Place {
  int dim;
  int64_t stride;
};

std::optional<Place> placeOf(const PlanState& state, int atom) {
  for (size_t k = 0; k < state.dims.size(); k++) {
    for (const PlanDigit& d : state.dims[k]) {
      if (d.atom == atom) {
        return Place{static_cast<int>(k), d.stride};
      }
    }
  }
  return std::nullopt;
}

bool atGoal(const PlanProblem& problem, const PlanState& state, int atom) {
  std::optional<Place> goal = placeOf(problem.to, atom);
  std::optional<Place> here = placeOf(state, atom);
  return goal && here && goal->dim == here->dim && goal->stride == here->stride;
}

// Every atom of the group on the digit the destination gives it; nullopt if one of them is taken or does not exist.
std::optional<PlanState> putAtGoal(const PlanProblem& problem, PlanState state, const std::vector<int>& group) {
  for (int atom : group) {
    std::optional<Place> goal = placeOf(problem.to, atom);
    std::optional<PlanDim> dim = goal ? put(problem, state.dims[goal->dim], atom, goal->stride) : std::nullopt;
    if (!dim) {
      return std::nullopt;
    }
    state.dims[goal->dim] = *dim;
  }
  return state;
}

// The state with `atom` on any free digit: outermost and innermost of every local digit, and the strides of both ends.
std::vector<PlanState> places(const PlanProblem& problem, const PlanState& state, int atom) {
  std::vector<PlanState> out;
  for (size_t k = 0; k < state.dims.size(); k++) {
    std::set<int64_t> strides(problem.strides[k].begin(), problem.strides[k].end());
    for (const PlanDigit& d : state.dims[k]) {
      if (d.atom == kLocal) {
        strides.insert(d.stride);
        if (d.size % problem.atomSizes[atom] == 0) {
          strides.insert(d.stride * (d.size / problem.atomSizes[atom]));
        }
      }
    }
    for (int64_t stride : strides) {
      if (std::optional<PlanDim> dim = put(problem, state.dims[k], atom, stride)) {
        out.push_back(state);
        out.back().dims[k] = *dim;
      }
    }
  }
  return out;
}

// Every pair of the team exchanges the same count: the new digits of the group lie in digits that were local.
bool exchangesEvenly(const PlanState& before, const PlanState& after, const std::vector<int>& group) {
  for (size_t k = 0; k < after.dims.size(); k++) {
    for (const PlanDigit& d : after.dims[k]) {
      if (!contains(group, d.atom)) {
        continue;
      }
      bool inside = std::any_of(before.dims[k].begin(), before.dims[k].end(), [&](const PlanDigit& old) {
        return old.atom == kLocal && d.stride >= old.stride && d.stride % old.stride == 0 &&
               (old.stride * old.size) % (d.stride * d.size) == 0;
      });
      if (!inside) {
        return false;
      }
    }
  }
  return true;
}

void addExchanges(const PlanProblem& problem, const PlanState& state, std::vector<Move>& out) {
  const std::vector<int> used = usedAtoms(state);
  std::vector<int> astray;
  for (int atom : used) {
    const PlanState freed = dropAtoms(state, {atom});
    for (PlanState& after : places(problem, freed, atom)) {
      if (after != state && exchangesEvenly(state, after, {atom})) {
        out.push_back({StepKind::AllToAll, {atom}, std::move(after)});
      }
    }
    if (placeOf(problem.to, atom) && !atGoal(problem, state, atom)) {
      astray.push_back(atom);
    }
  }
  for (const std::vector<int>& group : subsets(astray, 2)) {
    std::optional<PlanState> after = putAtGoal(problem, dropAtoms(state, group), group);
    if (after && exchangesEvenly(state, *after, group)) {
      out.push_back({StepKind::AllToAll, group, std::move(*after)});
    }
  }
}

void addReductions(const PlanProblem& problem, const PlanState& state, std::vector<Move>& out) {
  for (const std::vector<int>& group : subsets(state.partial, 1)) {
    PlanState done = state;
    std::erase_if(done.partial, [&](int atom) { return contains(group, atom); });
    out.push_back({StepKind::AllReduce, group, done});
    if (group.size() == 1) {
      for (PlanState& after : places(problem, done, group[0])) {
        out.push_back({StepKind::ReduceScatter, group, std::move(after)});
      }
    } else if (std::optional<PlanState> after = putAtGoal(problem, done, group)) {
      out.push_back({StepKind::ReduceScatter, group, std::move(*after)});
    }
  }
}

// A maximal run of neighbouring owned digits of a dim; a permutation may give it to other atoms of the same product.
struct Run {
  size_t dim;
  size_t begin;
  size_t end;
  int64_t size;
};

std::vector<Run> runsOf(const PlanState& state) {
  std::vector<Run> runs;
  for (size_t k = 0; k < state.dims.size(); k++) {
    const PlanDim& dim = state.dims[k];
    for (size_t i = 0; i < dim.size(); i++) {
      if (dim[i].atom == kLocal) {
        continue;
      }
      if (!runs.empty() && runs.back().dim == k && runs.back().end == i) {
        runs.back().end++;
        runs.back().size *= dim[i].size;
      } else {
        runs.push_back({k, i, i + 1, dim[i].size});
      }
    }
  }
  return runs;
}

// Assigns sequences of atoms to the runs from `run` on, at most `cap` results.
struct RunFiller {
  const PlanProblem& problem;
  const std::vector<Run>& runs;
  size_t cap;
  std::vector<std::vector<std::vector<int>>> results;  // one sequence a run
  std::vector<std::vector<int>> chosen;

  void fill(size_t run, int64_t remaining, const std::vector<int>& left) {
    if (results.size() >= cap) {
      return;
    }
    if (remaining == 1) {
      if (run + 1 == runs.size()) {
        results.push_back(chosen);
      } else {
        chosen.emplace_back();
        fill(run + 1, runs[run + 1].size, left);
        chosen.pop_back();
      }
      return;
    }
    for (size_t i = 0; i < left.size(); i++) {
      const int64_t size = problem.atomSizes[left[i]];
      if (size > 1 && remaining % size == 0) {
        std::vector<int> rest = left;
        rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
        const size_t depth = chosen.size();
        chosen.back().push_back(left[i]);
        fill(run, remaining / size, rest);
        chosen.resize(depth);
        chosen.back().pop_back();
      }
    }
  }
};

void addPermutes(const PlanProblem& problem, const PlanState& state, std::vector<Move>& out) {
  const std::vector<Run> runs = runsOf(state);
  if (runs.empty()) {
    return;
  }
  std::vector<int> candidates;
  for (int atom = 0; atom < static_cast<int>(problem.atomSizes.size()); atom++) {
    if (!contains(state.partial, atom)) {
      candidates.push_back(atom);
    }
  }
  RunFiller filler{problem, runs, problem.atomSizes.size() <= 4 ? size_t{256} : size_t{48}, {}, {{}}};
  filler.fill(0, runs[0].size, candidates);
  for (const std::vector<std::vector<int>>& assigned : filler.results) {
    PlanState after = state;
    std::set<int> moved;
    for (size_t r = runs.size(); r-- > 0;) {
      PlanDim& dim = after.dims[runs[r].dim];
      PlanDim digits;
      int64_t top = dim[runs[r].begin].stride * dim[runs[r].begin].size;
      for (int atom : assigned[r]) {
        top /= problem.atomSizes[atom];
        digits.push_back({top, problem.atomSizes[atom], atom});
      }
      const auto begin = dim.begin() + static_cast<ptrdiff_t>(runs[r].begin);
      const auto end = dim.begin() + static_cast<ptrdiff_t>(runs[r].end);
      for (const PlanDigit& d : PlanDim(begin, end)) {
        if (!std::count(digits.begin(), digits.end(), d)) {
          moved.insert(d.atom);
        }
      }
      for (const PlanDigit& d : digits) {
        if (!std::count(begin, end, d)) {
          moved.insert(d.atom);
        }
      }
      const auto at = dim.erase(begin, end);
      dim.insert(at, digits.begin(), digits.end());
    }
    if (!moved.empty()) {
      out.push_back({StepKind::Permute, {moved.begin(), moved.end()}, std::move(after)});
    }
  }
}

}  // namespace

int64_t PlanProblem::sizeOf(const std::vector<int>& atoms) const {
  int64_t n = 1;
  for (int atom : atoms) {
    n *= atomSizes[atom];
  }
  return n;
}

bool PlanProblem::allowed(StepKind kind) const {
  return std::find(forbidden.begin(), forbidden.end(), kind) == forbidden.end();
}

std::vector<Move> moves(const PlanProblem& problem, const PlanState& state, bool permuted) {
  std::vector<Move> out;
  const std::vector<int> used = usedAtoms(state);
  for (int atom = 0; atom < static_cast<int>(problem.atomSizes.size()); atom++) {
    const bool free = problem.atomSizes[atom] > 1 && !contains(used, atom) && !contains(state.partial, atom);
    // Slicing over an atom that the destination does not use can pay only before a sum.
    if (free && (placeOf(problem.to, atom) || !state.partial.empty())) {
      for (PlanState& after : places(problem, state, atom)) {
        out.push_back({StepKind::Slice, {atom}, std::move(after)});
      }
    }
  }
  if (problem.allowed(StepKind::AllToAll)) {
    addExchanges(problem, state, out);
  }
  addReductions(problem, state, out);
  if (!permuted && problem.allowed(StepKind::Permute)) {
    addPermutes(problem, state, out);
  }
  return out;
}

std::optional<Move> closingGather(const PlanProblem& problem, const PlanState& state) {
  std::vector<int> group;
  for (int atom : usedAtoms(state)) {
    if (!placeOf(problem.to, atom)) {
      group.push_back(atom);
    }
  }
  PlanState after = dropAtoms(state, group);
  if (group.empty() || after != problem.to || !problem.allowed(StepKind::AllGather)) {
    return std::nullopt;
  }
  return Move{StepKind::AllGather, group, std::move(after)};
}

std::vector<Move> gatherThenSlice(const PlanProblem& problem, const PlanState& state) {
  if (state.partial != problem.to.partial) {
    return {};
  }
  std::vector<Move> out;
  std::vector<int> astray;
  for (int atom : usedAtoms(state)) {
    if (!atGoal(problem, state, atom)) {
      astray.push_back(atom);
    }
  }
  PlanState at = dropAtoms(state, astray);
  if (!astray.empty()) {
    out.push_back({StepKind::AllGather, astray, at});
  }
  const std::vector<int> have = usedAtoms(at);
  for (int atom : usedAtoms(problem.to)) {
    if (contains(have, atom)) {
      continue;
    }
    std::optional<PlanState> after = putAtGoal(problem, at, {atom});
    invariant(after.has_value(), "[planner] a digit of the destination is not free after the gather");
    at = *after;
    out.push_back({StepKind::Slice, {atom}, at});
  }
  invariant(at == problem.to, "[planner] gather and slice miss the destination");
  return out;
}

int64_t received(const PlanProblem& problem, const PlanState& before, const Move& move) {
  const int64_t n = problem.sizeOf(move.group);
  switch (move.kind) {
    case StepKind::Slice:
      return 0;
    case StepKind::AllReduce:
      return 2 * localSize(before) * (n - 1) / n;
    case StepKind::ReduceScatter:
      return (n - 1) * localSize(move.after);
    case StepKind::Permute:
    case StepKind::AllToAll:
    case StepKind::AllGather:
      return lacking(before, move.after).value_or(localSize(move.after));
  }
  return 0;
}

std::optional<int64_t> lacking(const PlanState& before, const PlanState& after) {
  int64_t shared = 1;  // elements both hold on the rank with the least overlap
  for (size_t k = 0; k < after.dims.size(); k++) {
    // Walk both from the minor end in steps of what divides both; `scale` is the place within an owned digit.
    struct Cursor {
      const PlanDim& dim;
      size_t left;
      int64_t size = 1;
      int64_t scale = 1;
      int atom = kLocal;
      explicit Cursor(const PlanDim& d) : dim(d), left(d.size()) { next(); }
      void next() {
        if (size == 1 && left > 0) {
          left--;
          size = dim[left].size;
          atom = dim[left].atom;
          scale = 1;
        }
      }
      void take(int64_t n) {
        size /= n;
        scale *= n;
        next();
      }
    };
    Cursor a(before.dims[k]);
    Cursor b(after.dims[k]);
    while (b.size > 1 && a.size > 1) {
      const int64_t step = std::min(a.size, b.size);
      if (a.size % step != 0 || b.size % step != 0) {
        return std::nullopt;
      }
      if (a.atom == kLocal && b.atom == kLocal) {
        shared *= step;
      } else if (a.atom != kLocal && b.atom != kLocal && (a.atom != b.atom || a.scale != b.scale)) {
        return localSize(after);  // some rank has different values there
      }
      a.take(step);
      b.take(step);
    }
  }
  return localSize(after) - shared;
}

double lowerBound(const PlanProblem& problem, const PlanState& state) {
  if (state.partial.empty()) {
    return static_cast<double>(lacking(state, problem.to).value_or(0));
  }
  double total = 1;
  double ranks = 1;
  for (int64_t extent : problem.extents) {
    total *= static_cast<double>(extent);
  }
  for (int64_t size : problem.atomSizes) {
    ranks *= static_cast<double>(size);
  }
  const double wanted = static_cast<double>(localSize(problem.to));
  const double n = static_cast<double>(problem.sizeOf(state.partial));
  return std::max(n > 1 ? wanted : 0, (total * (n - 2) + wanted * ranks) / ranks);
}

std::vector<int64_t> permuteSources(const PlanProblem& problem, const PlanState& before, const PlanState& after) {
  const std::vector<Run> runs = runsOf(before);
  const std::vector<int> usedBefore = usedAtoms(before);
  const std::vector<int> usedAfter = usedAtoms(after);
  int64_t devices = 1;
  for (int64_t n : problem.atomSizes) {
    devices *= n;
  }
  std::vector<int64_t> sources;
  for (int64_t device = 0; device < devices; device++) {
    std::vector<int64_t> mine(problem.atomSizes.size());
    int64_t rest = device;
    for (size_t a = mine.size(); a-- > 0;) {
      mine[a] = rest % problem.atomSizes[a];
      rest /= problem.atomSizes[a];
    }
    // The source holds before what this rank is to hold after; over atoms that no longer matter ranks pair up.
    std::vector<int64_t> source = mine;
    for (size_t k = 0; k < before.dims.size(); k++) {
      const int64_t start = globalIndex(after.dims[k], mine, 0);
      for (const PlanDigit& d : before.dims[k]) {
        if (d.atom != kLocal) {
          source[d.atom] = start / d.stride % d.size;
        }
      }
    }
    int64_t spare = 0;
    for (int atom : usedBefore) {
      if (!contains(usedAfter, atom)) {
        spare = spare * problem.atomSizes[atom] + mine[atom];
      }
    }
    for (size_t i = usedAfter.size(); i-- > 0;) {
      const int atom = usedAfter[i];
      if (!contains(usedBefore, atom)) {
        source[atom] = spare % problem.atomSizes[atom];
        spare /= problem.atomSizes[atom];
      }
    }
    int64_t position = 0;
    for (size_t a = 0; a < source.size(); a++) {
      position = position * problem.atomSizes[a] + source[a];
    }
    sources.push_back(position);
  }
  return sources;
}

}  // namespace meshfuse
