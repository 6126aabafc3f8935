// Integers rounded up to multiples, and to powers of two.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace meshfuse {

// The least n with n * b >= a, for a > -b and b > 0.
template <std::integral T>
[[nodiscard]] constexpr T divideUp(T a, std::type_identity_t<T> b) {
  return (a + b - 1) / b;
}

// The least multiple of `unit` that is at least a.
template <std::integral T>
[[nodiscard]] constexpr T roundUp(T a, std::type_identity_t<T> unit) {
  return divideUp(a, unit) * unit;
}

// The least power of two that is at least n, and the largest that is at most n; 1 if n < 1.
[[nodiscard]] constexpr int64_t powerAtLeast(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}
[[nodiscard]] constexpr int64_t powerAtMost(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}

}  // namespace meshfuse
