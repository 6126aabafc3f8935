#include "reduction.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "float16.h"

namespace simgpu {

namespace {

constexpr size_t kBlock = 16;

template <class Value>
Value combined(uint32_t operation, Value x, Value y) {
  if constexpr (std::is_floating_point_v<Value>) {
    switch (operation) {
      case 0:
        return x + y;
      case 1:
        return x * y;
      case 2:
        return std::fmax(x, y);
      default:
        return std::fmin(x, y);
    }
  } else {
    using Wide = uint64_t;  // wraps around
    switch (operation) {
      case 0:
        return static_cast<Value>(static_cast<Wide>(x) + static_cast<Wide>(y));
      case 1:
        return static_cast<Value>(static_cast<Wide>(x) * static_cast<Wide>(y));
      case 2:
        return x > y ? x : y;
      default:
        return x < y ? x : y;
    }
  }
}

// An element type: how it is stored, and in which type it is reduced.
template <class Stored>
struct Plain {
  using Bits = Stored;
  using Value = Stored;
  static Value decoded(Bits bits) { return bits; }
  static Bits encoded(Value value) { return value; }
};

template <const Format& kFormat>
struct Short {
  using Bits = uint16_t;
  using Value = float;
  static Value decoded(Bits bits) { return static_cast<float>(decode(bits, kFormat)); }
  static Bits encoded(Value value) { return encode(static_cast<double>(value), kFormat); }
};

template <class Type>
std::string reduceAs(uint32_t operation, const std::vector<std::string_view>& arrays) {
  using Bits = typename Type::Bits;
  const size_t ranks = arrays.size();
  std::string result(arrays[0].size(), '\0');
  for (size_t i = 0; i < result.size() / sizeof(Bits); i++) {
    const auto element = [&](size_t rank) {
      Bits bits;
      std::memcpy(&bits, arrays[rank % ranks].data() + i * sizeof bits, sizeof bits);
      return Type::decoded(bits);
    };
    const size_t first = i / kBlock + 1;
    auto value = element(first);
    for (size_t step = 1; step < ranks; step++) {
      value = combined(operation, value, element(first + step));
    }
    const Bits bits = Type::encoded(value);
    std::memcpy(result.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return result;
}

}  // namespace

std::string reduce(uint32_t type, uint32_t operation, const std::vector<std::string_view>& arrays) {
  switch (type) {
    case 0:
      return reduceAs<Plain<int8_t>>(operation, arrays);
    case 1:
      return reduceAs<Plain<uint8_t>>(operation, arrays);
    case 2:
      return reduceAs<Plain<int32_t>>(operation, arrays);
    case 3:
      return reduceAs<Plain<uint32_t>>(operation, arrays);
    case 4:
      return reduceAs<Plain<int64_t>>(operation, arrays);
    case 5:
      return reduceAs<Plain<uint64_t>>(operation, arrays);
    case 6:
      return reduceAs<Short<kHalf>>(operation, arrays);
    case 7:
      return reduceAs<Plain<float>>(operation, arrays);
    case 8:
      return reduceAs<Plain<double>>(operation, arrays);
    case 9:
      return reduceAs<Short<kBFloat16>>(operation, arrays);
    default:
      std::abort();
  }
}

}  // namespace simgpu
