// The work of all simulated devices: streams of operations that run by themselves, one after the other, in a random order among all orders
// that streams and events allow.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "../protocol.h"
#include "communicators.h"
#include "kernels.h"
#include "memory.h"
#include "order.h"

namespace simgpu {

struct Options {
  uint64_t devices = 1;
  uint64_t memory = uint64_t{1} << 30;  // bytes of a device
  uint64_t seed = 1;
  std::chrono::microseconds longestDelay{300};  // before an operation; each has a random one
  std::string kernels;                          // the folder of compiled kernels
  CommunicatorOptions communicators;
};

// What an operation does.
struct Work {
  enum class Kind { Allocate, Free, Copy, Fill, Launch, Product, Record, Wait, Collective } kind;
  uint64_t to = 0;     // Allocate, Free: the address
  uint64_t from = 0;   // Fill: the value
  uint64_t event = 0;  // Record, Wait
  uint64_t bytes = 0;
  LaunchShape shape;
  std::string parameters;
  MatrixProduct product;
  std::shared_ptr<Posted> posted;  // Collective
};

class Devices {
 public:
  explicit Devices(const Options& options);

  using Time = std::chrono::steady_clock::time_point;
  // Runs an operation that may run now; false if there is none. When the next one may run is in `next`.
  bool step(std::optional<Time>& next);

  // All of the following return a status of CUDA.
  int32_t allocate(const Request& request, uint64_t process, uint64_t& address);
  int32_t free(const Request& request, uint64_t process);
  int32_t enqueue(const Request& request, uint64_t process, Work work);
  int32_t loadFunction(const std::string& name, const std::string& text, Reply& reply, std::string& why);
  int32_t createStream(uint32_t device, uint64_t process, uint64_t& stream);
  int32_t destroyStream(uint64_t stream);
  uint64_t createEvent();
  int32_t destroyEvent(uint64_t event);

  bool isStream(uint64_t stream) const { return streams_.contains(stream); }
  bool isEvent(uint64_t event) const { return events_.contains(event); }
  // The last operation so far of a stream, or the one that an event recorded last; null if there is none.
  using Mark = std::shared_ptr<const Operation>;
  Mark markOfStream(uint64_t stream) const { return streams_.at(stream).last; }
  Mark markOfEvent(uint64_t event) const { return events_.at(event); }
  bool hasEnded(const Mark& mark) const;
  // The host of `process` knows from now on that this operation and those before it have ended.
  void tellHost(uint64_t process, const Mark& mark);
  std::vector<uint64_t> streamsOf(uint64_t process, uint32_t device) const;

  const Memory& memory(uint32_t device) const { return *memories_[device]; }
  const std::vector<std::string>& reports() const { return reports_; }
  void report(std::string what) { reports_.push_back(std::move(what)); }
  // Ends the streams of a process that has gone and frees its memory; says what it left.
  std::vector<std::string> forget(uint64_t process);
  const Options& options() const { return options_; }

  Communicators& communicators() { return communicators_; }
  // Enqueues the calls of one rank, one of them or a group's. Returns a CommunicatorResult.
  int32_t post(const Request& request, uint64_t process, std::vector<CollectiveCall> calls);
  // Returns a CommunicatorResult; `handle` is that of the rank in its part.
  int32_t split(const Request& request, uint64_t process, const RankSplit& split, uint64_t& handle);
  // Registered memory may not be freed.
  int32_t registerMemory(const Request& request, uint64_t& handle);

 private:
  struct Queued {
    std::shared_ptr<Operation> operation;
    Work work;
    Mark awaited;  // of a Wait
    Clock host;    // what the host knew to have ended
    Time due;
  };
  struct Stream {
    uint32_t device = 0;
    uint64_t process = 0;
    bool isDestroyed = false;
    uint64_t enqueued = 0;
    uint64_t ended = 0;
    Clock clock;  // of what has run
    std::shared_ptr<Operation> last;
    std::deque<Queued> queue;
  };

  std::shared_ptr<Operation> append(uint64_t stream, uint64_t process, const std::string& name, Work work,
                                    const Mark& awaited);
  std::chrono::microseconds delay();
  // When the next operation of a stream may go on; nothing if it waits for another stream.
  std::optional<Time> nextOf(const Stream& stream) const;
  void begin(Stream& stream, Queued& next);
  void end(Stream& stream);
  void run(Stream& stream, Queued& next);
  // -- collectives.cc
  void proceed(Stream& stream, Queued& next);
  void start(Posted& posted);
  void carryOut(Exchange& exchange);
  void finish(RankCall& call);
  void endPosted(Posted& posted);
  void copy(const Queued& q);
  void launch(const Queued& q, Memory& memory);
  void multiply(const Queued& q, const Memory& memory);
  // Reports bytes that are not allocated, have not been written, or are touched by another operation without an order.
  bool access(uint64_t begin, uint64_t bytes, bool writes, const std::shared_ptr<const Operation>& by);
  void report(const Operation& by, const std::string& what);
  Memory* memoryOf(uint64_t address);

  Options options_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::map<uint64_t, Stream> streams_;
  std::map<uint64_t, Mark> events_;  // null: never recorded
  std::map<uint64_t, Kernel> functions_;
  std::map<std::string, uint64_t> functionsByText_;
  std::map<uint64_t, Clock> hosts_;  // by process: what it knows to have ended
  Accesses accesses_;
  Communicators communicators_;
  std::mt19937_64 random_;
  uint64_t lastHandle_ = 0;
  std::vector<std::string> reports_;
};

}  // namespace simgpu
