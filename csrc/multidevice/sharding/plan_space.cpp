#include "multidevice/sharding/plan_space.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/ranges.h"
#include "base/rounding.h"
#include "multidevice/sharding/index_set.h"

namespace meshfuse {

namespace {

constexpr int64_t kNotNested = -2;
constexpr int64_t kClash = -1;
constexpr int64_t kQuickRanks = 5;

// Both lists walked from the minor end in steps of what divides both. The elements that are local on both sides; kClash if some
// rank has different values in a digit; kNotNested where the radices do not nest.
int64_t sharedElements(const PlanDim& a, const PlanDim& b) {
  struct Cursor {
    const PlanDim& dim;
    size_t left;
    int64_t size = 1;
    int64_t scale = 1;  // the place within an owned digit
    int64_t atom = kLocal;
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
  Cursor x(a);
  Cursor y(b);
  int64_t shared = 1;
  bool clash = false;
  while (x.size > 1 && y.size > 1) {
    const int64_t step = std::min(x.size, y.size);
    if (x.size % step != 0 || y.size % step != 0) {
      return kNotNested;
    }
    if (x.atom == kLocal && y.atom == kLocal) {
      shared *= step;
    } else if (x.atom != kLocal && y.atom != kLocal) {
      clash = clash || x.atom != y.atom || x.scale != y.scale;
    }
    x.take(step);
    y.take(step);
  }
  return clash ? kClash : shared;
}

}  // namespace

std::vector<int64_t> atomsOf(AtomSet set) {
  std::vector<int64_t> atoms;
  for (; set != 0; set &= set - 1) {
    atoms.push_back(std::countr_zero(set));
  }
  return atoms;
}

AtomSet atomSetOf(const std::vector<int64_t>& atoms) {
  AtomSet set = 0;
  for (int64_t atom : atoms) {
    set |= atomBit(atom);
  }
  return set;
}

size_t PlanSpace::DimHash::operator()(const PlanDim& dim) const {
  uint64_t h = 1469598103934665603ull;
  for (const PlanDigit& d : dim) {
    for (uint64_t v : {static_cast<uint64_t>(d.stride), static_cast<uint64_t>(d.size), static_cast<uint64_t>(d.atom)}) {
      h = (h ^ v) * 1099511628211ull;
    }
  }
  return h ^ (h >> 29);
}

bool PlanSpace::fits(const PlanState& from, const std::vector<int64_t>& atomSizes) {
  return from.dims.size() <= kMaxPlanDims && atomSizes.size() <= kMaxPlanAtoms;
}

PlanSpace::PlanSpace(const std::vector<int64_t>& extents, std::vector<int64_t> atomSizes, const PlanState& from,
                     const PlanState& to)
    : atomSizes_(std::move(atomSizes)), goals_(atomSizes_.size()), ranks_(productOf(atomSizes_)) {
  for (int64_t k = 0; k < std::ssize(extents); k++) {
    total_ *= static_cast<double>(extents[k]);
    const std::span<const int64_t> parts = from.partsOf(k).empty() ? to.partsOf(k) : from.partsOf(k);
    Dim& dim = dims_.emplace_back(Dim{extents[k], {parts.begin(), parts.end()}, !parts.empty()});
    for (const PlanState* state : {&from, &to}) {
      const PlanDim& digits = state->dims[k];
      dim.ragged |= !digits.empty() && digits.front().stride * digits.front().size != dim.extent;
      for (const PlanDigit& d : digits) {
        dim.strides.insert(d.stride);
      }
    }
    for (const PlanDigit& d : to.dims[k]) {
      if (d.atom != kLocal) {
        goals_[d.atom] = {k, d.stride};
        goalAtoms_ |= atomBit(d.atom);
      }
    }
  }
  from_ = numbered(from);
  to_ = numbered(to);
}

SearchState PlanSpace::numbered(const PlanState& state) {
  SearchState out;
  for (int64_t k = 0; k < std::ssize(state.dims); k++) {
    out.dims[k] = intern(k, state.dims[k]);
  }
  out.partial = atomSetOf(state.partial);
  return out;
}

PlanDim PlanSpace::canonical(const Dim& dim, const PlanDim& digits) const {
  PlanDim out = normalForm(digits);
  const auto isLocal = [](const PlanDigit& d) { return d.atom == kLocal; };
  if (!dim.parts.empty() && std::ranges::all_of(out, isLocal)) {
    return {{1, dim.places(), kLocal}};
  }
  if (!out.empty() && out.front().atom == kLocal) {
    out.front().size = divideUp(dim.places(), out.front().stride);
    if (out.front().size == 1) {
      out.erase(out.begin());
    }
  }
  return out;
}

DimId PlanSpace::intern(int64_t k, const PlanDim& digits) {
  Dim& dim = dims_[k];
  PlanDim list = canonical(dim, digits);
  auto [found, isNew] = dim.numbers.try_emplace(list, static_cast<DimId>(dim.infos.size()));
  if (!isNew) {
    return found->second;
  }
  Info& info = dim.infos.emplace_back();
  info.places.resize(atomSizes_.size());
  info.goalPut.assign(atomSizes_.size(), -2);
  info.local = dim.ragged ? fullest(dim, list) : localExtent(list);
  for (const PlanDigit& d : list) {
    if (d.atom != kLocal) {
      info.used |= atomBit(d.atom);
      if (goals_[d.atom].dim == k && goals_[d.atom].stride == d.stride) {
        info.atGoal |= atomBit(d.atom);
      }
    }
  }
  info.digits = std::move(list);
  return found->second;
}

// Elements on the rank with the largest part: the first rank, except for parts of given sizes.
int64_t PlanSpace::fullest(const Dim& dim, const PlanDim& digits) {
  const int64_t unit = indexUnit(dim.extent, {&digits}, dim.parts);
  const auto countAt = [&](const auto& coordinate) {
    return IndexSet(digits, dim.extent, unit, coordinate, dim.parts).count();
  };
  if (dim.parts.empty()) {
    return countAt([](int64_t) { return 0; });
  }
  int64_t most = 0;
  for (const std::vector<int64_t>& rank : coordinates()) {
    most = std::max(most, countAt([&](int64_t atom) { return rank[atom]; }));
  }
  return most;
}

int64_t PlanSpace::sizeOf(AtomSet atoms) const {
  int64_t n = 1;
  for (; atoms != 0; atoms &= atoms - 1) {
    n *= atomSizes_[std::countr_zero(atoms)];
  }
  return n;
}

bool PlanSpace::isRagged(const SearchState& state, int64_t k) const {
  const Dim& dim = dims_[k];
  const PlanDim& list = info(state, k).digits;
  return dim.ragged && (!dim.parts.empty() ? info(state, k).used != 0
                                           : !list.empty() && list.front().stride * list.front().size != dim.extent);
}

bool PlanSpace::isRagged(const SearchState& state) const {
  return std::ranges::any_of(indices(dims_), [&](int64_t k) { return isRagged(state, k); });
}

AtomSet PlanSpace::united(const SearchState& state, AtomSet Info::*atoms) const {
  AtomSet set = 0;
  for (int64_t k = 0; k < numDims(); k++) {
    set |= info(state, k).*atoms;
  }
  return set;
}

int64_t PlanSpace::localSize(const SearchState& state) const {
  int64_t n = 1;
  for (int64_t k = 0; k < numDims(); k++) {
    n *= info(state, k).local;
  }
  return n;
}

PlanState PlanSpace::toPlanState(const SearchState& state) const {
  PlanState out;
  const auto isWhole = [&](int64_t k) { return !dims_[k].parts.empty() && info(state, k).used == 0; };
  for (int64_t k = 0; k < numDims(); k++) {
    out.dims.push_back(isWhole(k) ? normalForm({{1, dims_[k].extent, kLocal}}) : digits(k, state.dims[k]));
  }
  for (int64_t k = 0; k < numDims(); k++) {
    if (!isWhole(k)) {
      out.setParts(k, dims_[k].parts);
    }
  }
  out.partial = atomsOf(state.partial);
  return out;
}

SearchState PlanSpace::with(SearchState state, int64_t dim, const PlanDim& digits) {
  state.dims[dim] = intern(dim, digits);
  return state;
}

DimId PlanSpace::dropDim(int64_t dim, DimId id, AtomSet atoms) {
  Info& info = dims_[dim].infos[id];
  atoms &= info.used;
  if (atoms == 0) {
    return id;
  }
  for (const auto& [set, after] : info.drops) {
    if (set == atoms) {
      return after;
    }
  }
  PlanDim list = info.digits;
  for (PlanDigit& d : list) {
    if (d.atom != kLocal && (atoms & atomBit(d.atom)) != 0) {
      d.atom = kLocal;
    }
  }
  return info.drops.emplace_back(atoms, intern(dim, list)).second;
}

SearchState PlanSpace::drop(SearchState state, AtomSet atoms) {
  for (int64_t k = 0; k < numDims(); k++) {
    state.dims[k] = dropDim(k, state.dims[k], atoms);
  }
  return state;
}

// The atom takes a digit of local digit `at`; `inside` values remain local below it.
std::optional<PlanDim> PlanSpace::put(const Dim& dim, const PlanDim& digits, int64_t atom, size_t at,
                                      int64_t inside) const {
  const int64_t p = atomSizes_[atom];
  const PlanDigit& d = digits[at];
  const bool isTop = at == 0 && dim.ragged && dim.parts.empty();
  if (d.size % (p * inside) != 0 && !(isTop && (inside < d.size || inside == 1))) {
    return std::nullopt;
  }
  const auto place = digits.begin() + static_cast<ptrdiff_t>(at);
  PlanDim out(digits.begin(), place);
  out.push_back({d.stride * p * inside, divideUp(d.size, p * inside), kLocal});
  out.push_back({d.stride * inside, p, atom});
  out.push_back({d.stride, inside, kLocal});
  out.insert(out.end(), place + 1, digits.end());
  return out;
}

const std::vector<DimId>& PlanSpace::places(int64_t k, DimId id, int64_t atom) {
  const Dim& dim = dims_[k];
  std::optional<std::vector<DimId>>& places = dims_[k].infos[id].places[atom];
  if (places) {
    return *places;
  }
  PlanDim list = dim.infos[id].digits;
  if (list.empty() && dim.ragged) {
    list.push_back({1, 1, kLocal});
  }
  places.emplace();
  for (int64_t i = 0; i < std::ssize(list); i++) {
    const PlanDigit& d = list[i];
    if (d.atom != kLocal) {
      continue;
    }
    std::set<int64_t> insides{1, std::max<int64_t>(1, divideUp(d.size, atomSizes_[atom]))};  // a dim may be empty
    for (int64_t stride : dim.strides) {
      if (stride >= d.stride && stride % d.stride == 0) {
        insides.insert(stride / d.stride);
      }
    }
    for (int64_t inside : insides) {
      if (std::optional<PlanDim> after = put(dim, list, atom, i, inside)) {
        places->push_back(intern(k, *after));
      }
    }
  }
  return *places;
}

int64_t PlanSpace::goalPut(int64_t k, DimId id, int64_t atom) {
  Info& info = dims_[k].infos[id];
  int64_t& after = info.goalPut[atom];
  if (after != -2) {
    return after;
  }
  after = -1;
  const PlanDim list = info.digits.empty() ? PlanDim{{1, 1, kLocal}} : info.digits;
  const int64_t stride = goals_[atom].stride;
  for (int64_t i = 0; i < std::ssize(list); i++) {
    const PlanDigit& d = list[i];
    if (d.atom == kLocal && stride >= d.stride && stride % d.stride == 0 &&
        (d.stride * d.size >= stride * atomSizes_[atom] || i == 0)) {
      if (std::optional<PlanDim> placed = put(dims_[k], list, atom, i, stride / d.stride)) {
        after = intern(k, *placed);
      }
      break;
    }
  }
  return after;
}

int64_t PlanSpace::outermost(AtomSet atoms) const {
  return std::ranges::max(atomsOf(atoms), {}, [&](int64_t atom) { return goals_[atom].stride; });
}

std::optional<SearchState> PlanSpace::putAtGoal(SearchState state, AtomSet atoms) {
  // Outer digits first, so that the topmost digit of a ragged dim gets its place.
  while (atoms != 0) {
    const int64_t next = outermost(atoms);
    atoms &= ~atomBit(next);
    const int64_t dim = goals_[next].dim;
    const int64_t after = dim < 0 ? -1 : goalPut(dim, state.dims[dim], next);
    if (after < 0) {
      return std::nullopt;
    }
    state.dims[dim] = static_cast<DimId>(after);
  }
  return state;
}

bool PlanSpace::even(const SearchState& before, const SearchState& after, AtomSet group) const {
  for (int64_t k = 0; k < numDims(); k++) {
    if (isRagged(before, k) || isRagged(after, k)) {
      return false;
    }
    if ((info(after, k).used & group) == 0) {
      continue;
    }
    for (const PlanDigit& d : info(after, k).digits) {
      if (d.atom != kLocal && (group & atomBit(d.atom)) != 0 && !isCutFromLocal(d, info(before, k).digits)) {
        return false;
      }
    }
  }
  return true;
}

int64_t PlanSpace::overlap(Dim& dim, DimId a, DimId b) {
  if (dim.ragged) {
    return kNotNested;
  }
  auto [found, isNew] = dim.overlaps.try_emplace(uint64_t{a} << 32 | b);
  if (isNew) {
    found->second = sharedElements(dim.infos[a].digits, dim.infos[b].digits);
  }
  return found->second;
}

const std::vector<std::vector<int64_t>>& PlanSpace::coordinates() {
  for (int64_t rank = std::ssize(coordinates_); rank < ranks_; rank++) {
    coordinates_.push_back(coordinatesAt(rank, atomSizes_));
  }
  return coordinates_;
}

const RankCounts& PlanSpace::counts(Dim& dim, DimId a, DimId b) {
  auto [found, isNew] = dim.counts.try_emplace(uint64_t{a} << 32 | b);
  RankCounts& result = found->second;
  if (!isNew) {
    return result;
  }
  const Info& before = dim.infos[a];
  const Info& after = dim.infos[b];
  const int64_t unit = indexUnit(dim.extent, {&before.digits, &after.digits}, dim.parts);
  // Ranks with equal coordinates in all atoms of both lists hold equal parts.
  std::unordered_map<int64_t, std::pair<int64_t, int64_t>> known;
  std::unordered_map<int64_t, IndexSet> sets[2];
  for (const std::vector<int64_t>& mine : coordinates()) {
    auto keyOf = [&](AtomSet atoms) {
      int64_t key = 0;
      for (; atoms != 0; atoms &= atoms - 1) {
        const int64_t atom = std::countr_zero(atoms);
        key = key * atomSizes_[atom] + mine[atom];
      }
      return key;
    };
    auto setOf = [&](int64_t side, const Info& info) -> const IndexSet& {
      auto [set, fresh] = sets[side].try_emplace(keyOf(info.used));
      if (fresh) {
        set->second = IndexSet(
            info.digits, dim.extent, unit, [&](int64_t atom) { return mine[atom]; }, dim.parts);
      }
      return set->second;
    };
    auto [pair, fresh] = known.try_emplace(keyOf(before.used | after.used));
    if (fresh) {
      const IndexSet& holds = setOf(1, after);
      pair->second = {holds.count(), holds.countShared(setOf(0, before))};
    }
    result.after.push_back(pair->second.first);
    result.both.push_back(pair->second.second);
  }
  return result;
}

int64_t PlanSpace::lacking(const SearchState& before, const SearchState& after, Ranks of) {
  if (localSize(after) == 0) {
    return 0;
  }
  int64_t shared = 1;
  bool nested = true;
  bool clash = false;
  for (int64_t k = 0; k < numDims() && nested; k++) {
    const int64_t n = overlap(dims_[k], before.dims[k], after.dims[k]);
    nested = n != kNotNested;
    clash = clash || n == kClash;
    shared *= std::max<int64_t>(n, 0);
  }
  if (nested) {
    return localSize(after) - (clash ? 0 : shared);
  }
  std::vector<const RankCounts*> dims;
  for (int64_t k = 0; k < numDims(); k++) {
    dims.push_back(&counts(dims_[k], before.dims[k], after.dims[k]));
  }
  const int64_t step = of == Ranks::Sample ? std::max<int64_t>(1, ranks_ / kQuickRanks) : 1;
  int64_t most = 0;
  for (int64_t rank = 0; rank < ranks_; rank += step) {
    int64_t wanted = 1;
    int64_t both = 1;
    for (const RankCounts* c : dims) {
      wanted *= c->after[rank];
      both *= c->both[rank];
    }
    most = std::max(most, wanted - both);
  }
  return most;
}

double PlanSpace::lowerBound(const SearchState& state, Ranks of) {
  const AtomSet combined = state.partial & ~to_.partial;
  const AtomSet fresh = to_.partial & ~state.partial;
  const double freshSize = static_cast<double>(sizeOf(fresh));
  if (combined == 0) {
    // The ranks of a new group of contributions may divide the elements of the group among them.
    return static_cast<double>(lacking(drop(state, fresh), to_, of)) / freshSize;
  }
  const bool ragged = std::ranges::any_of(dims_, &Dim::ragged);
  const double wanted = static_cast<double>(localSize(to_));
  double copies = ragged ? total_ : wanted * static_cast<double>(ranks_);
  if (ragged && of == Ranks::All) {
    copies = 0;
    for (int64_t rank = 0; rank < ranks_; rank++) {
      double mine = 1;
      for (int64_t k = 0; k < numDims(); k++) {
        mine *= static_cast<double>(counts(dims_[k], to_.dims[k], to_.dims[k]).after[rank]);
      }
      copies += mine;
    }
  }
  copies /= freshSize;
  const double kept = static_cast<double>(sizeOf(state.partial & to_.partial));
  const double n = static_cast<double>(sizeOf(combined));
  const double mean = (total_ * kept * (n - 2) + copies) / static_cast<double>(ranks_);
  return std::max(mean, fresh != 0 ? 0.0 : wanted);
}

double PlanSpace::lowerBoundBetweenGroups(const SearchState& state, AtomSet inside, Ranks of) {
  if (to_.partial != 0) {
    return 0;
  }
  // A group together holds the state without the digits of its atoms, and combines its own contributions.
  const double ranks = static_cast<double>(sizeOf(inside));
  const SearchState wanted = drop(to_, inside);
  const double n = static_cast<double>(sizeOf(state.partial & ~inside));
  if (n == 1) {
    return static_cast<double>(lacking(drop(state, inside), wanted, of)) / ranks;
  }
  // n groups have a contribution to each element, which takes n - 1 receipts to combine, and another one for each further copy.
  const double groups = static_cast<double>(ranks_) / ranks;
  const bool ragged = std::ranges::any_of(dims_, &Dim::ragged);
  const double held = ragged ? total_ / groups : static_cast<double>(localSize(wanted));
  return std::max(held, (total_ * (n - 2) + held * groups) / groups) / ranks;
}

}  // namespace meshfuse
