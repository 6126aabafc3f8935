#include "multidevice/transport/reduce.h"

#include "base/error.h"
#include "multidevice/transport/call.h"
#include "multidevice/transport/reduce_target.h"

namespace meshfuse {

namespace {

const ReduceKernels& kernels() {
  static const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return avx512 ? kAvx512Kernels : avx2 ? kAvx2Kernels : kBaselineKernels;
}

}  // namespace

void reduceInRankOrder(std::span<const void* const> inputs, void* out, int64_t count, DataType type, ReduceOp op) {
  invariant(!inputs.empty(), "[reduce] no inputs; a team has at least one rank");
  if (inputs.size() == 1 && type != DataType::Bool) {
    moveBytes(out, inputs[0], count * dataTypeSize(type));
  } else {
    kernels().reduce({inputs, out, count}, type, op);
  }
}

void toAccumulators(const void* from, DataType type, ReduceOp op, void* to, int64_t count) {
  if (accumulatorType(type, op) == type) {
    moveBytes(to, from, count * dataTypeSize(type));
  } else {
    kernels().toFloats(from, type, static_cast<float*>(to), count);
  }
}

void fromAccumulators(const void* from, DataType type, ReduceOp op, void* to, int64_t count) {
  if (accumulatorType(type, op) == type) {
    moveBytes(to, from, count * dataTypeSize(type));
  } else {
    kernels().fromFloats(static_cast<const float*>(from), type, to, count);
  }
}

}  // namespace meshfuse
