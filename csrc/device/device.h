// Device: the interface of one CPU or GPU. The folders above this one plan, build and run programs through it and know no kind of device.
//
//   const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 4});
//   const std::shared_ptr<const Kernel> kernel = device->compile(programs)[0];
//   const std::unique_ptr<Queue> queue = device->makeQueue();
//   queue->launch({.kernel = *kernel, .name = "softmax T7", .slots = slots, .parts = parts});
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_info.h"
#include "digits/int_expr.h"
#include "tensor/gpu_stream.h"
#include "tensor/tensor.h"
#include "tile/tile.h"

namespace meshfuse {

class Communicator;
class DeviceCommunicator;
class Expr;
class Queue;

// The machine code of a tile program. The device that compiled it runs it.
class Kernel {
 public:
  virtual ~Kernel() = default;
};

// One op that no kernel computes: a matrix product of a library, or code written by hand. The device that made it runs it.
class Routine {
 public:
  virtual ~Routine() = default;
  virtual int64_t workspaceBytes() const { return 0; }
};

// The facts for which a routine is made.
struct RoutineOptions {
  const std::map<int64_t, Layout>& layouts;        // by Val id: of operands that are not row-major
  std::function<int64_t(const IntExpr&)> valueOf;  // of an offset, on this rank
};

struct Launch {
  const Kernel& kernel;
  std::string_view name;            // of the step, for errors
  std::span<const uint64_t> slots;  // addresses of tensors, then sizes, then scalars, as the tile program lists them
  int64_t parts = 1;                // of the grid
  void* scratch = nullptr;          // scratchBytes bytes, at least Device::scratchBytes()
  int64_t scratchBytes = 0;
  bool checksIndices = false;  // the kernel may refuse an index
};

// A piece of memory that is copied: `bytes` bytes from `from` to `to`, both offsets in bytes.
struct BytePiece {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;
  friend bool operator==(const BytePiece&, const BytePiece&) = default;
};

// A point in the work of a queue. If an event is recorded again, it marks the new point; a queue that called waitFor() before still waits
// for the old point.
class Event {
 public:
  virtual ~Event() = default;
};

// The times of points in the work of queues, by the clock of the host.
//
//   timer->mark(0, queue);
//   queue.launch(...);
//   timer->mark(1, queue);  // nothing waits
//   queue.wait();
//   timer->synchronize(queue);
//   timer->timeOf(1) - timer->timeOf(0);  // of the kernel
class Timer {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Timer() = default;
  // Puts the point after the work of the queue so far. Threads may put different points at the same time.
  virtual void mark(int64_t point, Queue& queue) = 0;
  // Precondition: the work of all queues on which mark() put a point has ended; `idle` is one of these queues. Afterwards timeOf() of these
  // points lies between the begin of the first work and now.
  virtual void synchronize(Queue& /*idle*/) {}
  // The time at which the work before this point ended. The point must have been marked.
  virtual Clock::time_point timeOf(int64_t point) const = 0;
};

// Work of a queue that was recorded once, and runs at the cost of one call.
class Recording {
 public:
  virtual ~Recording() = default;
  // Later replays make launch number `number` of the recording, counted from 0, with these slots. The kernel is the
  // recorded one.
  virtual void relaunch(int64_t number, const Launch& launch) = 0;
  // It is replayed no more; replays that are under way go on.
  virtual void end() noexcept = 0;
};

// Work of a device, in the order of the calls. A call may return before its work has ended; an error of the work is thrown by the call or by
// the next wait(), and later work may not run. A kernel that refuses an index reads index 0 in its place, and later work runs: the first
// RefusedIndexError is thrown, unless other work fails. The call copies slots, operands, pieces and names; kernels, routines, memory,
// sizes and strides must stay until the work has ended. The destructor waits for the work. One thread at a time uses a queue.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual void launch(const Launch& launch) = 0;
  // operands: addresses in the order of the op's operands; out: contiguous; workspace: workspaceBytes() bytes, 64-byte aligned.
  virtual void call(const Routine& routine, std::span<void* const> operands, void* out, void* workspace) = 0;
  virtual void clear(void* memory, int64_t bytes) = 0;  // sets all bytes to zero
  virtual void copy(void* to, const void* from, std::span<const BytePiece> pieces) = 0;
  // Copies elements between arrays of equal sizes and one type, whose memory does not overlap.
  virtual void copyElements(const StridedElements& to, const StridedElements& from) = 0;
  // Allocate or compile in advance what later calls would otherwise make, because making it may wait for all work of the device.
  // prepareChecks: for so many launches that check indices before the next wait(). prepareCopy: for copies of elements of these types,
  // sizes and strides.
  virtual void prepareChecks(int64_t /*launches*/) {}
  virtual void prepareCopy(const StridedElements& /*to*/, const StridedElements& /*from*/) {}
  // Puts the event after the work so far. `event`: of the same device.
  virtual void record(Event& event) = 0;
  // Later work of this queue begins when the work before the event has ended; at once if the event was never recorded.
  virtual void waitFor(const Event& event) = 0;
  virtual bool canCapture() const { return false; }
  // If it can: calls work(), which makes calls of this queue and of `beside`, another queue of the device or null. They do not run, they are
  // recorded. Null if the device cannot record them.
  virtual std::unique_ptr<Recording> capture(const std::function<void()>& /*work*/, Queue* /*beside*/ = nullptr) {
    return nullptr;
  }
  // Runs the recorded work, with the addresses that it had or that relaunch() gave it: all of it is work of this queue. The recording stays
  // until the work has ended.
  virtual void replay(Recording& /*recording*/) {}
  // Destroys a recording when its work has ended.
  virtual void retire(std::unique_ptr<Recording> /*recording*/) {}
  // As those of DeviceMemory, for the work of this queue alone.
  virtual void orderBefore(GpuStream stream);
  virtual void orderAfter(GpuStream stream);
  // Returns when all work has ended.
  virtual void wait() = 0;
  // As wait() if all work has ended; else does nothing.
  virtual void poll() { wait(); }
};

