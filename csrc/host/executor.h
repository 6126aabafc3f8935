// Executes a HostProgram: binds pointers, runs the steps in order.
//
// A Binding is the mutable state of a program: its arena, the argument slots of every launch, scratch, a queue of the device. One call
// at a time uses a binding; calls allocate nothing.
//
// If the device carries the collectives itself (DeviceCommunicator), all steps are work of its queues, in the order that events record, and
// the host waits once, at the end of the call; with a stream of the caller, when somebody asks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/comm_path.h"
#include "host/program.h"
#include "host/replay.h"
#include "host/scalars.h"
#include "multidevice/transport/call_queue.h"
#include "multidevice/transport/communicator.h"
#include "tensor/argument.h"
#include "tensor/gpu_stream.h"

namespace meshfuse {

class ArenaPool;
class ArenaRegistration;
class Fiber;
struct RefusedIndexError;
struct UserError;

// One step of a run, for profiles and traces.
struct StepRecord {
  const Step* step = nullptr;
  std::chrono::steady_clock::time_point begin = {};
  std::chrono::steady_clock::time_point end = {};
  int64_t bytesReceived = 0;  // of a communication, as counted by the transport
  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

// Where collectives run that other steps may run beside: on threads of their own; or on the caller's thread, in a fiber that pauses where it
// would wait for peers, and goes on between the caller's steps. The latter takes no processor from the steps. With verification or a skipped
// step each collective runs to its end.
enum class CollectivesRun : uint8_t { OnThreads, InFiber };

// The first failure of work that ended after its call had returned. Thread-safe.
class LateFailure {
 public:
  void keep(std::exception_ptr failure);
  // Throws the failure, once.
  void rethrow();

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::atomic<bool> isKept_{false};  // so that a call without a failure takes no lock
};

// A call that is ordered with the work of a stream of the caller: it begins after the work of the stream so far, later work of the stream begins
// after it. It returns when its work is enqueued, unless the ranks end together. A failure after the return is thrown by the next call of the
// binding, or kept in `late` if there is none.
struct StreamOrder {
  GpuStream stream;
  const std::shared_ptr<LateFailure>& late;
};

struct ExecuteOptions {
  bool verify = false;                         // compare each step with the reference interpreter
  std::vector<StepRecord>* profile = nullptr;  // receives the steps that have run; the call returns when all has ended
  int64_t skipStep = -1;                       // fault injection: a communication step that is not run
  CollectivesRun collectives = CollectivesRun::InFiber;  // each rank decides for itself
  const StreamOrder* order = nullptr;                    // null: the call returns when all its work has ended
};

class Binding {
 public:
  // arenas: of the bindings of a program with symbols; null: the arena is allocated for this binding.
  Binding(std::shared_ptr<const HostProgram> program, Communicator& communicator,
          std::shared_ptr<const ProgramSizes> sizes, ArenaPool* arenas = nullptr);
  // values: of the symbols of the program, the same on all ranks, which nothing compares. UserError as sizesOf() says.
  Binding(const std::shared_ptr<const HostProgram>& program, Communicator& communicator,
          const std::map<std::string, int64_t>& values = {});
  ~Binding();

  const ProgramSizes& sizes() const { return *sizes_; }
  // inputs: one for each fusion input, of the planned sizes; outputs: defined, contiguous, 64-byte aligned where place is Output, else ignored.
  // UserError if a kernel reads an index out of range; DeviceError if a peer fails; InternalError naming the step, tensor, position and
  // values if verification fails. After an error the elements of outputs, and of inputs that outputs alias, are not defined. If the ranks
  // end together, a rank that gets a UserError must tell the others, see Agreement: they wait for it.
  void run(Communicator& communicator, std::span<const Argument> inputs, std::span<Tensor> outputs,
           const ExecuteOptions& options = {});
  // In place of run(), on a rank that cannot make the call. If collectives are work of the device, all ranks throw a UserError with this text,
  // and the program can be run again. Else it returns, and the peers notice that this rank makes another call.
  void refuse(Communicator& communicator, const UserError& why);
  // Copies elements between tensors of the device; returns as run() does.
  void copy(const Tensor& to, const Tensor& from, const StreamOrder* order = nullptr);
  // Returns when the work of all calls has ended; throws a failure of a call that has returned.
  void wait();
  // `tell` throws what wait() shall throw in place of the refusal of an index.
  void tellRefusals(std::function<void(const RefusedIndexError&)> tell) { tell_ = std::move(tell); }
  // Whether the next call may throw the failure of a call that has returned.
  bool mayFailLate() const { return late_ != nullptr; }
  // After a call that has failed because of an index: a tensor of the local fusion, by the number of its value, in the memory of the call.
  // Nothing if no step of the call has computed it, if it is in no memory, or if a later step may have written over it.
  [[nodiscard]] std::optional<Tensor> remaining(int64_t val) const;

