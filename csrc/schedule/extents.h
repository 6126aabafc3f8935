// What the choice of digits assumes: extents, and a line of the caches.
#pragma once

#include <cstdint>

#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

inline constexpr int64_t kLineBytes = 64;  // of a CPU

// The extent; if it is known at run time only, a typical one.
[[nodiscard]] inline int64_t usualExtent(const IntExpr& e) { return e.isConst() ? e.constValue() : 4096; }

[[nodiscard]] inline int64_t usualElements(const TensorView& tv) { return productOf(tv.shape(), usualExtent); }

[[nodiscard]] inline int64_t usualBytes(const TensorView& tv) { return usualElements(tv) * dataTypeSize(tv.dtype()); }

}  // namespace meshfuse
