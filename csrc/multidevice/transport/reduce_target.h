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

void reduceBaseline(const ReduceRange& range, DataType type, ReduceOp op);
void reduceAvx2(const ReduceRange& range, DataType type, ReduceOp op);
void reduceAvx512(const ReduceRange& range, DataType type, ReduceOp op);

}  // namespace meshfuse