 private:
  static constexpr std::string_view kBegin = "the begin of a program";
  static constexpr int64_t kRendezvous = -1;  // a pending rendezvous of the ranks
  // Waits for all ranks, which must run the same program. Each number of `least` becomes the least that a rank has there.
  void meet(Communicator& communicator, std::string_view where, std::span<int64_t> least = {}) const;
  // Before the collectives of a call: the ranks meet, and agree whether they replay the pieces with collectives. If collectives pause, the
  // rendezvous may be pending afterwards; it ends before a step writes an argument.
  void meetAtBegin(Communicator& communicator, std::span<const Argument> inputs, const ExecuteOptions& options);
  // What this rank proposes for these pieces.
  int64_t proposal(const ExecuteOptions& options);
  // Registers the arena, as all ranks do. If some rank cannot, none does.
  void registerJointly(Communicator& communicator);
  // Records them, as all ranks do. If some rank cannot, none replays them.
  void recordJointly(Communicator& communicator, std::span<const Argument> inputs);
  // Whether the step is the first one of a piece that all ranks replay in this call.
  bool beginsJointPiece(int64_t number) const { return replaysJointly_ && joint_.at[number] >= 0; }
  // Returns the number of the step after the piece.
  int64_t replayJointly(int64_t number);
  void runSteps(std::span<const Argument> inputs, const ExecuteOptions& options);
  // Puts a step where it runs on a device whose collectives the host makes. Returns the number of the next step.
  int64_t issue(int64_t number);
  // Whether collectives pause in this call.
  bool pausesCollectives() const;
  // Work of the device. If it refuses an index in a program whose ranks end together, the program goes on with index 0, because the other
  // ranks wait for its collectives; the error follows at the end.
  template <class Work>
  void heed(Work&& work);
  // Returns when a posted collective has ended; ends a pending one, and those pending before it.
  void await(int64_t number);
  // Goes on with the pending ones until one waits for peers.
  void advancePending();
  // Runs so many pending ones to their ends.
  void endPending(int64_t count);
  // Runs the first pending one: in the fiber, or to its end.
  void runPending();
  // Calls run(), which runs the first pending one. If it has ended, it is no longer pending. Returns what run() does: whether it has ended.
  template <class Run>
  bool goOn(const Run& run);
  void waitForPosted(int64_t number);
  void openLanes(Communicator& communicator);
  void prepareSteps();
  // Puts a step, or a piece that is replayed, on its queue of the device, after what it waits for there. Returns the number of the next step.
  int64_t post(int64_t number, std::span<const Argument> inputs, const ExecuteOptions& options);
  // Returns when all work of the device has ended.
  void finish();
  // Of a call whose work has ended: fills in the times of the steps that have run, and removes the other records.
  void readTimes(std::vector<StepRecord>& records) const;
  // Ends a call as the options say.
  void endCall(const ExecuteOptions& options);
  // Later work of `to` follows the work of `from` so far; both are of this binding.
  void join(Queue& from, Queue& to);
  // Collectives from step `next` on follow the work so far; not if a piece begins there, whose recording has that order.
  void fork(int64_t next);
  // Later work of the device follows the collectives so far.
  void joinForked();
  // Calls put(path), which puts the step and maybe later ones on the queue of its path, after what it waits for there. Returns what put does: the
  // number of the next step.
  template <class Put>
  int64_t putInOrder(int64_t number, const Put& put);
  // The path of asynchronous collectives.
  CommPath& carrier() { return isAsynchronous_ && !lanes_.empty() ? lanes_[0] : direct_; }
  // The step of the call at which a failure is noticed.
  int64_t stepOfFailure() const;
  // Tells the peers where this rank has failed. Where ranks meet, and in a call of the device's communicator, they know.
  void placeFailure(Communicator& communicator, bool isOfDevice) const;
  // The text of such a failure, with the rank and that step.
  std::string located(std::string_view failure) const;
  // Calls work(), with located failures of the device.
  template <class Work>
  void locating(const Work& work) const;
  // Ends the calls in flight and the work of the device after a failure. If collectives run in lanes, the group ends.
  void abandon(Communicator& communicator, std::string_view why) noexcept;
  void executeWatched(int64_t number, CommPath& path, std::span<const Argument> inputs, const ExecuteOptions& options);
  void bindScalars(std::span<const Argument> inputs);
  void execute(int64_t number, CommPath& path, std::span<const Argument> inputs);
  void launch(int64_t number);
  // The launch of a step, with the addresses of this call.
  Launch launchOf(int64_t number);
  // Puts the step, or the piece that is replayed and begins with it, on its queue. Returns the number of the next step.
  int64_t put(int64_t number, CommPath& path, std::span<const Argument> inputs);
  void reference(const Step& step, std::span<const Argument> inputs);
  void compareWithReference(const Step& step, std::span<const Argument> inputs) const;
  std::vector<Argument> referenceInputs(const Step& step, std::span<const Argument> inputs) const;
  StridedElements elements(int64_t tensor) const;
  Tensor view(int64_t tensor) const;
  void* pointer(int64_t tensor) const { return pointers_[tensor]; }
  void* workspace(int64_t number, int64_t k) const {
    const std::shared_ptr<void>& memory = program_->steps[number].workspaces[k].zeroed ? zeroed_ : arena_;
    return static_cast<char*>(memory.get()) + sizes_->steps[number].workspaces[k].offset;
  }

