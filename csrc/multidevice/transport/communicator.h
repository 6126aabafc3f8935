// Communicator: the interface of one rank to all ranks of a program.
//
// One object per rank and group. Collectives are started in the same order on every rank of their team. A call blocks until the result is
// complete. If a peer has died, is stuck or disagrees, the call throws a DeviceError within the deadline, which names the rank, the
// collective and the step. After that the group is dead, and every later call throws the same error. If ranks run different programs and a
// `Programs` can describe the difference, the error is a DisagreementError, with one text on all ranks.
//
// A team is a list of distinct world ranks, in the same order on all of them; block k of a call belongs to rank k of the list; a collective
// runs among the ranks of one team, and its blocks are in team order. Reductions are in team order, left to right: 16-bit floating types
// accumulate in float and round once, other types accumulate in their own type. So the bits are the same on every rank, with every
// transport and algorithm. With `order=any` (algorithms.h) they are still the same on every rank, but depend on the transport and
// algorithm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/mesh/collective.h"
#include "tensor/device_id.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

// Calls, and bytes that arrived from other ranks, counted where they are copied; one entry per kind.
struct TransferCounters {
  struct Entry {
    int64_t calls = 0;
    int64_t bytesReceived = 0;
  };
  Entry of[kCollectives];
  Entry& operator[](Collective k) { return of[static_cast<int64_t>(k)]; }
  const Entry& operator[](Collective k) const { return of[static_cast<int64_t>(k)]; }
  TransferCounters& operator+=(const TransferCounters& more) {
    for (int64_t k = 0; k < kCollectives; k++) {
      of[k].calls += more.of[k].calls;
      of[k].bytesReceived += more.of[k].bytesReceived;
    }
    return *this;
  }
};

// A list of world ranks that communicate together.
struct Team {
  std::vector<int64_t> ranks;
  friend bool operator==(const Team&, const Team&) = default;
};

// How Communicator::reduce combines elements, and the position in the team that gets the result.
struct RootReduction {
  ReduceOp op = ReduceOp::Sum;
  int64_t root = 0;
};

class CallQueue;           // call_queue.h
class DeviceCommunicator;  // device_communicator.h
struct CallRecord;         // call.h
struct CollectiveCall;     // call.h

class Communicator {
 public:
  using Counts = std::span<const int64_t>;  // elements, by position in a team

  Communicator();
  virtual ~Communicator();

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  // Name of the transport: "self", "loopback", "host", "network", "nccl", or "assumed" (ranks that are simulated).
  virtual std::string_view transport() const = 0;

  // True if a call leaves the processor to other threads while it lasts: it is then worth running beside kernels on any number of cores.
  virtual bool sparesProcessor() const { return false; }

  // The number of cores for the threads of this rank. A core counts 1 / n if n ranks of this machine may use it, so the number may be below
  // 1, for example if there are more ranks than cores. openWorld() sets it; otherwise it is the cores of this process divided by the number
  // of ranks.
  double coreShare() const;
  void setCoreShare(double cores) { coreShare_ = cores; }

  // Memory that peers on this host can read directly, if the transport has such memory; else ordinary memory. Freed by the
  // deleter. `bytes` may be zero. Not collective.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;

  // All counts are elements of `type`; buffers are contiguous; in and out of one call do not overlap unless they are equal (all-reduce,
  // reduce and broadcast only). UserError, before any message, on a team that is empty, repeats a rank, names a rank outside of the world
  // or lacks this one; on a negative count, a null buffer for elements, or another number of counts than ranks; on a root that is no
  // position of the team. Calls of the ranks that differ are an error on all of them (DisagreementError), a peer that fails is a
  // DeviceError.
  void allReduce(const Team&, const void* in, void* out, int64_t count, DataType, ReduceOp);
  // in: count elements; out: team size * count, block i from the i-th rank of the team.
  void allGather(const Team&, const void* in, void* out, int64_t count, DataType);
  // in: team size * count; out: count elements, block i of the sum to the i-th rank.
  void reduceScatter(const Team&, const void* in, void* out, int64_t count, DataType, ReduceOp);
  // in, out: team size * count; block j of in goes to the j-th rank, block i of out came from the i-th.
  void allToAll(const Team&, const void* in, void* out, int64_t count, DataType);

