// What the choice of digits assumes: extents, and a line of the caches.
#pragma once

#include <cstdint>
#include <numeric>

#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

inline constexpr int64_t kLineBytes = 64;  // of a CPU

// Whether the extents of all calls are near usualExtent(): equal, or between bounds that are near each other.
[[nodiscard]] inline bool isKnownExtent(const IntExpr& e) {
  constexpr int64_t kNear = 16;  // four sizes, each between two powers of two
  return e.isConst() || (e.lower().value_or(0) > 0 && e.upper() && *e.upper() / kNear <= *e.lower());
}

// The extent; if it is known at run time only, the least one or, without near bounds, a typical one. It must not decide what is right.
[[nodiscard]] inline int64_t usualExtent(const IntExpr& e) {
  return e.isConst() ? e.constValue() : isKnownExtent(e) ? *e.lower() : 4096;
}

[[nodiscard]] inline int64_t usualElements(const TensorView& tv) { return productOf(tv.shape(), usualExtent); }

[[nodiscard]] inline int64_t usualBytes(const TensorView& tv) { return usualElements(tv) * dataTypeSize(tv.dtype()); }

// Whether a tensor of known extents has more bytes, in the middle of their bounds.
[[nodiscard]] inline bool isLarger(const TensorView& tv, int64_t bytes) {
  auto middle = static_cast<double>(dataTypeSize(tv.dtype()));
  for (const IntExpr& e : tv.shape()) {
    middle *= e.isConst()        ? static_cast<double>(e.constValue())
              : isKnownExtent(e) ? static_cast<double>(std::midpoint(*e.lower(), *e.upper()))
                                 : 0;
  }
  return middle > static_cast<double>(bytes);
}

}  // namespace meshfuse
