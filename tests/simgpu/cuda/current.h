// What the stand-ins that work on the simulated driver's streams ask of it.
#pragma once

#include <cstdint>

namespace simgpu {

// The device of the context that is current in this thread, or the status of CUDA why there is none.
int current(uint32_t& device);

// The engine's number of a stream; null is the default stream of the device. `name` is the function that the program called.
uint64_t streamOf(const char* name, const void* stream, uint32_t device);

}  // namespace simgpu
