#include "multidevice/transport/reduce_kernels.h"

namespace meshfuse {

const ReduceKernels kBaselineKernels{reduceWithType, widen, narrow};

}  // namespace meshfuse
