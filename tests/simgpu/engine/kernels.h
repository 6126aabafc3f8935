// Kernels of the simulated devices: their text is compiled for the host, and each launch runs in a process of its own.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../protocol.h"

namespace simgpu {

class Memory;

struct Kernel {
  std::string name;
  void (*run)(const void* parameters) = nullptr;
  uint64_t parameterBytes = 0;
};

// The kernel `name` of a text. Nothing but a reason if it does not compile. Libraries stay in `folder` for later runs.
std::pair<Kernel, std::string> compileKernel(const std::string& name, const std::string& text,
                                             const std::string& folder);

using ByteRange = std::pair<uint64_t, uint64_t>;  // begin, end

struct Run {
  std::vector<std::string> faults;
  std::vector<ByteRange> read;  // sorted and apart
  std::vector<ByteRange> written;
};

struct Seeds {
  uint64_t order = 0;  // of blocks and threads
  uint64_t errors =
      0;  // of approximate instructions: one for all launches of a job, because an instruction gives one result for one operand
};

// Runs the grid to its end. A crash is a fault.
Run runKernel(const Kernel& kernel, const LaunchShape& shape, const std::string& parameters, Memory& memory,
              const Seeds& seeds);

}  // namespace simgpu
