// The indices of one dim that a rank holds, as one bit for each block of neighbouring indices that no digit distinguishes.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "multidevice/mesh/plan_state.h"

namespace meshfuse {

class IndexSet {
 public:
  IndexSet() = default;
  // The elements below `extent` whose owned digits have the values of the rank; `unit` divides all strides of owned digits and all sizes of
  // parts, if digits index a padded dim.
  IndexSet(const PlanDim& digits, int64_t extent, int64_t unit, const std::function<int64_t(int64_t atom)>& coordinate,
           std::span<const int64_t> parts = {});

  int64_t count() const;                             // in elements
  int64_t countShared(const IndexSet& other) const;  // of the same extent and unit
  friend auto operator<=>(const IndexSet&, const IndexSet&) = default;

 private:
  std::vector<uint64_t> words_;
  int64_t unit_ = 1;
};

// The size of the largest blocks of neighbouring indices such that no owned digit of these lists and no part boundary cuts a block.
[[nodiscard]] int64_t indexUnit(int64_t extent, const std::vector<const PlanDim*>& lists,
                                std::span<const int64_t> parts = {});
// The same for one dim of two states.
[[nodiscard]] int64_t indexUnit(int64_t extent, const PlanState& a, const PlanState& b, size_t dim);

}  // namespace meshfuse