  std::shared_ptr<const HostProgram> program_;
  std::shared_ptr<const ProgramSizes> sizes_;
  std::shared_ptr<void> arena_;
  std::shared_ptr<void> zeroed_;  // zero between calls
  std::shared_ptr<void> scratch_;
  CommPath direct_;                 // of the caller's thread
  Queue& queue_;                    // of that path: all work of the device
  CallQueue* calls_ = nullptr;      // null: the communicator has no lanes
  std::vector<CommPath> lanes_;     // of the program's teams; one for all if asynchronous
  std::unique_ptr<Event> meeting_;  // where the queues of asynchronous calls meet
  std::unique_ptr<Timer> timer_;    // before and after each step; null until a call is profiled
  struct Replays {
    Replays() = default;
    Replays(std::vector<Replay> pieces, size_t steps);
    std::vector<Replay> pieces;
    std::vector<int64_t> at;  // by step: number of the piece that begins with it, or -1
  };
  std::unique_ptr<ArenaRegistration> registration_;  // of an asynchronous device
  Replays replays_;                                  // of this rank; empty if the queue does not capture
  Replays joint_;                                    // of all ranks; empty if collectives are not work of queues
  int64_t jointNumber_ = 0;      // of the recording of all these pieces, which all ranks made together; 0: none
  bool replaysJointly_ = false;  // in this call
  bool isRefused_ = false;       // this call, by some rank: none has begun it
  bool isForked_ = false;        // the queue of collectives has work that the other one does not follow
  int64_t joinedSteps_ = 0;      // what comes follows the first so many steps
  std::vector<std::unique_ptr<Event>> events_;              // by step: after it, if another queue waits for it
  std::vector<std::optional<CallQueue::Handle>> inFlight_;  // by step: posted and not waited for
  std::vector<int64_t> lastPosted_;                         // by team: a step; -1: none
  // Collectives of the caller's thread that have not ended: steps, in order; kRendezvous.
  std::vector<int64_t> pending_;
  bool runsPending_ = false;      // the first one is running; after a failure: it has failed
  int64_t firstInPlace_ = 0;      // the first step that writes an argument, or the number of steps
  std::unique_ptr<Fiber> fiber_;  // of the first one
  // The arguments of the call that runs step by step.
  struct Call {
    Communicator* communicator = nullptr;
    std::span<const Argument> inputs;
    const ExecuteOptions* options = nullptr;
  };
  Call call_;
  std::exception_ptr refusal_;  // of this call
  // The step that this call begins next. Of a failed call: the step in which it has failed, or the number of steps if all have ended.
  int64_t next_ = 0;
  // A tensor that is argument or result number `index` of the call.
  struct Bound {
    int64_t tensor = 0;
    int64_t index = 0;
  };
  std::vector<Bound> arguments_;
  std::vector<Bound> results_;
  std::vector<void*> pointers_;               // by tensor
  std::vector<std::vector<uint64_t>> slots_;  // by step
  std::vector<std::vector<void*>> operands_;  // of library calls and routines, by step
  ScalarSteps scalars_;
  std::vector<std::vector<int64_t>> scalarOf_;  // by step: number in scalars_ of each scalar argument
  bool hasRunTimeScalars_ = false;
  bool isAsynchronous_ = false;  // collectives are work of queues of the device
  bool failsTogether_ = false;   // a rank that fails ends the group, because peers may wait in collectives
  bool endsTogether_ = false;    // ranks meet at the end of a call
  std::function<void(const RefusedIndexError&)> tell_;
  std::shared_ptr<LateFailure> late_;  // of the last call that returned before its end; null: all have ended
};

}  // namespace meshfuse
