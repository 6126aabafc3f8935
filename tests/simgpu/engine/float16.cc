#include "float16.h"

#include <algorithm>
#include <cmath>

namespace simgpu {

double decode(uint16_t bits, Format f) {
  const int fraction = bits & ((1 << f.fractionBits) - 1);
  const int exponent = bits >> f.fractionBits & ((1 << f.exponentBits) - 1);
  const int one = 1 << f.fractionBits;
  double value = 0;
  if (exponent == (1 << f.exponentBits) - 1) {
    value = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - f.bias() - f.fractionBits);
  } else {
    value = std::ldexp(one + fraction, exponent - f.bias() - f.fractionBits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

uint16_t encode(double value, Format f) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const int infinite = ((1 << f.exponentBits) - 1) << f.fractionBits;
  const double size = std::fabs(value);
  if (std::isnan(size)) {
    return static_cast<uint16_t>(sign | infinite | 1 << (f.fractionBits - 1));
  }
  const int least = 1 - f.bias();
  const int exponent = std::isinf(size) || size == 0 ? least : std::max(std::ilogb(size), least);
  // the value in units of the last bit; a carry out of the fraction goes into the exponent
  const double units = std::nearbyint(std::ldexp(size, f.fractionBits - exponent));
  const double bits = units + std::ldexp(exponent - least, f.fractionBits);
  return static_cast<uint16_t>(sign | (bits < infinite ? static_cast<int>(bits) : infinite));
}

}  // namespace simgpu
