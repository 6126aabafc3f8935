#include "multidevice/transport/reference.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/hash.h"
#include "tensor/half.h"

namespace meshfuse {

namespace {

template <class T>
T get(const Bytes& data, int64_t i) {
  T v;
  std::memcpy(&v, data.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}
template <class T>
void put(Bytes& data, int64_t i, T v) {
  std::memcpy(data.data() + i * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}

template <class T>
T reduceTwo(T a, T b, ReduceOp op) {
  if constexpr (std::is_floating_point_v<T>) {
    if ((op == ReduceOp::Min || op == ReduceOp::Max) && (std::isnan(a) || std::isnan(b))) {
      return std::numeric_limits<T>::quiet_NaN();
    }
  }
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  switch (op) {
    case ReduceOp::Sum:
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    case ReduceOp::Prod:
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case ReduceOp::Min:
      return a < b ? a : b;
    case ReduceOp::Max:
      return a > b ? a : b;
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    return op == ReduceOp::And ? a & b : op == ReduceOp::Or ? a | b : a ^ b;
  }
  return a;
}

template <class T>
Bytes reduceAs(const std::vector<Bytes>& inputs, ReduceOp op) {
  Bytes out = inputs[0];
  for (size_t i = 0; i < out.size() / sizeof(T); ++i) {
    T sum = get<T>(inputs[0], static_cast<int64_t>(i));
    for (size_t p = 1; p < inputs.size(); ++p) {
      sum = reduceTwo(sum, get<T>(inputs[p], static_cast<int64_t>(i)), op);
    }
    put(out, static_cast<int64_t>(i), sum);
  }
  return out;
}

Bytes reduceAsFloat(const std::vector<Bytes>& inputs, ReduceOp op, float (*toFloat)(uint16_t),
                    uint16_t (*fromFloat)(float)) {
  Bytes out = inputs[0];
  for (int64_t i = 0; i < static_cast<int64_t>(out.size() / 2); ++i) {
    float sum = toFloat(get<uint16_t>(inputs[0], i));
    for (size_t p = 1; p < inputs.size(); ++p) {
      sum = reduceTwo(sum, toFloat(get<uint16_t>(inputs[p], i)), op);
    }
    put(out, i, fromFloat(sum));
  }
  return out;
}

Bytes reduceBool(const std::vector<Bytes>& inputs, ReduceOp op) {
  Bytes out = inputs[0];
  const bool any = op == ReduceOp::Sum || op == ReduceOp::Max || op == ReduceOp::Or;
  for (size_t i = 0; i < out.size(); ++i) {
    bool sum = inputs[0][i] != std::byte{0};
    for (size_t p = 1; p < inputs.size(); ++p) {
      bool x = inputs[p][i] != std::byte{0};
      sum = op == ReduceOp::Xor ? sum != x : any ? sum || x : sum && x;
    }
    out[i] = std::byte{sum};
  }
  return out;
}

double specialValue(uint64_t which) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kValues[] = {kInf,    -kInf, std::numeric_limits<double>::quiet_NaN(), -0.0, 1.0, 0.00390625,
                                65504.0, 6e-8};
  return kValues[which % 8];
}

}  // namespace

Bytes testData(DataType type, int64_t count, int rank, uint64_t seed, bool special) {
  Bytes data(count * dataTypeSize(type));
  uint64_t state = hashCombine(seed, static_cast<uint64_t>(rank) + 17);
  for (int64_t i = 0; i < count; ++i) {
    state = hashCombine(state, static_cast<uint64_t>(i));
    double x = special && state % 5 == 0 ? specialValue(state >> 8)
                                         : static_cast<double>(static_cast<int64_t>(state % 4001) - 2000) / 256.0;
    switch (type) {
      case DataType::Double:
        put(data, i, x);
        break;
      case DataType::Float:
        put(data, i, static_cast<float>(x));
        break;
      case DataType::Half:
        put(data, i, floatToHalf(static_cast<float>(x)));
        break;
      case DataType::BFloat16:
        put(data, i, floatToBFloat16(static_cast<float>(x)));
        break;
      case DataType::Int:
        put(data, i, static_cast<int64_t>(special ? state : state % 100));
        break;
      case DataType::Int32:
        put(data, i, static_cast<int32_t>(special ? state : state % 100));
        break;
      case DataType::Short:
        put(data, i, static_cast<int16_t>(special ? state : state % 100));
        break;
      case DataType::Char:
        put(data, i, static_cast<int8_t>(special ? state : state % 100));
        break;
      case DataType::UInt16:
        put(data, i, static_cast<uint16_t>(special ? state : state % 100));
        break;
      case DataType::Byte:
        put(data, i, static_cast<uint8_t>(special ? state : state % 100));
        break;
      case DataType::Bool:
        put(data, i, static_cast<uint8_t>(state % 3 == 0 ? 0 : special ? 2 : 1));
        break;
    }
  }
  return data;
}

Bytes referenceReduce(const std::vector<Bytes>& inputs, DataType type, ReduceOp op) {
  const bool bits = op == ReduceOp::And || op == ReduceOp::Or || op == ReduceOp::Xor;
  switch (type) {
    case DataType::Double:
      return bits ? reduceAs<uint64_t>(inputs, op) : reduceAs<double>(inputs, op);
    case DataType::Float:
      return bits ? reduceAs<uint32_t>(inputs, op) : reduceAs<float>(inputs, op);
    case DataType::Half:
      return bits ? reduceAs<uint16_t>(inputs, op) : reduceAsFloat(inputs, op, halfToFloat, floatToHalf);
    case DataType::BFloat16:
      return bits ? reduceAs<uint16_t>(inputs, op) : reduceAsFloat(inputs, op, bfloat16ToFloat, floatToBFloat16);
    case DataType::Int:
      return reduceAs<int64_t>(inputs, op);
    case DataType::Int32:
      return reduceAs<int32_t>(inputs, op);
    case DataType::Short:
      return reduceAs<int16_t>(inputs, op);
    case DataType::Char:
      return reduceAs<int8_t>(inputs, op);
    case DataType::UInt16:
      return reduceAs<uint16_t>(inputs, op);
    case DataType::Byte:
      return reduceAs<uint8_t>(inputs, op);
    case DataType::Bool:
      return reduceBool(inputs, op);
  }
  return {};
}

Bytes elements(const Bytes& data, DataType type, int64_t begin, int64_t count) {
  auto at = [&](int64_t i) { return data.begin() + i * dataTypeSize(type); };
  return Bytes(at(begin), at(begin + count));
}

Bytes concatenated(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& p : parts) {
    all.insert(all.end(), p.begin(), p.end());
  }
  return all;
}

int64_t firstDifference(const Bytes& a, const Bytes& b, DataType type) {
  const int64_t count = std::ssize(a) / dataTypeSize(type);
  auto isNan = [&](const Bytes& d, int64_t i) {
    switch (type) {
      case DataType::Double:
        return std::isnan(get<double>(d, i));
      case DataType::Float:
        return std::isnan(get<float>(d, i));
      case DataType::Half:
        return std::isnan(halfToFloat(get<uint16_t>(d, i)));
      case DataType::BFloat16:
        return std::isnan(bfloat16ToFloat(get<uint16_t>(d, i)));
      default:
        return false;
    }
  };
  for (int64_t i = 0; i < count; ++i) {
    const auto offset = i * dataTypeSize(type);
    const bool same = std::memcmp(a.data() + offset, b.data() + offset, dataTypeSize(type)) == 0;
    if (!same && !(isNan(a, i) && isNan(b, i))) {
      return i;
    }
  }
  return a.size() == b.size() ? -1 : count;
}

}  // namespace meshfuse