  // The same with a given number of elements for each rank, by position in the team; 0 is allowed, and blocks are contiguous.
  // The counts of an all-gather or a reduce-scatter are the same on every rank.
  // in: counts[position]; out: all blocks.
  void allGatherV(const Team&, const void* in, void* out, Counts counts, DataType);
  // in: all blocks; out: counts[position].
  void reduceScatterV(const Team&, const void* in, void* out, Counts counts, DataType, ReduceOp);
  // sent[j] elements of in go to the j-th rank, received[i] of out come from the i-th and must equal the number that it sends.
  void allToAllV(const Team&, const void* in, void* out, Counts sent, Counts received, DataType);

  // root: a position in the team. A buffer that only the root reads or writes may be null on the other ranks.
  void broadcast(const Team&, void* buffer, int64_t count, DataType, int64_t root);
  // in: count elements; out, of the root: team size * count, block i from the i-th rank.
  void gather(const Team&, const void* in, void* out, int64_t count, DataType, int64_t root);
  // in, of the root: team size * count, block j goes to the j-th rank; out: count elements.
  void scatter(const Team&, const void* in, void* out, int64_t count, DataType, int64_t root);
  // in: count elements; out, of the root: count elements.
  void reduce(const Team&, const void* in, void* out, int64_t count, DataType, const RootReduction&);
  void barrier(const Team&);
  // A collective as data. The functions above check their arguments and call this function.
  virtual void run(const CollectiveCall& call) = 0;

  // A group of sends and receives that progress together: posted at once, so that no order among them can deadlock. The messages
  // of one rank to another arrive in the order in which they were sent; each receive must ask for as many bytes as were sent. A
  // send returns when its buffer may be reused; whether the receiver has the message by then depends on the transport.
  struct Transfer {
    enum class Direction : uint8_t { Send, Recv } direction;
    int64_t peer;  // world rank
    void* data;
    int64_t bytes;
  };
  virtual void transfer(std::span<const Transfer> transfers) = 0;

  // Waits for work that the ranks of the team do together outside of this communicator, such as a collective of a GPU's library: until
  // ready(), which is asked every few milliseconds, is true. Errors and deadline as for a collective; but a rank may leave before the work
  // has ended here.
  virtual void await(const Team& team, const std::function<bool()>& ready) = 0;

  // A lane: a second communicator for the ranks of this team, for calls of the team or of a part of it. Another thread may call it at the
  // same time as this communicator and other lanes. It communicates only with the lanes of the other ranks for the same team. It fails with
  // the group, but has its own counters, records, step and program. Ranks have the same numbers as here; exchange(), close() and shrink()
  // belong to the whole communicator. The lane is created at the first call and lives as long as this communicator. Null if this
  // communicator makes only one call at a time. Thread-safe; UserError if this rank is not in the team.
  virtual Communicator* lane(const Team&) { return nullptr; }
  // The queue that runs calls of this communicator's lanes on threads; made at the first call.
  CallQueue& calls();

  // A small control message from every rank to every rank, outside the data path: plan hashes, verdicts, checksums.
  // Messages may differ in length. Blocks; deadline as for collectives.
  virtual std::vector<std::string> exchange(std::string_view message) = 0;

  // Sets the current step of the program, for the errors of this rank and its peers: "step 12, all-reduce of T7".
  virtual void setStep(int64_t step, std::string_view what) = 0;
  // This rank compiles or computes for a long time: peers that wait for it extend their deadline as long as its heartbeats arrive.
  virtual void setBusy(bool busy) = 0;
  // Reports a failure of this rank to every peer; their waits throw DeviceError with this text. Thread-safe: a call that another thread of
  // this rank is making ends with the text too.
  virtual void abort(std::string_view reason) = 0;

  // Leaves the world together with all other ranks: returns when every rank has called close(), or throws as a collective does.
  // No call is allowed afterwards. A communicator that is destroyed without close() leaves at once.
  void close();

  // The survivors of a failure, as a new world.
  struct Survivors {
    std::unique_ptr<Communicator> world;
    std::vector<int64_t> oldRanks;  // by new rank, ascending
  };
  // Every survivor of a failure calls this; all get the same survivors. Ranks that have ended or left are excluded at once. Ranks without a
  // heartbeat for the length of the deadline, or without a call within it, are excluded too, and get a DeviceError if they call later. This
  // communicator stays closed. Each survivor keeps its coreShare(). UserError if nothing has failed: call abort() first.
  Survivors shrink();

  virtual const TransferCounters& counters() const { return counters_; }
  virtual void resetCounters() { counters_ = {}; }
  // Counts calls that another communicator, such as a lane, has made for this one.
  void addCounters(const TransferCounters& more);

