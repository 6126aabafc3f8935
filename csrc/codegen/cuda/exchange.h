// What the threads of a block or a cluster exchange through shared memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/cuda/geometry.h"
#include "digits/int_expr.h"

namespace meshfuse::cuda {

// A change of layout through shared memory.
struct Exchange {
  uint64_t writerDigits = 0;
  IntExpr write;  // offsets in elements, over the digits of either side
  IntExpr read;
  int64_t writeWidth = 1;  // elements at once
  int64_t readWidth = 1;
  int64_t elements = 0;  // of shared memory
};

// What the lanes of a warp hold: one value, or one in each half.
enum class Held : uint8_t { One, Pair };

// Partial results in shared memory, and the position of this thread's own results.
struct Partials {
  std::string slot;
  std::vector<DigitInfo> gone;  // the digits reduced here: one part for each of their positions
  IntExpr element;              // within a part
  int64_t stride = 1;           // of a part, in elements
  Held held = Held::One;
  bool cluster = false;  // read from the blocks of the cluster, else from the warps of the block
};

}  // namespace meshfuse::cuda
