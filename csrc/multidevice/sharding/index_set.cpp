#include "multidevice/sharding/index_set.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

#include "base/error.h"
#include "base/rounding.h"

namespace meshfuse {

namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 27;  // blocks are listed

}  // namespace

int64_t indexUnit(int64_t extent, const std::vector<const PlanDim*>& lists, std::span<const int64_t> parts) {
  int64_t unit = std::max<int64_t>(extent, 1);
  for (int64_t size : parts) {
    unit = std::gcd(unit, size);
  }
  for (const PlanDim* list : lists) {
    for (const PlanDigit& d : *list) {
      if (d.atom != kLocal) {
        unit = std::gcd(unit, d.stride);
      }
    }
  }
  return unit;
}

int64_t indexUnit(int64_t extent, const PlanState& a, const PlanState& b, size_t dim) {
  return std::gcd(indexUnit(extent, {&a.dims[dim]}, a.partsOf(dim)), indexUnit(extent, {&b.dims[dim]}, b.partsOf(dim)));
}

IndexSet::IndexSet(const PlanDim& digits, int64_t extent, int64_t unit,
                   const std::function<int64_t(int64_t atom)>& coordinate, std::span<const int64_t> parts)
    : unit_(unit) {
  const int64_t blocks = divideUp(extent, unit);
  check(blocks <= kMostBlocks,
        "[plan] a dim of {} elements is cut in parts with the largest common divisor {}, expected at most {} "
        "blocks of this size; pad the dim to a multiple of the number of ranks",
        extent, unit, kMostBlocks);
  const int64_t places = parts.empty() ? extent : paddedExtent(parts);
  words_.assign(static_cast<size_t>(blocks + 63) / 64, 0);
  // Starts of blocks, from the minor digit up: each local digit repeats what is below it.
  std::vector<int64_t> starts{0};
  for (auto d = digits.rbegin(); d != digits.rend(); ++d) {
    if (d->atom != kLocal) {
      const int64_t shift = coordinate(d->atom) * d->stride;
      for (int64_t& s : starts) {
        s += shift;
      }
      continue;
    }
    const int64_t stride = std::max(d->stride, unit);  // indices within one unit are equivalent
    const int64_t repeats = divideUp(d->stride * d->size, stride);
    std::vector<int64_t> next;
    next.reserve(starts.size() * static_cast<size_t>(repeats));
    for (int64_t r = 0; r < repeats; r++) {
      for (int64_t s : starts) {
        if (s + r * stride < places) {
          next.push_back(s + r * stride);
        }
      }
    }
    starts = std::move(next);
  }
  std::vector<int64_t> before(parts.size());  // number of elements before each part
  std::exclusive_scan(parts.begin(), parts.end(), before.begin(), int64_t{0});
  for (int64_t s : starts) {
    if (s < places && !parts.empty()) {
      const auto part = static_cast<size_t>(s / longestOf(parts));
      const int64_t within = s % longestOf(parts);
      s = within < parts[part] ? before[part] + within : extent;
    }
    if (s < extent) {
      words_[static_cast<size_t>(s / unit) / 64] |= uint64_t{1} << (s / unit % 64);
    }
  }
}

int64_t IndexSet::count() const { return countShared(*this); }

int64_t IndexSet::countShared(const IndexSet& other) const {
  int64_t blocks = 0;
  for (int64_t i = 0; i < std::ssize(words_); i++) {
    blocks += std::popcount(words_[i] & other.words_[i]);
  }
  return blocks * unit_;  // a unit divides the extent
}

}  // namespace meshfuse
