// Executes a HostProgram: binds pointers, runs the steps in order.
//
// A Binding is the mutable state of a program: its arena, the argument slots of every launch, scratch for every worker. One call
// at a time uses a binding; calls allocate nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "host/program.h"
#include "host/scalars.h"
#include "multidevice/transport/communicator.h"
#include "tensor/argument.h"

namespace meshfuse {

class ThreadPool;

// One step of a run, for profiles and traces.
struct StepRecord {
  const Step* step = nullptr;
  std::chrono::steady_clock::time_point begin = {};
  std::chrono::steady_clock::time_point end = {};
  int64_t bytesReceived = 0;  // of a communication, as counted by the transport
  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

struct ExecuteOptions {
  bool verify = false;                         // compare each step with the reference interpreter
  std::vector<StepRecord>* profile = nullptr;  // receives one entry for each step
  int64_t skipStep = -1;                       // fault injection: a communication step that is not run
};

class Binding {
 public:
  Binding(std::shared_ptr<const HostProgram> program, Communicator& communicator);

  // inputs: one for each fusion input; outputs: defined, contiguous, 64-byte aligned where place is Output, else ignored.
  // UserError if a kernel reads an index out of range; DeviceError if a peer fails; InternalError naming the step, tensor, position and
  // values if verification fails.
  void run(ThreadPool& pool, Communicator& communicator, std::span<const Argument> inputs, std::span<Tensor> outputs,
           const ExecuteOptions& options = {});

 private:
  void executeWatched(const Step& step, size_t number, ThreadPool& pool, Communicator& communicator,
                      std::span<const Argument> inputs, const ExecuteOptions& options);
  void bindScalars(std::span<const Argument> inputs);
  void execute(const Step& step, size_t number, ThreadPool& pool, Communicator& communicator,
               std::span<const Argument> inputs);
  void launch(const Step& step, size_t number, ThreadPool& pool);
  void communicate(const Step& step, Communicator& communicator, std::span<const Argument> inputs);
  void communicateUneven(const Step& step, Communicator& communicator, const void* in, void* out);
  void transfer(const Step& step, Communicator& communicator, const void* in, void* out);
  void reference(const Step& step, std::span<const Argument> inputs);
  void compareWithReference(const Step& step, std::span<const Argument> inputs) const;
  std::vector<Argument> referenceInputs(const Step& step, std::span<const Argument> inputs) const;
  StridedElements elements(int64_t tensor) const;
  Tensor view(int64_t tensor) const;
  void* pointer(int64_t tensor) const { return pointers_[tensor]; }
  // Of a step; nullptr if it has fewer.
  char* workspace(const Step& step, size_t k = 0) const {
    const std::vector<int64_t>& offsets = step.launch.workspaces;
    return k < offsets.size() ? static_cast<char*>(arena_.get()) + offsets[k] : nullptr;
  }

  std::shared_ptr<const HostProgram> program_;
  std::shared_ptr<void> arena_;
  std::shared_ptr<void> scratch_;
  int64_t scratchStride_ = 0;  // from one worker's scratch to the next
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
  std::vector<Communicator::Transfer> transfers_;
  ScalarSteps scalars_;
  std::vector<std::vector<int64_t>> scalarOf_;  // by step: number in scalars_ of each scalar argument
  bool hasRunTimeScalars_ = false;
};

}  // namespace meshfuse
