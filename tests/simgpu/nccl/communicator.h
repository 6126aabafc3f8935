// The communicators of this process: what a program's handles stand for, and the requests about them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "../communicator_protocol.h"
#include "../protocol.h"

namespace simgpu {

struct Communicator {           // one rank of it
  uint64_t handle = 0;          // the engine's
  const void* given = nullptr;  // the program's
  uint32_t device = 0;
  bool isBlocking = true;
  int rank = 0;
  int ranks = 0;               // 0: not known so far
  std::atomic<int> users = 0;  // threads that are in a call
};
using CommunicatorPointer = std::shared_ptr<Communicator>;

// A communicator with a new handle, which none had before.
CommunicatorPointer addCommunicator(uint64_t handle, uint32_t device, bool isBlocking);
// Null for the null handle. Ends the program if the handle is none, or that of a communicator that has been destroyed.
CommunicatorPointer findCommunicator(const char* call, const void* given);
void removeCommunicator(const Communicator& communicator);

// A thread is in a call. Ends the program if another thread is in one.
class Use {
 public:
  Use(const char* call, CommunicatorPointer communicator);
  Use(Use&& other) noexcept : communicator_(std::move(other.communicator_)) {}
  Use& operator=(Use&&) = delete;
  ~Use();

 private:
  CommunicatorPointer communicator_;
};

Reply askOf(const char* name, Call call, const Communicator& communicator, uint64_t b = 0,
            std::string_view payload = {});
// The state, at once or when it is not kInProgress.
int stateOf(const char* name, Communicator& communicator, bool waits);
// Notes an error for ncclGetLastError, and returns it.
int failed(const char* call, int result, std::string_view why = {});
const char* lastFailure();

}  // namespace simgpu
