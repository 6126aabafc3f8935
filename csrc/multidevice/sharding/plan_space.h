// PlanSpace: the states between two ends, numbered so that the search compares and hashes a few words.
//
// Every list of digits of a dim gets a number when it first occurs; a state is one number for each dim and the set of partial atoms. The
// effect of a move on one dim (take a digit, free a digit) and the overlap of two lists are computed once for each pair of numbers.
//
// The top digit of a dim may be ragged: stride times size exceeds the extent, and elements beyond the extent do not exist. If a dim has
// parts of given sizes, both ends have the same parts, and all digits index the padded dim.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "multidevice/mesh/plan_state.h"

namespace meshfuse {

inline constexpr int64_t kMaxPlanDims = 16;
inline constexpr int64_t kMaxPlanAtoms = 30;

using AtomSet = uint32_t;
using DimId = uint32_t;

inline AtomSet atomBit(int64_t atom) { return AtomSet{1} << atom; }
[[nodiscard]] std::vector<int64_t> atomsOf(AtomSet set);  // ascending
[[nodiscard]] AtomSet atomSetOf(const std::vector<int64_t>& atoms);

struct SearchState {
  std::array<DimId, kMaxPlanDims> dims{};
  AtomSet partial = 0;
  uint32_t permuted = 0;  // 1 if the chain already contains a permutation
  friend bool operator==(const SearchState&, const SearchState&) = default;
};

// By rank, row-major: how many indices of a dim the rank holds in the state `after`, and in both states.
struct RankCounts {
  std::vector<int64_t> after;
  std::vector<int64_t> both;
};

class PlanSpace {
 public:
  struct Goal {  // the digit that the destination gives an atom
    int64_t dim = -1;
    int64_t stride = 1;
  };

  // At most kMaxPlanDims dims and kMaxPlanAtoms atoms: see `fits`. If both ends have parts of given sizes in a dim, the parts are equal.
  PlanSpace(const std::vector<int64_t>& extents, std::vector<int64_t> atomSizes, const PlanState& from,
            const PlanState& to);
  static bool fits(const PlanState& from, const std::vector<int64_t>& atomSizes);

  SearchState from() const { return from_; }
  SearchState to() const { return to_; }
  int64_t numDims() const { return std::ssize(dims_); }
  int64_t numAtoms() const { return std::ssize(atomSizes_); }
  int64_t atomSize(int64_t atom) const { return atomSizes_[atom]; }
  int64_t sizeOf(AtomSet atoms) const;
  const Goal& goal(int64_t atom) const { return goals_[atom]; }
  AtomSet goalAtoms() const { return goalAtoms_; }  // the atoms that own a digit of the destination
  int64_t outermost(AtomSet atoms) const;           // the atom whose digit of the destination has the largest stride

  const PlanDim& digits(int64_t dim, DimId id) const { return dims_[dim].infos[id].digits; }
  bool isRagged(const SearchState& state) const;
  AtomSet used(const SearchState& state) const { return united(state, &Info::used); }
  // The atoms on the digit that the destination gives them.
  AtomSet atGoal(const SearchState& state) const { return united(state, &Info::atGoal); }
  int64_t localSize(const SearchState& state) const;  // on the fullest rank
  PlanState toPlanState(const SearchState& state) const;
  // The state with the digits of one dim replaced.
  SearchState with(SearchState state, int64_t dim, const PlanDim& digits);

  SearchState drop(SearchState state, AtomSet atoms);
  // The numbers of a dim after `atom` took a digit of it: outermost, innermost, and at the strides of both ends.
  const std::vector<DimId>& places(int64_t dim, DimId id, int64_t atom);
  // The state with every atom of the set on its digit of the destination; nullopt if such a digit is owned.
  std::optional<SearchState> putAtGoal(SearchState state, AtomSet atoms);
  // True if every pair of the team exchanges the same number of elements: the new digits of `group` lie in digits that were local.
  bool even(const SearchState& before, const SearchState& after, AtomSet group) const;

  enum class Ranks : uint8_t { All, Sample };
  // max over ranks of the elements of `after` that are not in `before`. `of`: all ranks, or a sample of them if digits do not nest.
  int64_t lacking(const SearchState& before, const SearchState& after, Ranks of = Ranks::All);
  // A lower bound of the elements that the busiest rank receives on any chain from `state` to the destination.
  double lowerBound(const SearchState& state, Ranks of = Ranks::All);
  // The same for elements that cross a border between groups: a group is all ranks that differ on the atoms `inside` only. Its ranks
  // receive at least so many elements from other groups, on average. 0 if the destination is a partial sum.
  double lowerBoundBetweenGroups(const SearchState& state, AtomSet inside, Ranks of);

 private:
  struct Info {
    PlanDim digits;
    int64_t local = 0;
    AtomSet used = 0;
    AtomSet atGoal = 0;
    std::vector<std::pair<AtomSet, DimId>> drops;
    std::vector<std::optional<std::vector<DimId>>> places;  // by atom
    std::vector<int64_t> goalPut;                           // by atom: -2 unknown, -1 no room
  };
  struct DimHash {
    size_t operator()(const PlanDim& dim) const;
  };
  struct Dim {
    int64_t extent;
    std::vector<int64_t> parts;
    bool ragged = false;
    std::set<int64_t> strides = {};  // of digits of both ends
    std::deque<Info> infos = {};     // by number
    std::unordered_map<PlanDim, DimId, DimHash> numbers = {};
    std::unordered_map<uint64_t, int64_t> overlaps = {};  // by both numbers
    std::unordered_map<uint64_t, RankCounts> counts = {};

    // The extent that digits index: the extent of the dim, or of the padded dim.
    int64_t places() const { return parts.empty() ? extent : paddedExtent(parts); }
  };

  const Info& info(const SearchState& state, int64_t dim) const { return dims_[dim].infos[state.dims[dim]]; }
  AtomSet united(const SearchState& state, AtomSet Info::*atoms) const;  // over all dims
  bool isRagged(const SearchState& state, int64_t dim) const;
  DimId intern(int64_t dim, const PlanDim& digits);
  int64_t fullest(const Dim& dim, const PlanDim& digits);
  PlanDim canonical(const Dim& dim, const PlanDim& digits) const;
  std::optional<PlanDim> put(const Dim& dim, const PlanDim& digits, int64_t atom, size_t at, int64_t inside) const;
  DimId dropDim(int64_t dim, DimId id, AtomSet atoms);
  int64_t goalPut(int64_t dim, DimId id, int64_t atom);
  const std::vector<std::vector<int64_t>>& coordinates();  // of all ranks, row-major
  int64_t overlap(Dim& dim, DimId a, DimId b);
  const RankCounts& counts(Dim& dim, DimId a, DimId b);
  SearchState numbered(const PlanState& state);

  std::vector<Dim> dims_;
  std::vector<int64_t> atomSizes_;
  std::vector<Goal> goals_;
  AtomSet goalAtoms_ = 0;
  int64_t ranks_;
  double total_ = 1;
  std::vector<std::vector<int64_t>> coordinates_;
  SearchState from_;
  SearchState to_;
};

}  // namespace meshfuse
