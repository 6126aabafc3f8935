// The reduction loops by instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

struct ReduceRange {
  std::span<const void* const> inputs;
  void* out;
  int64_t count;
};

// The element types of conversions are the 16-bit floating ones; they do not overlap.
struct ReduceKernels {
  void (*reduce)(const ReduceRange& range, DataType type, ReduceOp op);
  void (*toFloats)(const void* from, DataType type, float* to, int64_t count);
  void (*fromFloats)(const float* from, DataType type, void* to, int64_t count);
};

extern const ReduceKernels kBaselineKernels;
extern const ReduceKernels kAvx2Kernels;
extern const ReduceKernels kAvx512Kernels;

}  // namespace meshfuse
