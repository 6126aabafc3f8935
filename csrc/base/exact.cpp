#include "base/exact.h"

#include "base/error.h"

namespace meshfuse {

void throwInexact(int64_t a, char operation, int64_t b) {
  throwUserError(fmt::format("[sizes] got {} {} {}, expected a result of 64 bits; use smaller sizes", a, operation, b));
}

void throwInexact(uint64_t value) {
  throwUserError(
      fmt::format("[sizes] got {}, expected an integer of at most {}; use smaller numbers", value, INT64_MAX));
}

}  // namespace meshfuse
