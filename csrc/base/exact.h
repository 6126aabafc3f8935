// Arithmetic on int64_t that never wraps: overflow is an InternalError.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace meshfuse {

[[nodiscard]] inline int64_t addExact(int64_t a, int64_t b) {
  int64_t r = 0;
  invariant(!__builtin_add_overflow(a, b, &r), "[exact] {} + {} overflows 64 bits", a, b);
  return r;
}

[[nodiscard]] inline int64_t mulExact(int64_t a, int64_t b) {
  int64_t r = 0;
  invariant(!__builtin_mul_overflow(a, b, &r), "[exact] {} * {} overflows 64 bits", a, b);
  return r;
}

}  // namespace meshfuse
