// One launch of a generated kernel, and the memory that it may touch.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/cuda/emit.h"
#include "tile/tile.h"

namespace meshfuse::simt {

struct Kernel {
  const tile::Program* program;
  CudaSource source;
};

[[nodiscard]] inline Kernel kernelOf(const tile::Program& program) { return {&program, emitCuda(program)}; }

struct Launch {
  Kernel kernel;
  std::vector<uint64_t> slots;  // without that of the RefusedIndexRecord, which the runner gives
  uint64_t seed = 1;            // order of threads and blocks, 0: ascending; and the errors of approximate instructions
  bool countSectors = false;    // costs time
};

// Host memory of a tensor with a slot.
struct TensorMemory {
  size_t slot = 0;
  int64_t tensor = 0;
  char* begin = nullptr;  // of the lowest element
  int64_t bytes = 0;
  int64_t below = 0;  // bytes before the base pointer
};

struct LaunchPlan {
  std::vector<TensorMemory> tensors;  // in the order of the slots
  int64_t blocks = 1;
  int64_t sharedBytes = 0;
};

// Follows from the program and the size slots.
[[nodiscard]] LaunchPlan planLaunch(const Launch& launch);

}  // namespace meshfuse::simt
