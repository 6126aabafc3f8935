// What the files of the simulated driver share.
#pragma once

#include <cstdint>
#include <string>

#include "../protocol.h"

namespace simgpu {

struct Function {
  uint64_t id = 0;
  uint64_t parameterBytes = 0;
  uint32_t device = 0;    // of its module
  int shared = 48 << 10;  // most dynamic shared bytes of a block
};

Request request(const char* name, Call call, uint32_t device = 0);

uint64_t idOf(const void* handle);

// The status of CUDA if no context is current or captures forbid this call now. Else success, after the work of the device if the call may wait
// for it and does.
int unsafeCall(const char* name, bool mayWait);

struct Grid {
  unsigned gridX, gridY, gridZ;     // in blocks
  unsigned blockX, blockY, blockZ;  // in threads
  unsigned cluster = 1;             // blocks
  unsigned shared;                  // dynamic bytes of a block
};

// The payload of a launch, or the status of CUDA why it is none. Ends the program if the shape is not simulated.
int payloadOfLaunch(const char* name, const Function* function, const Grid& grid, void* const* parameters,
                    std::string& payload);

}  // namespace simgpu
