#include "communicator.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "../cuda/client.h"

namespace simgpu {

namespace {

constexpr uint64_t kBetweenHandles = 64;

std::mutex mutex;
std::map<uint64_t, CommunicatorPointer> all;
uint64_t lastGiven = 0;  // no handle is given twice
thread_local std::string failure = "no error";

}  // namespace

CommunicatorPointer addCommunicator(uint64_t handle, uint32_t device, bool isBlocking) {
  auto made = std::make_shared<Communicator>();
  made->handle = handle;
  made->device = device;
  made->isBlocking = isBlocking;
  const std::lock_guard lock(mutex);
  lastGiven += kBetweenHandles;
  made->given = reinterpret_cast<const void*>(lastGiven);
  all[lastGiven] = made;
  return made;
}

CommunicatorPointer findCommunicator(const char* call, const void* given) {
  if (given == nullptr) {
    return nullptr;
  }
  const auto number = reinterpret_cast<uint64_t>(given);
  const std::lock_guard lock(mutex);
  if (const auto it = all.find(number); it != all.end()) {
    return it->second;
  }
  const bool hasBeen = number <= lastGiven && number % kBetweenHandles == 0;
  endProgram(call, hasBeen ? "the communicator has been destroyed or aborted" : "the handle is no communicator");
}

void removeCommunicator(const Communicator& communicator) {
  const std::lock_guard lock(mutex);
  all.erase(reinterpret_cast<uint64_t>(communicator.given));
}

Use::Use(const char* call, CommunicatorPointer communicator) : communicator_(std::move(communicator)) {
  if (communicator_->users++ != 0) {
    endProgram(call, "another thread is in a call on the communicator");
  }
}

Use::~Use() {
  if (communicator_ != nullptr) {
    communicator_->users--;
  }
}

Reply askOf(const char* name, Call call, const Communicator& communicator, uint64_t b, std::string_view payload) {
  Request r{.call = call, .device = communicator.device, .a = communicator.handle, .b = b};
  std::strncpy(r.name, name, sizeof r.name - 1);
  return ask(r, payload);
}

int stateOf(const char* name, Communicator& communicator, bool waits) {
  const Reply reply = askOf(name, waits ? Call::CommunicatorWait : Call::CommunicatorState, communicator);
  if (reply.value == kDone && communicator.ranks == 0) {
    communicator.rank = static_cast<int>(reply.more & 0xffffffff);
    communicator.ranks = static_cast<int>(reply.more >> 32);
  }
  return static_cast<int>(reply.value);
}

int failed(const char* call, int result, std::string_view why) {
  if (result != kDone && result != kInProgress) {
    failure = std::string(call) + " returned " + std::to_string(result);
    if (!why.empty()) {
      failure += ": " + std::string(why);
    }
  }
  return result;
}

const char* lastFailure() { return failure.c_str(); }

}  // namespace simgpu
