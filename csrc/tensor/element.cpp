#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/half.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

// Narrowing to a type with an odd last bit where inexact, so that a later rounding to 16 bits is the only one.
float roundToOdd(double value) {
  float f = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(f) == value) {
    return f;
  }
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if (std::abs(static_cast<double>(f)) > std::abs(value)) {
    bits -= 1;
  }
  return std::bit_cast<float>(bits | 1u);
}

double roundToOdd(int64_t value) {
  double d = static_cast<double>(value);
  __int128 back = static_cast<__int128>(d);
  if (back == value) {
    return d;
  }
  uint64_t bits = std::bit_cast<uint64_t>(d);
  __int128 wide = value;
  if ((back < 0 ? -back : back) > (wide < 0 ? -wide : wide)) {
    bits -= 1;
  }
  return std::bit_cast<double>(bits | 1u);
}

// As x86 does: what does not fit, NaN included, gives the minimum.
template <class Integer>
Integer toInteger(double value) {
  constexpr double kLow = static_cast<double>(std::numeric_limits<Integer>::min());
  return value > kLow - 1 && value < -kLow ? static_cast<Integer>(value) : std::numeric_limits<Integer>::min();
}

template <class T>
T read(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

template <class T>
void write(void* address, T value) {
  std::memcpy(address, &value, sizeof(T));
}

}  // namespace

double loadElement(const void* address, DataType dtype) {
  switch (dtype) {
    case DataType::Double:
      return read<double>(address);
    case DataType::Float:
      return read<float>(address);
    case DataType::Half:
      return halfToFloat(read<uint16_t>(address));
    case DataType::BFloat16:
      return bfloat16ToFloat(read<uint16_t>(address));
    case DataType::Int:
      return static_cast<double>(read<int64_t>(address));
    case DataType::Int32:
      return read<int32_t>(address);
    case DataType::Bool:
      return read<uint8_t>(address) != 0 ? 1 : 0;
  }
  return 0;
}

int64_t loadInteger(const void* address, DataType dtype) {
  switch (dtype) {
    case DataType::Int:
      return read<int64_t>(address);
    case DataType::Int32:
      return read<int32_t>(address);
    case DataType::Bool:
      return read<uint8_t>(address) != 0 ? 1 : 0;
    case DataType::Double:
    case DataType::Float:
    case DataType::Half:
    case DataType::BFloat16:
      break;
  }
  return toInteger<int64_t>(loadElement(address, dtype));
}

void storeElement(void* address, DataType dtype, double value) {
  switch (dtype) {
    case DataType::Double:
      return write(address, value);
    case DataType::Float:
      return write(address, static_cast<float>(value));
    case DataType::Half:
      return write(address, floatToHalf(roundToOdd(value)));
    case DataType::BFloat16:
      return write(address, floatToBFloat16(roundToOdd(value)));
    case DataType::Int:
      return write(address, toInteger<int64_t>(value));
    case DataType::Int32:
      return write(address, toInteger<int32_t>(value));
    case DataType::Bool:
      return write(address, static_cast<uint8_t>(value != 0 ? 1 : 0));
  }
}

void storeInteger(void* address, DataType dtype, int64_t value) {
  switch (dtype) {
    case DataType::Double:
      return write(address, static_cast<double>(value));
    case DataType::Float:
      return write(address, static_cast<float>(value));
    case DataType::Half:
    case DataType::BFloat16:
      return storeElement(address, dtype, roundToOdd(value));
    case DataType::Int:
      return write(address, value);
    case DataType::Int32:
      return write(address, static_cast<int32_t>(value));
    case DataType::Bool:
      return write(address, static_cast<uint8_t>(value != 0 ? 1 : 0));
  }
}

}  // namespace meshfuse
