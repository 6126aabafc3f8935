#include "multidevice/sharding/plan_space.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "multidevice/sharding/index_set.h"

namespace meshfuse {

namespace {

constexpr int64_t kNotNested = -2;
constexpr int64_t kClash = -1;
constexpr int64_t kQuickRanks = 5;

int64_t ceilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Both lists walked from the minor end in steps of what divides both. The elements that are local on both sides; kClash if some
// rank has different values in a digit; kNotNested where the radices do not nest.
int64_t sharedElements(const PlanDim& a, const PlanDim& b) {
  struct Cursor {
    const PlanDim& dim;
    size_t left;
    int64_t size = 1;
    int64_t scale = 1;  // the place within an owned digit
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

std::vector<int> atomsOf(AtomSet set) {
  std::vector<int> atoms;
  for (; set != 0; set &= set - 1) {
    atoms.push_back(std::countr_zero(set));
  }
  return atoms;
}

AtomSet atomSetOf(const std::vector<int>& atoms) {
  AtomSet set = 0;
  for (int atom : atoms) {
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

PlanSpace::PlanSpace(std::vector<int64_t> extents, std::vector<int64_t> atomSizes, const PlanState& from,
                     const PlanState& to)
    : extents_(std::move(extents)), atomSizes_(std::move(atomSizes)) {
  const size_t dims = extents_.size();
  for (int64_t n : atomSizes_) {
    ranks_ *= n;
  }
  infos_.resize(dims);
  numbers_.resize(dims);
  overlaps_.resize(dims);
  counts_.resize(dims);
  goals_.resize(atomSizes_.size());
  for (size_t k = 0; k < dims; k++) {
    total_ *= static_cast<double>(extents_[k]);
    std::set<int64_t> strides;
    bool ragged = false;
    const std::span<const int64_t> parts = from.partsOf(k).empty() ? to.partsOf(k) : from.partsOf(k);
    parts_.emplace_back(parts.begin(), parts.end());
    for (const PlanState* state : {&from, &to}) {
      const PlanDim& dim = state->dims[k];
      ragged = ragged || !parts.empty() || (!dim.empty() && dim.front().stride * dim.front().size != extents_[k]);
      for (const PlanDigit& d : dim) {
        strides.insert(d.stride);
      }
    }
    ragged_.push_back(ragged);
    strides_.emplace_back(strides.begin(), strides.end());
    for (const PlanDigit& d : to.dims[k]) {
      if (d.atom != kLocal) {
        goals_[d.atom] = {static_cast<int>(k), d.stride};
        goalAtoms_ |= atomBit(d.atom);
      }
    }
  }
  from_ = numbered(from);
  to_ = numbered(to);
}

SearchState PlanSpace::numbered(const PlanState& state) {
  SearchState out;
  for (size_t k = 0; k < state.dims.size(); k++) {
    out.dims[k] = intern(static_cast<int>(k), state.dims[k]);
  }
  out.partial = atomSetOf(state.partial);
  return out;
}

PlanDim PlanSpace::canonical(int dim, const PlanDim& digits) const {
  PlanDim out = normalForm(digits);
  const auto isLocal = [](const PlanDigit& d) { return d.atom == kLocal; };
  if (!parts_[dim].empty() && std::ranges::all_of(out, isLocal)) {
    return {{1, placesOf(dim), kLocal}};
  }
  if (!out.empty() && out.front().atom == kLocal) {
    out.front().size = ceilOf(placesOf(dim), out.front().stride);
    if (out.front().size == 1) {
      out.erase(out.begin());
    }
  }
  return out;
}

DimId PlanSpace::intern(int dim, const PlanDim& digits) {
  PlanDim list = canonical(dim, digits);
  auto [found, isNew] = numbers_[dim].try_emplace(list, static_cast<DimId>(infos_[dim].size()));
  if (!isNew) {
    return found->second;
  }
  Info info;
  info.places.resize(atomSizes_.size());
  info.goalPut.assign(atomSizes_.size(), -2);
  info.local = localExtent(list);
  if (ragged_[dim]) {
    info.local = fullest(dim, list);
  }
  for (const PlanDigit& d : list) {
    if (d.atom != kLocal) {
      info.used |= atomBit(d.atom);
      if (goals_[d.atom].dim == dim && goals_[d.atom].stride == d.stride) {
        info.atGoal |= atomBit(d.atom);
      }
    }
  }
  info.digits = std::move(list);
  infos_[dim].push_back(std::move(info));
  return found->second;
}

// Elements on the rank with the largest part: the first rank, except for parts of given sizes.
int64_t PlanSpace::fullest(int dim, const PlanDim& digits) {
  const int64_t unit = indexUnit(extents_[dim], {&digits}, parts_[dim]);
  const auto countAt = [&](const auto& coordinate) {
    return IndexSet(digits, extents_[dim], unit, coordinate, parts_[dim]).count();
  };
  if (parts_[dim].empty()) {
    return countAt([](int) { return 0; });
  }
  int64_t most = 0;
  for (const std::vector<int64_t>& rank : coordinates()) {
    most = std::max(most, countAt([&](int atom) { return rank[atom]; }));
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

bool PlanSpace::isRagged(int dim, DimId id) const {
  const PlanDim& list = infos_[dim][id].digits;
  if (!parts_[dim].empty()) {
    return infos_[dim][id].used != 0;
  }
  return !list.empty() && list.front().stride * list.front().size != extents_[dim];
}

bool PlanSpace::isRagged(const SearchState& state) const {
  for (int k = 0; k < numDims(); k++) {
    if (ragged_[k] && isRagged(k, state.dims[k])) {
      return true;
    }
  }
  return false;
}

AtomSet PlanSpace::used(const SearchState& state) const {
  AtomSet set = 0;
  for (int k = 0; k < numDims(); k++) {
    set |= infos_[k][state.dims[k]].used;
  }
  return set;
}

AtomSet PlanSpace::atGoal(const SearchState& state) const {
  AtomSet set = 0;
  for (int k = 0; k < numDims(); k++) {
    set |= infos_[k][state.dims[k]].atGoal;
  }
  return set;
}

int64_t PlanSpace::localSize(const SearchState& state) const {
  int64_t n = 1;
  for (int k = 0; k < numDims(); k++) {
    n *= infos_[k][state.dims[k]].local;
  }
  return n;
}

PlanState PlanSpace::toPlanState(const SearchState& state) const {
  PlanState out;
  for (int k = 0; k < numDims(); k++) {
    out.dims.push_back(infos_[k][state.dims[k]].digits);
    if (!parts_[k].empty() && infos_[k][state.dims[k]].used == 0) {
      out.dims.back() = normalForm({{1, extents_[k], kLocal}});
    }
  }
  for (int k = 0; k < numDims(); k++) {
    if (!parts_[k].empty() && infos_[k][state.dims[k]].used != 0) {
      out.setParts(k, parts_[k]);
    }
  }
  out.partial = atomsOf(state.partial);
  return out;
}

SearchState PlanSpace::with(SearchState state, int dim, const PlanDim& digits) {
  state.dims[dim] = intern(dim, digits);
  return state;
}

DimId PlanSpace::dropDim(int dim, DimId id, AtomSet atoms) {
  Info& info = infos_[dim][id];
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
  const DimId after = intern(dim, list);
  infos_[dim][id].drops.emplace_back(atoms, after);
  return after;
}

SearchState PlanSpace::drop(SearchState state, AtomSet atoms) {
  for (int k = 0; k < numDims(); k++) {
    state.dims[k] = dropDim(k, state.dims[k], atoms);
  }
  return state;
}

// The atom takes a digit of local digit `at`; `inside` values remain local below it.
std::optional<PlanDim> PlanSpace::put(int dim, const PlanDim& digits, int atom, size_t at, int64_t inside) const {
  const int64_t p = atomSizes_[atom];
  const PlanDigit& d = digits[at];
  const bool isTop = at == 0 && ragged_[dim] && parts_[dim].empty();
  if (d.size % (p * inside) != 0 && !(isTop && (inside < d.size || inside == 1))) {
    return std::nullopt;
  }
  PlanDim out(digits.begin(), digits.begin() + static_cast<ptrdiff_t>(at));
  out.push_back({d.stride * p * inside, ceilOf(d.size, p * inside), kLocal});
  out.push_back({d.stride * inside, p, atom});
  out.push_back({d.stride, inside, kLocal});
  out.insert(out.end(), digits.begin() + static_cast<ptrdiff_t>(at) + 1, digits.end());
  return out;
}

const std::vector<DimId>& PlanSpace::places(int dim, DimId id, int atom) {
  if (infos_[dim][id].places[atom]) {
    return *infos_[dim][id].places[atom];
  }
  PlanDim list = infos_[dim][id].digits;
  if (list.empty() && ragged_[dim]) {
    list.push_back({1, 1, kLocal});
  }
  std::vector<DimId> out;
  for (size_t i = 0; i < list.size(); i++) {
    const PlanDigit& d = list[i];
    if (d.atom != kLocal) {
      continue;
    }
    std::set<int64_t> insides{1, std::max<int64_t>(1, ceilOf(d.size, atomSizes_[atom]))};  // a dim may be empty
    for (int64_t stride : strides_[dim]) {
      if (stride >= d.stride && stride % d.stride == 0) {
        insides.insert(stride / d.stride);
      }
    }
    for (int64_t inside : insides) {
      if (std::optional<PlanDim> after = put(dim, list, atom, i, inside)) {
        out.push_back(intern(dim, *after));
      }
    }
  }
  return *(infos_[dim][id].places[atom] = std::move(out));
}

int PlanSpace::goalPut(int dim, DimId id, int atom) {
  if (infos_[dim][id].goalPut[atom] != -2) {
    return infos_[dim][id].goalPut[atom];
  }
  PlanDim list = infos_[dim][id].digits;
  if (list.empty()) {
    list.push_back({1, 1, kLocal});
  }
  const int64_t stride = goals_[atom].stride;
  int after = -1;
  for (size_t i = 0; i < list.size(); i++) {
    const PlanDigit& d = list[i];
    if (d.atom == kLocal && stride >= d.stride && stride % d.stride == 0 &&
        (d.stride * d.size >= stride * atomSizes_[atom] || i == 0)) {
      if (std::optional<PlanDim> placed = put(dim, list, atom, i, stride / d.stride)) {
        after = intern(dim, *placed);
      }
      break;
    }
  }
  return infos_[dim][id].goalPut[atom] = after;
}

int PlanSpace::outermost(AtomSet atoms) const {
  return std::ranges::max(atomsOf(atoms), {}, [&](int atom) { return goals_[atom].stride; });
}

std::optional<SearchState> PlanSpace::putAtGoal(SearchState state, AtomSet atoms) {
  // Outer digits first, so that the topmost digit of a ragged dim gets its place.
  while (atoms != 0) {
    const int next = outermost(atoms);
    atoms &= ~atomBit(next);
    const int dim = goals_[next].dim;
    const int after = dim < 0 ? -1 : goalPut(dim, state.dims[dim], next);
    if (after < 0) {
      return std::nullopt;
    }
    state.dims[dim] = static_cast<DimId>(after);
  }
  return state;
}

bool PlanSpace::even(const SearchState& before, const SearchState& after, AtomSet group) const {
  for (int k = 0; k < numDims(); k++) {
    if (ragged_[k] && (isRagged(k, before.dims[k]) || isRagged(k, after.dims[k]))) {
      return false;
    }
    if ((infos_[k][after.dims[k]].used & group) == 0) {
      continue;
    }
    for (const PlanDigit& d : digits(k, after.dims[k])) {
      if (d.atom != kLocal && (group & atomBit(d.atom)) != 0 && !isCutFromLocal(d, digits(k, before.dims[k]))) {
        return false;
      }
    }
  }
  return true;
}

int64_t PlanSpace::overlap(int dim, DimId a, DimId b) {
  if (ragged_[dim]) {
    return kNotNested;
  }
  auto [found, isNew] = overlaps_[dim].try_emplace(uint64_t{a} << 32 | b);
  if (isNew) {
    found->second = sharedElements(infos_[dim][a].digits, infos_[dim][b].digits);
  }
  return found->second;
}

const std::vector<std::vector<int64_t>>& PlanSpace::coordinates() {
  for (int64_t rank = std::ssize(coordinates_); rank < ranks_; rank++) {
    coordinates_.push_back(coordinatesAt(rank, atomSizes_));
  }
  return coordinates_;
}

const RankCounts& PlanSpace::counts(int dim, DimId a, DimId b) {
  auto [found, isNew] = counts_[dim].try_emplace(uint64_t{a} << 32 | b);
  RankCounts& result = found->second;
  if (!isNew) {
    return result;
  }
  const Info& before = infos_[dim][a];
  const Info& after = infos_[dim][b];
  const int64_t extent = extents_[dim];
  const int64_t unit = indexUnit(extent, {&before.digits, &after.digits}, parts_[dim]);
  // Ranks with equal coordinates in all atoms of both lists hold equal parts.
  std::unordered_map<int64_t, std::pair<int64_t, int64_t>> known;
  std::unordered_map<int64_t, IndexSet> sets[2];
  for (const std::vector<int64_t>& mine : coordinates()) {
    auto keyOf = [&](AtomSet atoms) {
      int64_t key = 0;
      for (; atoms != 0; atoms &= atoms - 1) {
        const int atom = std::countr_zero(atoms);
        key = key * atomSizes_[atom] + mine[atom];
      }
      return key;
    };
    auto setOf = [&](int side, const Info& info) -> const IndexSet& {
      auto [set, fresh] = sets[side].try_emplace(keyOf(info.used));
      if (fresh) {
        set->second = IndexSet(
            info.digits, extent, unit, [&](int atom) { return mine[atom]; }, parts_[dim]);
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
  for (int k = 0; k < numDims() && nested; k++) {
    const int64_t n = overlap(k, before.dims[k], after.dims[k]);
    nested = n != kNotNested;
    clash = clash || n == kClash;
    shared *= std::max<int64_t>(n, 0);
  }
  if (nested) {
    return localSize(after) - (clash ? 0 : shared);
  }
  std::vector<const RankCounts*> dims;
  for (int k = 0; k < numDims(); k++) {
    dims.push_back(&counts(k, before.dims[k], after.dims[k]));
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
    const SearchState shared = fresh != 0 ? drop(state, fresh) : state;
    return static_cast<double>(lacking(shared, to_, of)) / freshSize;
  }
  const bool ragged = std::any_of(ragged_.begin(), ragged_.end(), [](bool r) { return r; });
  const double wanted = static_cast<double>(localSize(to_));
  double copies = ragged ? total_ : wanted * static_cast<double>(ranks_);
  if (ragged && of == Ranks::All) {
    copies = 0;
    for (int64_t rank = 0; rank < ranks_; rank++) {
      double mine = 1;
      for (int k = 0; k < numDims(); k++) {
        mine *= static_cast<double>(counts(k, to_.dims[k], to_.dims[k]).after[rank]);
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

}  // namespace meshfuse
