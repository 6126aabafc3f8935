// Arithmetic on int64_t that never wraps. The numbers are sizes, counts, strides and offsets of programs and tensors, so a result that does
// not fit in 64 bits is the caller's mistake: a UserError that names the numbers.
//
//   addExact(2, 3)              5
//   mulExact(2, 3)              6
//   productExact({2, 3, 4})     24; 1 without elements, 0 if one is 0, in any order
//   sumExact(tensors, bytesOf)  adds the results
//   exactInt(uint64_t{7})       7
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <ranges>
#include <utility>

namespace meshfuse {

[[noreturn]] void throwInexact(int64_t a, char operation, int64_t b);
[[noreturn]] void throwInexact(uint64_t value);

template <std::integral T>
[[nodiscard]] int64_t exactInt(T value) {
  if (!std::in_range<int64_t>(value)) [[unlikely]] {
    throwInexact(static_cast<uint64_t>(value));
  }
  return static_cast<int64_t>(value);
}

[[nodiscard]] inline std::optional<int64_t> addedIfExact(int64_t a, int64_t b) {
  int64_t r = 0;
  return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
}

[[nodiscard]] inline std::optional<int64_t> multipliedIfExact(int64_t a, int64_t b) {
  int64_t r = 0;
  return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
}

[[nodiscard]] inline int64_t addExact(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) [[unlikely]] {
    throwInexact(a, '+', b);
  }
  return r;
}

[[nodiscard]] inline int64_t mulExact(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) [[unlikely]] {
    throwInexact(a, '*', b);
  }
  return r;
}

template <std::ranges::input_range Range, class F = std::identity>
[[nodiscard]] int64_t sumExact(Range&& range, F f = {}) {
  int64_t sum = 0;
  for (auto&& x : range) {
    sum = addExact(sum, std::invoke(f, x));
  }
  return sum;
}

template <std::ranges::forward_range Range, class F = std::identity>
[[nodiscard]] int64_t productExact(Range&& range, F f = {}) {
  for (auto&& x : range) {
    if (std::invoke(f, x) == 0) {
      return 0;
    }
  }
  int64_t product = 1;
  for (auto&& x : range) {
    product = mulExact(product, std::invoke(f, x));
  }
  return product;
}

}  // namespace meshfuse
