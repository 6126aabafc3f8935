// Lines: where the lines of some tensors along one dim begin. The tensors have the same extents in all other dims.
//
//   Lines<2> lines({4, 3, 5}, 1, {stridesOfA, stridesOfB});    20 lines along dim 1
//   lines.begin(7)[1] + 2 * lines.step(1)                       the offset of element 2 of line 7 in tensor B
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <ranges>
#include <span>
#include <vector>

#include "base/ranges.h"
#include "base/rounding.h"
#include "base/thread_pool.h"
#include "device/cpu/routine.h"

namespace meshfuse {

template <size_t kTensors>
class Lines {
 public:
  using Offsets = std::array<int64_t, kTensors>;  // by tensor, in elements
  using Strides = std::array<std::vector<int64_t>, kTensors>;
  static constexpr int64_t kMostAdjacent = 256;  // lines of a group
  static constexpr int64_t kMostInARow = 16;     // groups of one thread, where there are many
  static constexpr int64_t kRangesPerThread = 8;

  Lines(const std::vector<int64_t>& shape, int64_t dim, const Strides& strides) {
    for (const int64_t d : indices(shape)) {
      Offsets along{};
      std::ranges::transform(strides, along.begin(), [d](const std::vector<int64_t>& s) { return s[d]; });
      if (d == dim) {
        steps_ = along;
      } else {
        others_.push_back({shape[d], along});
        count_ *= shape[d];
      }
    }
  }

  int64_t count() const { return count_; }
  int64_t step(size_t tensor) const { return steps_[tensor]; }

  Offsets begin(int64_t line) const {
    Offsets at{};
    for (const OtherDim& d : std::views::reverse(others_)) {
      for (size_t t = 0; t < kTensors; t++) {
        at[t] += line % d.extent * d.strides[t];
      }
      line /= d.extent;
    }
    return at;
  }

  // Calls visit(begins, next) for all lines, `side` adjacent ones at a time (at most kMostAdjacent), the last ones fewer; next: by tensor,
  // the distance in elements from the first line of this group to the first line of the next group of the same thread; 0 for its last
  // group. elements: the number of elements of a line.
  template <class Visit>
  void forEachGroup(ThreadPool& pool, int64_t side, int64_t elements, const Visit& visit) const {
    const int64_t groups = divideUp(count_, side);
    const auto range = [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t first = begin * side; first < std::min(count_, end * side); first += side) {
        Offsets begins[kMostAdjacent];
        const int64_t size = std::min(side, count_ - first);
        for (int64_t k = 0; k < size; k++) {
          begins[k] = this->begin(first + k);
        }
        Offsets next = this->begin(first + side < std::min(count_, end * side) ? first + side : first);
        for (size_t t = 0; t < kTensors; t++) {
          next[t] -= begins[0][t];
        }
        visit(std::span<const Offsets>(begins, size), next);
      }
    };
    const int64_t inARow = std::min(kMostInARow, groups / (kRangesPerThread * pool.threads()));
    pool.run(groups, range, std::max(inARow, linesPerRange(elements * side)));
  }

 private:
  struct OtherDim {
    int64_t extent;
    Offsets strides;
  };
  std::vector<OtherDim> others_;
  Offsets steps_{};  // from one element of a line to the next
  int64_t count_ = 1;
};

}  // namespace meshfuse
