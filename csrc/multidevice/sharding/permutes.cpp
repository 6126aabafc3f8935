#include "multidevice/sharding/permutes.h"

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <tuple>

#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr size_t kManyAtoms = 5;
constexpr size_t kLimit = 256;
constexpr size_t kLimitForManyAtoms = 48;

// A maximal run of neighbouring owned digits of a dim; a permutation may give it to other atoms of the same product.
struct Run {
  int64_t dim;
  int64_t begin;
  int64_t end;
  int64_t size;
  AtomSet home = 0;  // atoms whose destination digit lies in this run
};

std::vector<Run> runsOf(const std::vector<PlanDim>& dims) {
  std::vector<Run> runs;
  for (int64_t k = 0; k < std::ssize(dims); k++) {
    for (int64_t i = 0; i < std::ssize(dims[k]); i++) {
      if (dims[k][i].atom == kLocal) {
        continue;
      }
      if (!runs.empty() && runs.back().dim == k && runs.back().end == i) {
        runs.back().end++;
        runs.back().size *= dims[k][i].size;
      } else {
        runs.push_back({k, i, i + 1, dims[k][i].size});
      }
    }
  }
  return runs;
}

// Fills the runs in order; atoms whose destination lies in the run come first.
struct RunFiller {
  const PlanSpace& space;
  const std::vector<Run>& runs;
  size_t limit;
  std::vector<std::vector<std::vector<int64_t>>> results{};  // one sequence a run
  std::vector<std::vector<int64_t>> chosen{};

  std::vector<int64_t> sortedFor(const Run& run, AtomSet left) const {
    std::vector<int64_t> atoms = atomsOf(left);
    std::ranges::sort(atoms, {}, [&](int64_t a) {
      const bool away = (run.home & atomBit(a)) == 0;
      return std::tuple(away, space.goal(a).dim >= 0 ? -space.goal(a).stride : 0, a);
    });
    return atoms;
  }

  void assign(size_t run, AtomSet left) {
    if (run == runs.size()) {
      results.push_back(chosen);
      return;
    }
    chosen.emplace_back();
    fill(run, runs[run].size, left, sortedFor(runs[run], left));
    chosen.pop_back();
  }

  void fill(size_t run, int64_t remaining, AtomSet left, const std::vector<int64_t>& order) {
    if (results.size() >= limit) {
      return;
    }
    if (remaining == 1) {
      assign(run + 1, left);
      return;
    }
    for (int64_t atom : order) {
      const int64_t size = space.atomSize(atom);
      if ((left & atomBit(atom)) != 0 && size > 1 && remaining % size == 0) {
        chosen[run].push_back(atom);
        fill(run, remaining / size, left & ~atomBit(atom), order);
        chosen[run].pop_back();
      }
    }
  }
};

// The digits of the runs of one dim, given to the assigned atoms; the atoms that change are added to `moved`.
PlanDim reassigned(const PlanSpace& space, const PlanDim& dim, std::span<const Run> runs,
                   std::span<const std::vector<int64_t>> assigned, AtomSet& moved) {
  PlanDim out = dim;
  for (int64_t run = 0; run < std::ssize(runs); run++) {
    const Run& r = runs[run];
    PlanDim digits;
    int64_t top = dim[r.begin].stride * dim[r.begin].size;
    for (int64_t atom : assigned[run]) {
      top /= space.atomSize(atom);
      digits.push_back({top, space.atomSize(atom), atom});
    }
    const std::span<const PlanDigit> replaced(dim.data() + r.begin, r.end - r.begin);
    for (const PlanDigit& d : replaced) {
      moved |= contains(digits, d) ? 0 : atomBit(d.atom);
    }
    for (const PlanDigit& d : digits) {
      moved |= contains(replaced, d) ? 0 : atomBit(d.atom);
    }
    // Runs may change their length, so positions are counted from the end of the dim, where nothing has changed.
    const auto end = out.end() - static_cast<ptrdiff_t>(dim.size() - r.end);
    out.insert(out.erase(end - std::ssize(replaced), end), digits.begin(), digits.end());
  }
  return out;
}

}  // namespace

