#include "multidevice/sharding/permutes.h"

#include <algorithm>

#include "multidevice/sharding/moves.h"

namespace meshfuse {

namespace {

constexpr size_t kManyAtoms = 5;
constexpr size_t kLimit = 256;
constexpr size_t kLimitForManyAtoms = 48;

// A maximal run of neighbouring owned digits of a dim; a permutation may give it to other atoms of the same product.
struct Run {
  int dim;
  size_t begin;
  size_t end;
  int64_t size;
  AtomSet home = 0;  // atoms whose destination digit lies in this run
};

std::vector<Run> runsOf(const std::vector<PlanDim>& dims) {
  std::vector<Run> runs;
  for (size_t k = 0; k < dims.size(); k++) {
    for (size_t i = 0; i < dims[k].size(); i++) {
      if (dims[k][i].atom == kLocal) {
        continue;
      }
      if (!runs.empty() && runs.back().dim == static_cast<int>(k) && runs.back().end == i) {
        runs.back().end++;
        runs.back().size *= dims[k][i].size;
      } else {
        runs.push_back({static_cast<int>(k), i, i + 1, dims[k][i].size});
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
  std::vector<std::vector<std::vector<int>>> results{};  // one sequence a run
  std::vector<std::vector<int>> chosen{};

  std::vector<int> sortedFor(const Run& run, AtomSet left) const {
    std::vector<int> atoms = atomsOf(left);
    auto rank = [&](int a) {
      const bool away = (run.home & atomBit(a)) == 0;
      return std::tuple(away, space.goal(a).dim >= 0 ? -space.goal(a).stride : 0, a);
    };
    std::sort(atoms.begin(), atoms.end(), [&](int a, int b) { return rank(a) < rank(b); });
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

  void fill(size_t run, int64_t remaining, AtomSet left, const std::vector<int>& order) {
    if (results.size() >= limit) {
      return;
    }
    if (remaining == 1) {
      assign(run + 1, left);
      return;
    }
    for (int atom : order) {
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
                   std::span<const std::vector<int>> assigned, AtomSet& moved) {
  PlanDim out = dim;
  for (size_t run = 0; run < runs.size(); run++) {
    const Run& r = runs[run];
    PlanDim digits;
    int64_t top = dim[r.begin].stride * dim[r.begin].size;
    for (int atom : assigned[run]) {
      top /= space.atomSize(atom);
      digits.push_back({top, space.atomSize(atom), atom});
    }
    const auto begin = dim.begin() + static_cast<ptrdiff_t>(r.begin);
    const auto end = dim.begin() + static_cast<ptrdiff_t>(r.end);
    for (auto d = begin; d != end; ++d) {
      moved |= std::count(digits.begin(), digits.end(), *d) == 0 ? atomBit(d->atom) : 0;
    }
    for (const PlanDigit& d : digits) {
      moved |= std::count(begin, end, d) == 0 ? atomBit(d.atom) : 0;
    }
    // Runs may change their length, so positions are counted from the end of the dim, where nothing has changed.
    const ptrdiff_t tail = dim.end() - end;
    const ptrdiff_t length = end - begin;
    out.erase(out.end() - tail - length, out.end() - tail);
    out.insert(out.end() - tail, digits.begin(), digits.end());
  }
  return out;
}

}  // namespace

std::vector<Reassignment> reassignments(PlanSpace& space, const SearchState& state, PartialSums allowed) {
  std::vector<PlanDim> dims;
  for (int k = 0; k < space.numDims(); k++) {
    dims.push_back(space.digits(k, state.dims[k]));
  }
  std::vector<Run> runs = runsOf(dims);
  for (Run& run : runs) {
    const PlanDigit& low = dims[run.dim][run.end - 1];
    for (int atom : atomsOf(space.goalAtoms())) {
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
  for (const std::vector<std::vector<int>>& assigned : filler.results) {
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
      const int k = runs[begin].dim;
      while (end < dimRuns && runs[end].dim == k) {
        end++;
      }
      const std::span<const Run> ofDim(runs.data() + begin, end - begin);
      const std::span<const std::vector<int>> theirs(assigned.data() + begin, end - begin);
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
  auto relevant = [](const PlanState& state) { return atomSetOf(usedAtoms(state)) | atomSetOf(state.partial); };
  const AtomSet sumsBefore = atomSetOf(before.partial);
  const AtomSet sumsAfter = atomSetOf(after.partial);
  const AtomSet lost = relevant(before) & ~relevant(after);
  const AtomSet gained = relevant(after) & ~relevant(before);
  int64_t devices = 1;
  for (int64_t n : atomSizes) {
    devices *= n;
  }
  std::vector<int64_t> sources;
  for (int64_t device = 0; device < devices; device++) {
    const std::vector<int64_t> mine = coordinatesAt(device, atomSizes);
    auto packed = [&](const std::vector<int>& atoms) {
      int64_t number = 0;
      for (int atom : atoms) {
        number = number * atomSizes[atom] + mine[atom];
      }
      return number;
    };
    std::vector<int64_t> source = mine;
    auto unpack = [&](const std::vector<int>& atoms, int64_t number) {
      for (size_t i = atoms.size(); i-- > 0;) {
        source[atoms[i]] = number % atomSizes[atoms[i]];
        number /= atomSizes[atoms[i]];
      }
    };
    // The source holds before the step the tile of this rank after it; coordinates of unused atoms are matched pairwise.
    for (size_t k = 0; k < before.dims.size(); k++) {
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
    unpack(atomsOf(sumsBefore & ~sumsAfter), packed(atomsOf(sumsAfter & ~sumsBefore)));
    unpack(atomsOf(gained), packed(atomsOf(lost)));
    int64_t position = 0;
    for (size_t a = 0; a < source.size(); a++) {
      position = position * atomSizes[a] + source[a];
    }
    sources.push_back(position);
  }
  return sources;
}

}  // namespace meshfuse
