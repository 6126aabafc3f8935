// FusionExecutorCache: calls a fusion with tensors; plans are compiled when first needed and cached.
//
//   FusionExecutorCache cache(std::move(fusion));
//   std::vector<Tensor> out = cache.runFusionWithInputs({x, w});
//
// The first call with new argument facts (types, sizes, strides, alignments) compiles a plan; later calls find it. Plans are
// immutable and bounded in number. Several threads may call at once; a call that finds a plan does not wait for one that compiles.
// With several ranks, every rank makes the same calls in the same order, each with its local shards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/pass_settings.h"
#include "exec/profile.h"
#include "tensor/argument.h"
#include "tensor/gpu_stream.h"
#include "tensor/tensor.h"

namespace meshfuse {

class Binding;
class Communicator;
class Fusion;
struct Explanation;
struct HostProgram;
class Plan;
struct StepRecord;
struct StreamOrder;
struct SymbolicCosts;
class SymbolicProgram;
class Trace;

enum class Verify : uint8_t { Off, First, Always };

struct ExecutorOptions {
  Communicator* communicator = nullptr;  // default: this thread's default world
  int64_t threads = 0;                   // of a rank; default: MESHFUSE_THREADS, else its coreShare(), at least 1
  size_t maxPlans = 64;    // the least recently used plan beyond them is dropped; 0 counts as 1; the same on all ranks
  bool sharePlans = true;  // a plan may hold for many shapes, see exec/shape_class.h; false: each shape is compiled
  PassSettings passes = {};  // the same on all ranks
  // Compare every step with the reference interpreter; the error names the kernel of the first wrong element. Default: the
  // environment's MESHFUSE_VERIFY (first, always), else off.
  std::optional<Verify> verify;
  Trace* trace = nullptr;  // where calls are recorded; default: as the environment's MESHFUSE_TRACE says, else nowhere
  // The sizes of mesh axes of symbolic size. One axis of each mesh may be left out: its size follows from the number of ranks.
  std::map<std::string, int64_t> meshSizes = {};
};

// A planned communication step, as a rank executes it.
struct CommRecord {
  std::string kind;  // "all-gather", "all-reduce", ...
  std::vector<int64_t> team;
  std::string tensor;
  int64_t bytesReceived = 0;
  std::vector<std::string> axes;  // the mesh axes along which the team lies; none for a transfer of blocks
};

class FusionExecutorCache {
 public:
  // UserError if `fusion` is null, if `threads` or a variable of the environment is out of its range.
  explicit FusionExecutorCache(std::unique_ptr<Fusion> fusion, ExecutorOptions options = {});
  // Specializes a program for any number of devices to the size of this communicator; UserError if the size fits no mesh. A fusion
  // with mesh axes of symbolic size may also be passed to the constructor above.
  explicit FusionExecutorCache(SymbolicProgram& program, ExecutorOptions options = {});
  ~FusionExecutorCache();
  FusionExecutorCache(const FusionExecutorCache&) = delete;
  FusionExecutorCache& operator=(const FusionExecutorCache&) = delete;

  // inputs: one for each fusion input, tensors in local sizes. Returns the outputs in order; an output that aliases an input shares
  // its memory. UserError on a wrong number of arguments, on an argument with a wrong number of dims, size or type, or on arguments of
  // several devices, before anything runs; DeviceError if a peer fails.
  std::vector<Tensor> runFusionWithInputs(const std::vector<Argument>& inputs);
  std::vector<Tensor> run(const KernelArgumentHolder& inputs) { return runFusionWithInputs(inputs); }
  // The same with the names of inputs, in any order: run({{"x", x}, {"w0", w0}}). UserError, too, if a name is unknown, given twice, or
  // missing.
  std::vector<Tensor> run(const NamedArguments& inputs);
  // Writes into tensors that the caller supplies, of the right sizes and types; tensors for aliased outputs are ignored. Allocates
  // nothing once the plan exists, if their strides are the plan's and they are 64-byte aligned.
  void run(std::span<const Argument> inputs, std::span<Tensor> outputs);
  void run(std::span<const Tensor> inputs, std::span<Tensor> outputs);
  // The same on a GPU, as work of the caller's stream: it begins after the work of the stream so far, and later work of the stream begins after
  // it. The call may return before its work and its collectives have ended. A failure after the return, such as an index out of range or a
  // rank that has gone, is thrown by a later call or by wait(). A call without a stream is not ordered after it: wait() first. The first call of
  // a new plan compiles it, which takes time and may wait for the GPU. UserError if the inputs are not on a GPU.
  void run(std::span<const Argument> inputs, std::span<Tensor> outputs, GpuStream stream);
  // Returns when the work of all calls has ended; throws the first failure that no call has thrown. No call may be under way.
  void wait();

  // The program that is called: as given, or with the mesh sizes of this communicator in place of symbols.
  const Fusion& fusion() const { return *fusion_; }
  // Of the plan that the last call used, down to costs(): UserError before the first call. The communication steps:
  std::vector<CommRecord> commSteps() const;
  std::shared_ptr<const HostProgram> hostProgram() const;
  std::shared_ptr<const Fusion> planned() const;  // the global program after planning
  std::string planText() const;                   // the same as .fir text
  // The sharding of output number `output`, such as "S0(x) R on {x: 2}"; UserError if there is no such output.
  std::string outputSharding(int64_t output) const;
  // Shardings, edges, communication, kernels and memory, with the reasons (exec/explain.h).
  Explanation explain() const;
  // The costs as expressions in the symbolic sizes of mesh axes (exec/symbolic_costs.h).
  SymbolicCosts costs() const;
  // Calls the fusion `calls` times, as runFusionWithInputs does, and returns the shortest time of the call and of each step. On several
  // ranks all of them do. Inputs that outputs alias are updated by each call. UserError if `calls` is below 1.
  [[nodiscard]] Profile profile(const std::vector<Argument>& inputs, int64_t calls = 1);
  // Why the last call compiled: the argument fact that differs from the plan used before; empty if the call did not compile.
  std::string missReason() const;
  int64_t plansCompiled() const;
  // Fault injection for tests: later runs skip communication step number `step` of the plan; -1: none.
  void skipCommunication(int64_t step);

 private:
  void start(const ExecutorOptions& options, const std::shared_ptr<Communicator>& world);
  std::vector<Tensor> runTimed(std::span<const Argument> inputs, Profile* profile);
  // How a call runs.
  struct Way {
    std::vector<StepRecord>* profile = nullptr;
    const StreamOrder* order = nullptr;
  };
  // Calls body(), which checks a call before it runs. If it throws a UserError, all ranks do where they can.
  template <class Body>
  void checkCall(Binding& binding, const Body& body);
  void runOn(std::span<const Argument> inputs, std::span<Tensor> outputs, const StreamOrder* order);
  void runInto(Plan& plan, Binding& binding, std::span<const Argument> inputs, std::span<Tensor> outputs,
               const StreamOrder* order);
  void execute(Plan& plan, Binding& binding, std::span<const Argument> inputs, std::span<Tensor> outputs,
               const Way& way);
  void runSteps(Plan& plan, Binding& binding, std::span<const Argument> inputs, std::span<Tensor> outputs,
                const Way& way);

  std::unique_ptr<Fusion> fusion_;
  std::vector<std::string> openAxes_;  // mesh axes of symbolic size
  Verify verify_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace meshfuse
