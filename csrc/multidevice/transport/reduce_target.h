// The reduction loops by instruction set, and all headers that their code includes: a .cpp file includes them before it states its target.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "multidevice/transport/communicator.h"
#include "tensor/half.h"

namespace meshfuse {

struct ReduceRange {
  std::span<const void* const> inputs;
  void* out;
  int64_t count;
};

// Conversions are of the 16-bit floating types; `from` and `to` do not overlap.
struct ReduceKernels {
  void (*reduce)(const ReduceRange& range, DataType type, ReduceOp op);
  void (*toFloats)(const void* from, DataType type, float* to, int64_t count);
  void (*fromFloats)(const float* from, DataType type, void* to, int64_t count);
};

extern const ReduceKernels kBaselineKernels;
extern const ReduceKernels kAvx2Kernels;
extern const ReduceKernels kAvx512Kernels;

}  // namespace meshfuse
