#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "multidevice/transport/reduce_target.h"
#include "tensor/half.h"

#pragma GCC target("avx2,f16c")
#include "multidevice/transport/reduce_kernels.h"

namespace meshfuse {

void reduceAvx2(const ReduceRange& range, DataType type, ReduceOp op) { reduceWithType(range, type, op); }

}  // namespace meshfuse