std::vector<Reassignment> reassignments(PlanSpace& space, const SearchState& state, PartialSums allowed) {
  const std::vector<PlanDim> dims =
      mapped(std::views::iota(int64_t{0}, space.numDims()), [&](int64_t k) { return space.digits(k, state.dims[k]); });
  std::vector<Run> runs = runsOf(dims);
  for (Run& run : runs) {
    const PlanDigit& low = dims[run.dim][run.end - 1];
    for (int64_t atom : atomsOf(space.goalAtoms())) {
      const PlanSpace::Goal& goal = space.goal(atom);
      if (goal.dim == run.dim && goal.stride >= low.stride && goal.stride < low.stride * run.size) {
        run.home |= atomBit(atom);
      }
    }
  }
  AtomSet candidates = (AtomSet{1} << space.numAtoms()) - 1;
  const bool sums = allowed == PartialSums::Moved && space.sizeOf(state.partial) > 1;
  const size_t dimRuns = runs.size();
  if (sums) {
    runs.push_back({space.numDims(), 0, 0, space.sizeOf(state.partial), space.to().partial});
  } else {
    candidates &= ~state.partial;
  }
  if (runs.empty()) {
    return {};
  }
  RunFiller filler{space, runs, static_cast<size_t>(space.numAtoms()) < kManyAtoms ? kLimit : kLimitForManyAtoms};
  filler.assign(0, candidates);
  std::vector<Reassignment> out;
  for (const std::vector<std::vector<int64_t>>& assigned : filler.results) {
    Reassignment r{state, 0};
    r.after.permuted = 1;
    if (sums) {
      r.after.partial = atomSetOf(assigned.back());
      // The order of contributions does not matter: each keeps its atom or takes the one of the destination.
      if (assigned.back() != filler.sortedFor(runs.back(), r.after.partial) ||
          (r.after.partial != state.partial && r.after.partial != space.to().partial)) {
        continue;
      }
      r.moved |= r.after.partial ^ state.partial;
    }
    size_t end = 0;
    for (size_t begin = 0; begin < dimRuns; begin = end) {
      const int64_t k = runs[begin].dim;
      while (end < dimRuns && runs[end].dim == k) {
        end++;
      }
      const std::span<const Run> ofDim(runs.data() + begin, end - begin);
      const std::span<const std::vector<int64_t>> theirs(assigned.data() + begin, end - begin);
      r.after = space.with(r.after, k, reassigned(space, dims[k], ofDim, theirs, r.moved));
    }
    if (r.moved != 0) {
      out.push_back(r);
    }
  }
  return out;
}

std::vector<int64_t> permuteSources(const std::vector<int64_t>& atomSizes, const PlanState& before,
                                    const PlanState& after) {
  const AtomSet sumsBefore = atomSetOf(before.partial);
  const AtomSet sumsAfter = atomSetOf(after.partial);
  const AtomSet relevantBefore = atomSetOf(usedAtoms(before)) | sumsBefore;
  const AtomSet relevantAfter = atomSetOf(usedAtoms(after)) | sumsAfter;
  const std::vector<int64_t> all = atomsOf((AtomSet{1} << atomSizes.size()) - 1);
  std::vector<int64_t> sources;
  for (int64_t device = 0; device < productOf(atomSizes); device++) {
    const std::vector<int64_t> mine = coordinatesAt(device, atomSizes);
    std::vector<int64_t> source = mine;
    const auto match = [&](AtomSet here, AtomSet there) {
      int64_t number = positionAmong(atomsOf(here), mine, atomSizes);
      for (int64_t atom : atomsOf(there) | std::views::reverse) {
        source[atom] = number % atomSizes[atom];
        number /= atomSizes[atom];
      }
    };
    // The source holds before the step the tile of this rank after it; coordinates of unused atoms are matched pairwise.
    for (int64_t k = 0; k < std::ssize(before.dims); k++) {
      int64_t start = 0;  // the first index that this rank is to hold
      for (const PlanDigit& d : after.dims[k]) {
        start += d.atom == kLocal ? 0 : mine[d.atom] * d.stride;
      }
      for (const PlanDigit& d : before.dims[k]) {
        if (d.atom != kLocal) {
          source[d.atom] = start / d.stride % d.size;
        }
      }
    }
    // Contributions stay with the atoms that are partial on both sides.
    match(sumsAfter & ~sumsBefore, sumsBefore & ~sumsAfter);
    match(relevantBefore & ~relevantAfter, relevantAfter & ~relevantBefore);
    sources.push_back(positionAmong(all, source, atomSizes));
  }
  return sources;
}

}  // namespace meshfuse
