// Tagged messages between processes on different hosts: the interface of the network communicator to a library such as UCX.
//
// Several threads may use a link, each for its own messages. One thread at a time is inside the library, and it advances the messages of
// all threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace meshfuse {

class NetworkLink {
 public:
  // A message in flight; null once it is done.
  using Operation = void*;

  virtual ~NetworkLink() = default;
  // The address of this process, for the connect() of its peers.
  virtual std::string address() const = 0;
  virtual void connect(const std::vector<std::string>& addresses) = 0;

  virtual Operation send(int64_t peer, const void* data, size_t bytes, uint64_t tag) = 0;
  // For one message with this tag; tags name their sender.
  virtual Operation receive(void* data, size_t bytes, uint64_t tag) = 0;
  // The tag of a message that has arrived, has not been received yet, and agrees with `tag` in the bits of `mask`.
  virtual std::optional<uint64_t> find(uint64_t tag, uint64_t mask) = 0;
  struct Outcome {
    bool done = false;
    bool tooLong = false;    // the message was longer than the buffer
    int64_t bytes = -1;      // of a received message
    std::string error = {};  // not empty: it failed
  };
  // Tests an operation, and releases it if it is done.
  virtual Outcome ask(Operation& operation) = 0;
  // Releases an operation whose outcome is not needed. Its memory may be touched until the link is closed.
  virtual void abandon(Operation operation) = 0;
  // Advances messages; false if there was nothing to do.
  virtual bool progress() = 0;
  // Sleeps until a message may have arrived, or for `limit`.
  virtual void sleep(std::chrono::milliseconds limit) = 0;
  // Cancels all messages: afterwards no memory of the callers is touched. Later requests never complete.
  virtual void close() = 0;
};

// DeviceError if this build or this machine has no UCX.
[[nodiscard]] std::unique_ptr<NetworkLink> openUcxLink();

}  // namespace meshfuse
