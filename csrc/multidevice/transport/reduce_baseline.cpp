#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "multidevice/transport/reduce_target.h"
#include "tensor/half.h"

#include "multidevice/transport/reduce_kernels.h"

namespace meshfuse {

const ReduceKernels kBaselineKernels{reduceWithType, widen, narrow};

}  // namespace meshfuse
