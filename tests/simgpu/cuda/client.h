// The connection of this process to the engine, and its pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../protocol.h"

namespace simgpu {

// Sends a request and waits for its reply. If the engine says that the program has done something wrong, prints it and ends the process with
// kExitStatus; the same if the engine is gone.
Reply ask(Request request, std::string_view payload = {});

struct ReplyWithBytes {
  Reply reply;
  std::string bytes;
};
ReplyWithBytes askForBytes(Request request);

// Says on stderr what the program did wrong, and ends the process with kExitStatus.
[[noreturn]] void endProgram(std::string_view call, std::string_view what);

// Pinned memory, which host and devices reach at the same address. Null if none is left.
//
// From a call that may use it on a device until the next access of the host the process has no right to it. At this access the engine is asked
// whether the host has waited for the work that uses the memory. Memory of the driver itself has no such check.
enum class Owner : uint8_t { Program, Driver };
void* allocatePinned(size_t bytes, Owner owner);
bool freePinned(void* memory);
bool isPinned(const void* memory, size_t bytes);

// True if the n-th call of this kind since the start of the process is to fail: SIMGPU_FAULT=allocate:3.
bool isToFail(std::string_view kind);
// True if the n-th call of this kind is to have the fault that SIMGPU_PLANT=wait:3 plants.
bool isPlanted(std::string_view kind);
// The number of the call of this kind that is to fail; 0: none is.
uint64_t callToFail(std::string_view kind);

}  // namespace simgpu
