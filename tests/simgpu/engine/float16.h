// The two floating-point types of 16 bits.
#pragma once

#include <cstdint>

namespace simgpu {

struct Format {
  int exponentBits;
  int fractionBits;

  int bias() const { return (1 << (exponentBits - 1)) - 1; }
};
inline constexpr Format kHalf{.exponentBits = 5, .fractionBits = 10};
inline constexpr Format kBFloat16{.exponentBits = 8, .fractionBits = 7};

double decode(uint16_t bits, Format f);

// To the nearest, and of two that are equally near the one whose last bit is 0.
uint16_t encode(double value, Format f);

}  // namespace simgpu
