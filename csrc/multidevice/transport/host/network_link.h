// Tagged messages between processes on different hosts: what the network communicator needs of a library such as UCX.
//
// Several threads may use a link, each for messages of its own: they take turns. What one of them lets move moves for all.
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
  // A message under way; null once it is done.
  using Operation = void*;

  virtual ~NetworkLink() = default;
  // What peers need to reach this process, to be handed to their connect().
  virtual std::string address() const = 0;
  virtual void connect(const std::vector<std::string>& addresses) = 0;

  virtual Operation send(int peer, const void* data, size_t bytes, uint64_t tag) = 0;
  // For one message with this tag; tags name their sender.
  virtual Operation receive(void* data, size_t bytes, uint64_t tag) = 0;
  // The tag of a message that has come, is not received yet and agrees with `tag` in the bits of `mask`.
  virtual std::optional<uint64_t> find(uint64_t tag, uint64_t mask) = 0;
  struct Outcome {
    bool done = false;
    bool tooLong = false;    // the message was longer than the buffer
    int64_t bytes = -1;      // of a received message
    std::string error = {};  // not empty: it failed
  };
  // Asks after an operation, and releases it when done.
  virtual Outcome ask(Operation& operation) = 0;
  // Releases an operation whose outcome nobody asks for any more. Its memory may be touched until the link is closed.
  virtual void abandon(Operation operation) = 0;
  // Lets messages move; false if there was nothing to do.
  virtual bool progress() = 0;
  // Sleeps until there may be something to do, or for `limit`.
  virtual void sleep(std::chrono::milliseconds limit) = 0;
  // Gives up all messages: no memory of the callers' is touched any more. Requests made from now on never complete.
  virtual void close() = 0;
};

// DeviceError where this build or this machine has no UCX.
[[nodiscard]] std::unique_ptr<NetworkLink> openUcxLink();

}  // namespace meshfuse
