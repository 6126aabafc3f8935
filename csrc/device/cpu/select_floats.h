// The few first elements of a line of Float in order, found by comparing floats instead of keys.
//
// The first pass finds the best element of each of several groups; the bound is the `wanted`-th best of these. At least `wanted` elements
// of the line are as good as the bound, and few more. The second pass writes the places of all these elements. Both passes make one
// comparison for each vector; the first reads memory, the second a cache.
#pragma once

#include <cstdint>

namespace meshfuse {

struct FloatSelection {
  int64_t extent;   // elements of the line, which are neighbours in memory
  int64_t wanted;   // the first ones in order
  bool descending;  // the largest first, NaN before all others; else the smallest first, NaN after all others
};

// Whether the processor has what selectFloats needs, and the line is long enough for it.
[[nodiscard]] bool canSelectFloats(const FloatSelection& s);

// Writes the places of all elements that may be among the first `wanted`, ascending; returns their number, or -1 if the line has too many
// NaN to be selected so. `places` has room for extent + 16 numbers. Meanwhile the line at `next` is fetched.
[[nodiscard]] int64_t selectFloats(const FloatSelection& s, const float* line, const float* next, uint32_t* places);

}  // namespace meshfuse
