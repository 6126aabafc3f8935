#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tensor/half.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

// As roundToOdd of a double.
double roundToOdd(int64_t value) {
  double d = static_cast<double>(value);
  __int128 back = static_cast<__int128>(d);
  if (back == value) {
    return d;
  }
  uint64_t bits = std::bit_cast<uint64_t>(d);
  const bool isLarger = back < 0 ? back < value : back > value;  // in size
  return std::bit_cast<double>((isLarger ? bits - 1 : bits) | 1u);
}

// As on x86: values that do not fit, and NaN, give the minimum; unsigned types keep the low bits of an int64_t.
template <class Integer>
Integer toInteger(double value) {
  if constexpr (std::is_unsigned_v<Integer>) {
    return static_cast<Integer>(toInteger<int64_t>(value));
  } else {
    constexpr double kLow = static_cast<double>(std::numeric_limits<Integer>::min());
    return value > kLow - 1 && value < -kLow ? static_cast<Integer>(value) : std::numeric_limits<Integer>::min();
  }
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
  return withElementType(dtype, [&]<class T>() -> double {
    if constexpr (std::is_same_v<T, Float16Bits>) {
      return float16ToFloat(dtype, read<T>(address).bits);
    } else if constexpr (std::is_same_v<T, bool>) {
      return read<uint8_t>(address) != 0 ? 1 : 0;
    } else {
      return static_cast<double>(read<T>(address));
    }
  });
}

int64_t loadInteger(const void* address, DataType dtype) {
  return withElementType(dtype, [&]<class T>() -> int64_t {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return read<T>(address);
    } else {
      return toInteger<int64_t>(loadElement(address, dtype));
    }
  });
}

void storeElement(void* address, DataType dtype, double value) {
  withElementType(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, Float16Bits>) {
      write(address, floatToFloat16(dtype, roundToOdd(value)));
    } else if constexpr (std::is_same_v<T, bool>) {
      write(address, static_cast<uint8_t>(value != 0 ? 1 : 0));
    } else if constexpr (std::is_integral_v<T>) {
      write(address, toInteger<T>(value));
    } else {
      write(address, static_cast<T>(value));
    }
  });
}

void storeInteger(void* address, DataType dtype, int64_t value) {
  withElementType(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, Float16Bits>) {
      storeElement(address, dtype, roundToOdd(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      write(address, static_cast<uint8_t>(value != 0 ? 1 : 0));
    } else {
      write(address, static_cast<T>(value));
    }
  });
}

}  // namespace meshfuse
