// 16-bit floating storage types and their conversions, round to nearest even; NaN stays NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/dtype.h"

namespace meshfuse {

constexpr float bfloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

constexpr uint16_t floatToBFloat16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float halfToFloat(uint16_t bits) {
  uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  }
  if (rest < 0x400u) {  // zero or subnormal: rest * 2^-24 is exact
    float magnitude = static_cast<float>(rest) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
}

constexpr uint16_t floatToHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u);
  }
  if (rest >= 0x477ff000u) {  // rounds to 65536 or more
    return static_cast<uint16_t>(sign | 0x7c00u);
  }
  if (rest < 0x38800000u) {  // subnormal half: adding 0.5 leaves the rounded value in the low bits
    float shifted = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u) - 0x38000000u;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

// The same for either 16-bit floating type.
constexpr float float16ToFloat(DataType type, uint16_t bits) {
  return type == DataType::Half ? halfToFloat(bits) : bfloat16ToFloat(bits);
}
constexpr uint16_t floatToFloat16(DataType type, float value) {
  return type == DataType::Half ? floatToHalf(value) : floatToBFloat16(value);
}

// Narrowing with an odd last bit where inexact, so that a later rounding to 16 bits is the only one.
inline float roundToOdd(double value) {
  const auto narrow = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(narrow) == value) {
    return narrow;
  }
  const auto bits = std::bit_cast<uint32_t>(narrow);
  const bool isLarger = std::abs(static_cast<double>(narrow)) > std::abs(value);
  return std::bit_cast<float>((isLarger ? bits - 1 : bits) | 1u);
}

}  // namespace meshfuse