// Bytes of the allocations of this process on a device.
struct MemoryUse {
  int64_t now = 0;
  int64_t most = 0;  // since the last resetMost()
};

// Thread-safe.
class Device : public DeviceMemory {
 public:
  virtual const DeviceInfo& info() const = 0;
  // Bytes of memory that the device has. Nothing if it is not on this machine.
  virtual std::optional<int64_t> memoryBytes() const { return std::nullopt; }
  // Nothing if the device does not count.
  virtual std::optional<MemoryUse> memoryUse() const { return std::nullopt; }
  virtual void resetMost() {}
  // True if the host, and so every communicator, may access the memory of the device.
  virtual bool isHostMemory() const = 0;
  // One kernel for each program, in order. UserError if the build or the machine has no compiler.
  virtual std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program> programs) = 0;
  // The memory that a launch needs besides its tensors. Of `slots`, only sizes are read.
  virtual int64_t scratchBytes(const Kernel& kernel, std::span<const uint64_t> slots) const = 0;
  // UserError with the name of the op if only a routine computes it, and the device has none.
  virtual void expectRoutine(const Expr& /*op*/) const {}
  // For an op that expectRoutine() accepts. Extents must be constant.
  virtual std::shared_ptr<const Routine> routine(const Expr& op, const RoutineOptions& options) const = 0;
  // The library or the code of that routine: "oneDNN". Nothing if the device has no routine for the op.
  virtual std::optional<std::string_view> routineName(const Expr& op) const = 0;
  virtual std::unique_ptr<Queue> makeQueue() = 0;
  virtual std::unique_ptr<Event> makeEvent() = 0;
  // Of points 0, 1, ..., points - 1. The device outlives it.
  virtual std::unique_ptr<Timer> makeTimer(int64_t points) = 0;
  // A communicator for addresses of this device, among the ranks of `over.world()`, which make it at the same time; `over` outlives it, and
  // carries what they tell each other. Null: this device has none. DeviceError on all ranks if their devices do not fit.
  virtual std::shared_ptr<DeviceCommunicator> communicator(Communicator& /*over*/) { return nullptr; }

  // The outputs of emitters and compilers for a kernel, as files. `missing`: the outputs that cannot be made, and why. `launch`: of a GPU's
  // kernel, "16 blocks of 256 threads, 128 bytes of shared memory".
  struct Listing {
    std::string suffix;  // ".ll"
    std::string bytes;
  };
  struct Listings {
    std::vector<Listing> files;
    std::string missing;
    std::string launch;
  };
  virtual Listings listings(const tile::Program& program) = 0;
  // The work of the compiler so far, in words; may be empty.
  virtual std::string compilerReport() const { return ""; }
};

}  // namespace meshfuse
