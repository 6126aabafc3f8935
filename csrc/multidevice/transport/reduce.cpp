#include "multidevice/transport/reduce.h"

#include <cstring>

#include "base/error.h"
#include "multidevice/transport/reduce_target.h"
#include "tensor/half.h"

namespace meshfuse {

namespace {

using Kernel = void (*)(const ReduceRange&, DataType, ReduceOp);

Kernel kernelOfThisMachine() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return reduceAvx512;
  }
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") ? reduceAvx2 : reduceBaseline;
}

void copyIfElsewhere(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

}  // namespace

void reduceInRankOrder(std::span<const void* const> inputs, void* out, int64_t count, DataType type, ReduceOp op) {
  invariant(!inputs.empty(), "[reduce] no inputs; a team has at least one rank");
  static const Kernel kernel = kernelOfThisMachine();
  if (inputs.size() == 1 && type != DataType::Bool) {
    copyIfElsewhere(out, inputs[0], count * dataTypeSize(type));
    return;
  }
  kernel({inputs, out, count}, type, op);
}

void toAccumulators(const void* from, DataType type, void* to, int64_t count) {
  if (accumulatorType(type) == type) {
    copyIfElsewhere(to, from, count * dataTypeSize(type));
    return;
  }
  const auto* bits = static_cast<const uint16_t*>(from);
  auto* values = static_cast<float*>(to);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = type == DataType::Half ? halfToFloat(bits[i]) : bfloat16ToFloat(bits[i]);
  }
}

void fromAccumulators(const void* from, DataType type, void* to, int64_t count) {
  if (accumulatorType(type) == type) {
    copyIfElsewhere(to, from, count * dataTypeSize(type));
    return;
  }
  const auto* values = static_cast<const float*>(from);
  auto* bits = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < count; ++i) {
    bits[i] = type == DataType::Half ? floatToHalf(values[i]) : floatToBFloat16(values[i]);
  }
}

}  // namespace meshfuse
