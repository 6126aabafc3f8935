// CUDA C++ text of a tile program for a GPU.
//
// The text is self-contained: the few runtime functions that the kernel uses, then the kernel, no includes. It needs
// C++17 and an architecture of sm_80 or later (sm_90 for clusters). All memory traffic, barriers and shuffles go
// through functions that take the number of their place in the text. The emulator of tests/simt needs the number to run the same
// text; on a device it costs nothing.
//
// The kernel takes one struct of 8-byte slots by value: pointers of the tensors that are not scratch, then sizes, then
// scalars, each in the order of the program. It is launched as a one-dimensional grid of `blocks` blocks.
//
// The last slot of a kernel that checks indices is the address of a RefusedIndexRecord (below), zeroed by the host: the kernel writes the
// first index that it refuses, and goes on with index 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"
#include "tile/tile.h"

namespace meshfuse {

struct CudaSlot {
  enum class Kind : uint8_t { Tensor, Size, Scalar, RefusedIndex };
  Kind kind;
  int64_t index;  // in the program's tensors, sizes or scalars
};

// As runtime/cuda/integer.cuh declares it.
struct RefusedIndexRecord {
  uint64_t taken = 0;  // 1 if an index was refused
  int64_t index = 0;
  int64_t extent = 0;
};

struct CudaSource {
  std::string text;
  std::string entry;            // name of the kernel
  int64_t threads = 32;         // of a block
  int64_t cluster = 1;          // blocks of a cluster
  IntExpr blocks = 1;           // of the grid, over the sizes; a multiple of `cluster`
  IntExpr sharedBytes = 0;      // dynamic shared memory of a block, over the sizes
  std::vector<CudaSlot> slots;  // the argument struct
};

// InternalError if the program is for a CPU or violates a rule of tile.h that the emitter relies on.
[[nodiscard]] CudaSource emitCuda(const tile::Program& program);

// "16 blocks of 256 threads, 128 bytes of shared memory", over the sizes.
[[nodiscard]] std::string launchText(const CudaSource& source);

// The part of the text after the runtime functions.
[[nodiscard]] std::string_view kernelText(std::string_view text);

}  // namespace meshfuse
