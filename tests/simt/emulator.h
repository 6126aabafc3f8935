// Runs generated CUDA text on the host, thread by thread, and says what is wrong with it.
//
//   simt::Kernel k = simt::kernelOf(program);               // emitted, or with a text of your own
//   simt::Result r = simt::run({{k, slots}})[0];            // slots as a kernel takes them, pointers to host memory
//   r.faults                                                // empty if the kernel kept all rules
//
// The texts of one call are compiled into one library (at -O0 with AddressSanitizer), which an own process runs: a
// kernel that destroys memory ends that process only. Sizes, grid and shared memory follow from the program and the
// size slots; tensors are copied to memory of exactly the promised alignment and written ones copied back.
//
// Checked: bounds, alignment, one writer an element, inputs unwritten, the read-only path, shared memory races and
// reads before writes, barriers and shuffles that not all threads reach, remote reads of blocks that left, tickets
// without a fence. Approximate instructions err by as much as their documentation allows. Not seen: the order of memory operations between
// blocks, time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "simt/launch.h"

namespace meshfuse::simt {

// What a kernel did to one of its tensors (those with a slot, in the order of the slots).
struct TensorTraffic {
  int64_t readBytes = 0;
  int64_t writtenBytes = 0;
  int64_t writtenElements = 0;  // distinct
  int64_t requests = 0;         // of a warp at one place, loads and stores
  int64_t sectors = 0;          // of 32 bytes that they touched
  int64_t idealSectors = 0;     // that their bytes would fill
};

struct Result {
  std::vector<std::string> faults;  // at most a dozen are described
  int64_t faultCount = 0;
  std::vector<TensorTraffic> tensors;
  int64_t sharedConflicts =
      0;  // rounds that warps waited because several words of one bank were asked for; with countSectors
  RefusedIndexRecord refused;  // what the kernel wrote
  Hash128 text;                // of the text that was compiled, whole
  double milliseconds = 0;     // of the run alone
};

// InternalError if a text does not compile or the emulator itself fails.
[[nodiscard]] std::vector<Result> run(std::span<const Launch> launches);
[[nodiscard]] Result run(const Launch& launch);

// What else can run launches, a device say; an empty one stands for the emulator.
using Runner = std::function<std::vector<Result>(std::span<const Launch>)>;

}  // namespace meshfuse::simt
