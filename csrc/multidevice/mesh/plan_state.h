// PlanState: a sharding with constant sizes, a state of the planner's search.
//
// Owners are atoms: axes of a mesh, or parts of axes if one of the two shardings of a redistribution owns only a part. Every dim is a list
// of digits with falling strides; neighbouring local digits are merged.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace meshfuse {

inline constexpr int64_t kLocal = -1;

// The origin of an atom: its coordinate is (the coordinate on `axis` / below) mod the atom's size.
struct AtomOrigin {
  int64_t axis = 0;
  int64_t below = 1;
  friend bool operator==(const AtomOrigin&, const AtomOrigin&) = default;
};

struct PlanDigit {
  int64_t stride = 1;
  int64_t size = 1;
  int64_t atom = kLocal;
  friend auto operator<=>(const PlanDigit&, const PlanDigit&) = default;
};

using PlanDim = std::vector<PlanDigit>;

struct PlanState {
  std::vector<PlanDim> dims;
  std::vector<int64_t> partial;  // atoms over which the tensor is still to be combined, ascending
  // By dim: the given sizes of its parts; empty without such dims. Digits index the padded dim, in which each part is as long as the
  // longest.
  std::vector<std::vector<int64_t>> parts = {};

  std::span<const int64_t> partsOf(size_t dim) const;
  void setParts(size_t dim, std::span<const int64_t> sizes);
  friend auto operator<=>(const PlanState&, const PlanState&) = default;
};

[[nodiscard]] int64_t longestOf(std::span<const int64_t> parts);  // at least 1
[[nodiscard]] int64_t paddedExtent(std::span<const int64_t> parts);
// True if ranks hold different numbers of elements, or if an axis owns a digit of a padded dim.
[[nodiscard]] bool isUneven(const PlanState& state, const std::vector<int64_t>& extents);
// Local digits merged, digits of size 1 dropped.
[[nodiscard]] PlanDim normalForm(const PlanDim& dim);
// Whether an owned digit of a dim takes a part of one local digit of `before`, the same dim in another state.
[[nodiscard]] bool isCutFromLocal(const PlanDigit& owned, const PlanDim& before);
// Indices on one rank.
[[nodiscard]] int64_t localExtent(const PlanDim& dim);
[[nodiscard]] std::vector<int64_t> ownersOf(const PlanDim& dim);  // by digit, the outermost first
// Atoms that own a digit, ascending.
[[nodiscard]] std::vector<int64_t> usedAtoms(const PlanState& state);
// The coordinates of a rank, by atom; `position` counts the ranks of the mesh in row-major order.
[[nodiscard]] std::vector<int64_t> coordinatesAt(int64_t position, const std::vector<int64_t>& atomSizes);
// The number that the coordinates of a rank in these atoms make as digits; the last atom is the fastest digit.
[[nodiscard]] int64_t positionAmong(const std::vector<int64_t>& atoms, const std::vector<int64_t>& coordinates,
                                    const std::vector<int64_t>& atomSizes);

}  // namespace meshfuse
