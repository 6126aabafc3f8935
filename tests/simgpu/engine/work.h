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
#include <set>
#include <string>
#include <vector>

#include "../protocol.h"
#include "communicators.h"
#include "graphs.h"
#include "kernels.h"
#include "memory.h"
#include "order.h"
#include "task.h"

namespace simgpu {

struct Options {
  uint64_t devices = 1;
  uint64_t memory = uint64_t{1} << 30;  // bytes of a device
  uint64_t seed = 1;
  std::chrono::microseconds longestDelay{300};  // before an operation; each has a random one
  uint64_t synchronizePercent = 50;             // of the calls that may wait for all work of the device
  bool reportsWaits = false;                    // of calls that may wait for a collective
  uint64_t residentCollectives = 1;             // communicators whose calls run on a device at the same time
  std::string kernels;                          // the folder of compiled kernels
  CommunicatorOptions communicators;
};

// Who makes a call
struct Caller {
  uint64_t process = 0;
  uint64_t thread = 0;  // which no other thread has
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
  uint64_t createEvent(uint32_t device, bool measures);
  int32_t destroyEvent(uint64_t event);

  bool isStream(uint64_t stream) const { return streams_.contains(stream); }
  bool isEvent(uint64_t event) const { return events_.contains(event); }
  bool isCapturing(uint64_t stream) const { return isStream(stream) && streams_.at(stream).capture != nullptr; }
  // The last operation so far of a stream, or the one that an event recorded last; null if there is none.
  using Mark = std::shared_ptr<const Operation>;
  Mark markOfStream(uint64_t stream) const { return streams_.at(stream).last; }
  Mark markOfEvent(uint64_t event) const { return events_.at(event).mark; }
  // Returns a status of CUDA. The later event may have ended before the other one.
  int32_t timeBetween(uint64_t event, uint64_t later, std::chrono::nanoseconds& time) const;
  bool hasEnded(const Mark& mark) const;
  // The host of `process` knows from now on that this operation and those before it have ended.
  void tellHost(uint64_t process, const Mark& mark);
  // Whether a call that may wait for all work of the device does so.
  bool waitsNow() { return random_() % 100 < options_.synchronizePercent; }
  // Of such a call: reports it, if that is asked for and the process has not waited for its last collective on the device.
  void checkWait(const Request& request, uint64_t process);
  // An access of the host to pinned memory: reports work that uses the memory and for which the host has not waited.
  void accessPinned(const Request& request, uint64_t process);
  std::vector<uint64_t> streamsOf(uint64_t process, uint32_t device) const;

  const Memory& memory(uint32_t device) const { return *memories_[device]; }
  const std::vector<std::string>& reports() const { return reports_; }
  void report(std::string what) { reports_.push_back(std::move(what)); }
  // Ends the streams of a process that has gone and frees its memory; says what it left.
  std::vector<std::string> forget(uint64_t process);
  const Options& options() const { return options_; }

  // -- failures.cc
  // The error of a context whose kernel has failed, or whose device is lost.
  int32_t failureOf(uint64_t process, uint32_t device) const;
  uint32_t deviceOf(const Request& request) const;  // of its stream or its event, if it has one
  void loseDevice(uint32_t device);
  // -- captures.cc
  // Why a call may not be made while something is captured; then the captures that it breaks are invalid.
  int32_t captureRefusal(const Request& request, const Caller& caller);
  ThreadCapture exchangeMode(const Caller& caller, ThreadCapture mode);
  int32_t beginCapture(const Request& request, const Caller& caller);
  int32_t endCapture(const Request& request, const Caller& caller, uint64_t& graph);
  struct CaptureState {
    CaptureStatus status = CaptureStatus::None;
    uint64_t capture = 0;
    std::vector<uint64_t> handles;  // the graph, and the nodes on which the next one depends
  };
  CaptureState captureState(uint64_t stream);
  // -- launches.cc
  Graphs& graphs() { return graphs_; }
  int32_t launchGraph(const Request& request, uint64_t process);
  // The parameters of a node from the next launch on.
  int32_t setNode(const Request& request, Work work);
  Graphs::Update updateGraph(const Request& request);

  Communicators& communicators() { return communicators_; }
  // Enqueues the calls of one rank, one of them or a group's. Returns a CommunicatorResult.
  int32_t post(const Request& request, uint64_t process, std::vector<CollectiveCall> calls);
  // Returns a CommunicatorResult; `handle` is that of the rank in its part.
  int32_t split(const Request& request, uint64_t process, const RankSplit& split, uint64_t& handle);
  // Registered memory may not be freed, and calls that use it end before it is registered no more. Both return a CommunicatorResult.
  int32_t registerMemory(const Request& request, uint64_t& handle);
  int32_t deregisterMemory(const Request& request, uint64_t process);

 private:
  struct Queued {
    Task task;
    Mark awaited;  // of a Wait or a Graph
    Clock host;    // what the host knew to have ended
    Time due;
  };
  struct Capture {
    uint64_t id = 0;
    Caller caller;
    uint64_t origin = 0;  // stream
    ThreadCapture mode = ThreadCapture::Global;
    bool isInvalid = false;
    bool hasEnded = false;
    uint64_t graph = 0;
  };
  struct Event {
    uint32_t device = 0;
    bool measures = true;              // times
    Mark mark;                         // null: never recorded
    std::shared_ptr<Capture> capture;  // in which it was recorded last
    std::vector<size_t> nodes;         // of the graph that it stands for
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
    std::shared_ptr<Capture> capture;
    std::vector<size_t> dependencies;  // of the next node
  };

