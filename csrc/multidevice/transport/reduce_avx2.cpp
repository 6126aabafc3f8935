#include "multidevice/transport/reduce_target.h"

#pragma GCC target("avx2,f16c")
#include "multidevice/transport/reduce_kernels.h"

namespace meshfuse {

const ReduceKernels kAvx2Kernels{reduceWithType, widen, narrow};

}  // namespace meshfuse
