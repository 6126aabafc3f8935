#include "multidevice/transport/reduce_target.h"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c")
#include "multidevice/transport/reduce_kernels.h"

namespace meshfuse {

const ReduceKernels kAvx512Kernels{reduceWithType, widen, narrow};

}  // namespace meshfuse
