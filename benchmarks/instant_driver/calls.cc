// Every function of the driver that meshfuse loads, as one that succeeds at once; driver.cc replaces those that have a result.
#include "device/cuda/api/driver.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace meshfuse {

#define MESHFUSE_INSTANT(member, function, result, parameters) \
  extern "C" __attribute__((weak, visibility("default"))) result function parameters { return {}; }
MESHFUSE_CUDA_DRIVER_CALLS(MESHFUSE_INSTANT);

}  // namespace meshfuse