  // Calls body(), whose calls carry nothing of the program: they are not counted.
  template <class Body>
  void uncounted(const Body& body) {
    const TransferCounters before = counters();
    body();
    TransferCounters less;
    for (int64_t k = 0; k < kCollectives; k++) {
      less.of[k] = {before.of[k].calls - counters().of[k].calls,
                    before.of[k].bytesReceived - counters().of[k].bytesReceived};
    }
    addCounters(less);
  }

  // Sets the program of the following calls, as a number that is the same on all ranks. Calls of different programs do not match: they
  // fail. 0: no program.
  void setProgram(uint64_t program) { program_ = program; }
  uint64_t program() const { return program_; }

  // Describes programs and messages of exchange(), for the errors of ranks that make different calls. The transport itself
  // knows neither.
  class Programs {
   public:
    // A rank's call, as the transport sees it.
    struct Call {
      int64_t rank;
      uint32_t program = 0;           // shortHash of its program; 0 for an exchange, which its message describes
      std::string_view message = {};  // of an exchange; may be cut off at its end
    };
    virtual ~Programs() = default;
    // The user's mistake that makes two calls differ, and how to correct it; nullopt if it is not known or there is none. Called by one
    // of the two ranks; all ranks throw the text.
    virtual std::optional<std::string> difference(const Call& a, const Call& b) const = 0;
  };
  // Must not be called during a call.
  void setPrograms(std::shared_ptr<const Programs> programs) { programs_ = std::move(programs); }
  const std::shared_ptr<const Programs>& programs() const { return programs_; }

  // The communicator for the memory of a device over this one, if its device has one; made at the first call that needs it, and kept as long
  // as this one (host/comm_path.cpp).
  struct OnDevice {
    DeviceId device;
    std::shared_ptr<DeviceCommunicator> communicator;  // null: the device has none
  };
  std::optional<OnDevice>& onDevice() { return onDevice_; }

  // The team of all ranks.
  const Team& world() const { return world_; }
  // A thread holds this lock during a sequence of calls that no other thread of this rank may interrupt.
  std::mutex& sequence() { return sequence_; }

 protected:
  // True while an exception destroys this communicator of a world that has not been closed: the peers would wait for this rank.
  bool isLeftByException() const { return !isLane_ && !isClosed_ && std::uncaught_exceptions() > uncaught_; }

  // The new world of shrink(), which sets its share of cores.
  virtual Survivors survivors();

  // UserError if this is a lane and the call does not stay within its team.
  void checkWithinLane(const Team& team, Collective kind) const {
    if (isLane_) [[unlikely]] {
      checkOfLane(team, kind);
    }
  }
  void checkWithinLane(std::span<const Transfer> transfers) const;
  // UserError if this is a lane: the call belongs to the whole communicator.
  void refuseInLane(std::string_view call) const;

  // Counts a call that this rank has made.
  void count(Collective kind, int64_t bytesReceived) {
    if (kind != Collective::Close) {
      TransferCounters::Entry& entry = counters_[kind];
      ++entry.calls;
      entry.bytesReceived += bytesReceived;
    }
  }
  void count(std::span<const Transfer> transfers);

  Team world_;           // of a lane: its team
  bool isLane_ = false;  // made by lane()
  TransferCounters counters_;

 private:
  void checkOfLane(const Team& team, Collective kind) const;
  void call(const Team& team, const CallRecord& record, const void* in, void* out, Counts sent = {},
            Counts received = {});

  int64_t uncaught_ = std::uncaught_exceptions();  // when it was made
  bool isClosed_ = false;                          // close() has returned
  uint64_t program_ = 0;
  double coreShare_ = 0;  // 0: not set
  std::optional<OnDevice> onDevice_;
  std::unique_ptr<CallQueue> calls_;
  std::shared_ptr<const Programs> programs_;
  std::mutex sequence_;
};

// The communicator of a program without peers.
[[nodiscard]] std::unique_ptr<Communicator> makeSelfCommunicator();

// Memory of this process alone, aligned as every transport's `allocate` aligns it: to 256 bytes.
[[nodiscard]] std::shared_ptr<void> allocateOrdinary(size_t bytes);

// The default world of this thread: the one set by setDefaultWorld, else the communicator of a single process. It is thread-local, because
// loopback ranks are threads.
[[nodiscard]] Communicator& defaultWorld();
// The same. The communicator of a single process stays alive with the result, also after its thread has ended.
[[nodiscard]] std::shared_ptr<Communicator> sharedDefaultWorld();
void setDefaultWorld(Communicator* world);

}  // namespace meshfuse