  std::shared_ptr<Operation> append(uint64_t stream, uint64_t process, const std::string& name, Work work,
                                    const Mark& awaited);
  std::chrono::microseconds delay();
  // The operation uses the pinned memory of this work, its own or that of a node of a graph.
  void notePinned(uint64_t process, const std::shared_ptr<Operation>& operation, const Work& work);
  // Drops what is kept of streams that have ended, where all that comes is ordered after them.
  void forgetEndedStreams();
  // When the next operation of a stream may go on; nothing if it waits for another stream.
  std::optional<Time> nextOf(const Stream& stream) const;
  void begin(Stream& stream, Queued& next);
  void end(Stream& stream);
  void run(uint32_t device, const Task& task);
  // -- failures.cc
  void failContext(uint64_t process, uint32_t device);
  bool isStickyLaunch(const Request& request, uint64_t process);
  // -- captures.cc
  int32_t capture(Stream& stream, const Request& request, const std::string& name, Work work);
  int32_t joinCapture(Stream& stream, const Event& event, bool isLegacy);
  size_t addNode(Capture& capture, uint32_t device, std::string name, Work work, std::vector<size_t> dependencies);
  static int32_t invalidate(Capture& capture, int32_t status);  // returns the status
  // Posts the calls of a rank into a graph; a CommunicatorResult.
  int32_t captureCalls(const Request& request, const std::vector<CollectiveCall>& calls);
  std::vector<HeldAddress> addressesOf(const Work& work) const;
  // -- launches.cc
  std::string staleAddress(const Node& node);
  void postCalls(const std::shared_ptr<GraphRun>& run, size_t step, const CapturedCalls& captured);
  void advance(Stream& stream, Queued& next);
  void makeReady(GraphRun& run, size_t step);
  void endStep(const std::shared_ptr<GraphRun>& run, size_t step, Clock after);
  // -- collectives.cc
  void proceed(Stream& stream, Queued& next);
  void finishDue(Posted& posted);
  void leaveResults(const Posted& posted, const std::shared_ptr<Operation>& operation);
  // The streams have come to the calls: they start once the device has room for them.
  void reach(const std::shared_ptr<Posted>& posted);
  void startWaiting();
  std::optional<Time> roomFor(
      const Posted& posted) const;       // when they may start; nothing while others occupy the device
  std::optional<Time> nextRoom() const;  // when one of the waiting may start
  void start(Posted& posted);
  void carryOut(Exchange& exchange);
  void finish(RankCall& call);
  void endPosted(Posted& posted);
  void copy(const Task& task);
  void launch(const Task& task, Memory& memory);
  void multiply(const Task& task, const Memory& memory);
  // Reports bytes that are not allocated, have not been written, or are touched by another operation without an order.
  bool access(uint64_t begin, uint64_t bytes, bool writes, const std::shared_ptr<const Operation>& by);
  void report(const Operation& by, const std::string& what);
  Memory* memoryOf(uint64_t address) const;

  Options options_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::map<uint64_t, Stream> streams_;
  struct Ended {
    uint64_t stream = 0;
    uint64_t process = 0;
    uint64_t number = 0;  // of its last operation
  };
  std::vector<Ended> ended_;
  size_t mostEnded_ = 0;  // so many that it is worthwhile to look at them
  std::map<uint64_t, Event> events_;
  std::set<std::pair<uint64_t, uint32_t>> failedContexts_;         // process, device
  std::map<std::pair<uint64_t, uint32_t>, Mark> lastCollectives_;  // by process and device; or the graph with it
  std::set<uint32_t> lost_;                                        // devices
  std::map<uint64_t, uint64_t> launches_;                          // by process, if one of them is to fail
  std::vector<std::weak_ptr<Posted>> resident_;                    // calls of communicators that have started
  std::vector<std::weak_ptr<Posted>> waiting_;                     // that devices have no room for
  std::map<std::pair<uint32_t, uint64_t>, Time> roomFrom_;  // by device and thread: until then none starts, and any may
  std::map<uint64_t, Kernel> functions_;
  std::map<std::string, uint64_t> functionsByText_;
  std::map<uint64_t, Clock> hosts_;  // by process: what it knows to have ended
  struct PinnedUse {
    uint64_t begin = 0;
    uint64_t end = 0;
    bool writes = false;
    std::shared_ptr<const Operation> by;
  };
  bool isKnownToHost(uint64_t process, const PinnedUse& use) const;
  std::map<uint64_t, std::vector<PinnedUse>> pinnedUses_;  // by process: that the host may not know to have ended
  Accesses accesses_;
  Communicators communicators_;
  Graphs graphs_;
  std::map<uint64_t, std::shared_ptr<Capture>> captures_;  // that have not ended
  std::map<uint64_t, ThreadCapture> modes_;                // by thread, unless Global
  uint64_t lastCapture_ = 0;
  std::mt19937_64 random_;
  uint64_t lastHandle_ = 2;  // numbers up to it are CU_STREAM_LEGACY and CU_STREAM_PER_THREAD
  std::vector<std::string> reports_;
};

}  // namespace simgpu
