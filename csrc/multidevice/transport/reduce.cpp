#include "multidevice/transport/reduce.h"

#include <cstring>

#include "base/error.h"
#include "multidevice/transport/reduce_target.h"

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

}  // namespace

void reduceInRankOrder(std::span<const void* const> inputs, void* out, int64_t count, DataType type, ReduceOp op) {
  invariant(!inputs.empty(), "[reduce] no inputs; a team has at least one rank");
  static const Kernel kernel = kernelOfThisMachine();
  if (inputs.size() == 1 && type != DataType::Bool) {
    if (inputs[0] != out) {
      std::memcpy(out, inputs[0], static_cast<size_t>(count) * static_cast<size_t>(dataTypeSize(type)));
    }
    return;
  }
  kernel({inputs, out, count}, type, op);
}

}  // namespace meshfuse
