// HostProgram: the work of one rank in a call, as a flat list of steps.
//
// Immutable once built. Every tensor has a place: an argument, a result, or a block in one arena; a step names tensors by position. Sizes,
// strides, counts and bytes are integer expressions over the symbols of the program, constants where known. ProgramSizes has the numbers,
// and with them the offsets in the arena. A call only binds pointers (see executor.h).
//
//   symbols        T1 = neg(T0)                     arena                    with i0 = 5
//   i0 >= 0        Float[i0, 4], i0*16 bytes        i0*16 bytes at step 0    T1 [5, 4], 80 bytes at arena + 0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "device/device.h"
#include "digits/int_expr.h"
#include "host/block_copy.h"
#include "host/happens_before.h"
#include "host/program_sizes.h"
#include "multidevice/transport/communicator.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

class Expr;
class Fusion;
class Val;
struct Group;

enum class HostStepKind : uint8_t { Launch, Routine, Communicate, Copy, Reference };
// kernel, library, communicate, copy, reference
[[nodiscard]] std::string_view name(HostStepKind kind);

enum class Place : uint8_t { Input, Output, Arena };

struct TensorPlan {
  int64_t val = 0;  // id in the local fusion
  DataType dtype = DataType::Float;
  std::vector<IntExpr> sizes;
  std::vector<IntExpr> strides;
  IntExpr bytes = 0;
  Place place = Place::Arena;
  int64_t index = 0;     // Input, Output: its number
  int64_t storage = -1;  // the tensor whose memory it shares; -1: its own
};

// A kernel, ready to run.
struct LaunchPlan {
  std::shared_ptr<const Kernel> kernel;
  IntExpr parts = 1;
  std::vector<int64_t> tensors;  // position of each tensor slot, -1 for a workspace: those of the step, in order
  std::vector<IntExpr> sizes;    // also over the symbols of run-time integers
  std::vector<const Val*> scalars;
  std::vector<DataType> scalarTypes;
  std::string program;         // the tile program's text
  bool checksIndices = false;  // it may refuse an index, see base/refused_index.h
};

// A call of a library or of another existing routine. Ops that differ in nothing but their tensors share one RoutineCall.
struct RoutineCall {
  const Expr* op = nullptr;                                 // of the program's fusion: the first one
  std::map<int64_t, Layout> layouts;                        // by Val id: of operands that are not row-major
  std::map<std::string, int64_t, std::less<>> coordinates;  // of this rank, by symbol
  std::shared_ptr<const Routine> ofConstants;  // if the op has constant sizes; else each set of numbers has its own
};

struct CommCall {
  Collective kind = Collective::AllGather;
  bool isPermutation = false;     // Transfer: each rank receives the whole part of another rank
  Team team;                      // of a transfer of blocks: this rank, its receivers and its senders
  std::vector<std::string> axes;  // the mesh axes along which the team lies; none for a transfer of blocks
  ReduceOp reduce = ReduceOp::Sum;
  IntExpr count = 0;  // elements, as Communicator counts them
  DataType dtype = DataType::Float;
  IntExpr root = 0;  // Broadcast: position in the team, also over the symbols of run-time integers
  // For collectives whose blocks differ in size: the number of elements of each rank of the team; for an all-to-all the numbers sent to
  // each rank (`counts`) and received from each rank (`received`). Blocks lie side by side in two arena workspaces, first the sent ones, then
  // the received ones. Blocks that lie side by side in the tensor are not copied to a workspace.
  std::vector<IntExpr> counts;
  std::vector<IntExpr> received;
  TensorBlocks pack;    // of the operand
  TensorBlocks unpack;  // of the result
  // Transfer: the blocks of the operand that are sent, the blocks of the result that are received, and the block that this rank keeps, in
  // both. Blocks that are not one piece of the tensor go through one workspace.
  struct Message {
    int64_t peer = 0;
    TensorBlocks block;
  };
  std::vector<Message> sends;
  std::vector<Message> receives;
  TensorBlocks keptFrom;
  TensorBlocks keptTo;
  bool isCombined = false;  // a reduction that DeviceInfo::combinedBytes gives memory: the last workspace of the step
  int64_t number = 0;       // among the communications of all ranks
  // By this rank; the mean of the team for an all-reduce, whose parts may be uneven, and if the sender is known only at run time.
  IntExpr bytesReceived = 0;

  BlockForm form() const;
  std::string name() const { return callName(kind, form()); }
};

// The routine of a call for `op`, which has constant sizes.
[[nodiscard]] std::shared_ptr<const Routine> routineFor(const Device& device, const RoutineCall& call, const Expr& op);

// The identity of a plan for these values of the symbols of its program.
[[nodiscard]] uint64_t identityFor(uint64_t identity, const std::map<std::string, int64_t>& values);

// CommSizes::program of communication number `number` of the plan with this identity.
[[nodiscard]] constexpr uint64_t programNumber(uint64_t identity, int64_t number) {
  return hashCombine(identity, static_cast<uint64_t>(number + 1));
}

// Memory that one step uses.
struct Workspace {
  IntExpr bytes = 0;
  bool zeroed = false;  // zero before the step and after it: of the step alone, and not in the arena
};

// What a step computes, as a fusion of its own. It is made when it is first read: verification, descriptions and predictions read it, other
// calls do not. Copies share one fusion. Several threads may read it.
class StepReference {
 public:
  StepReference() = default;                               // none
  StepReference(std::shared_ptr<const Fusion> reference);  // NOLINT(google-explicit-constructor): is this fusion
  // As referenceOf(): of a group of `local`, with these values of its coordinates.
  StepReference(std::shared_ptr<const Fusion> local, const Group& group,
                const std::map<std::string, int64_t, std::less<>>& coordinates);

  [[nodiscard]] explicit operator bool() const { return state_ != nullptr; }
  // InternalError if there is none.
  [[nodiscard]] const std::shared_ptr<const Fusion>& fusion() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

struct Step {
  HostStepKind kind = HostStepKind::Launch;
  std::string name;            // "softmax T7", "all-reduce T9": for messages, traces and the profile
  std::vector<int64_t> reads;  // tensors
  std::vector<int64_t> writes;
  LaunchPlan launch;                  // Launch
  int64_t routine = -1;               // Routine: its number in HostProgram::routines
  std::vector<int64_t> operands;      // Routine: tensors in the op's order; `reads` has each once
  CommCall comm;                      // Communicate
  std::vector<Workspace> workspaces;  // of a routine with symbolic sizes: one, whose bytes are in ProgramSizes
  StepOrder
      order;  // queue 0: work of the device, on the caller's thread; k: a collective in the lane of HostProgram::teams[k - 1]
  bool runsBeside = false;  // a collective that other steps run beside: on the thread of its lane
  StepReference reference;  // the same as a fusion, for Reference steps and verification
};

// "pointwise T4[8, 32]: tanh, add": the name of a step, and the ops that it computes if it is no communication.
[[nodiscard]] std::string describe(const Step& step);

// Bytes of the arena that are in use from a first to a last step, both included.
struct ArenaBlock {
  IntExpr bytes = 0;
  int64_t firstStep = 0;
  int64_t lastStep = 0;
  int64_t tensor = -1;  // whose memory it is; -1: a workspace
};

struct HostProgram {
  std::shared_ptr<const Fusion> fusion;  // the local fusion
  std::shared_ptr<Device> device;        // runs the program
  DeviceId deviceId;                     // its id
  std::vector<TensorPlan> tensors;
  std::vector<Step> steps;
  std::vector<RoutineCall> routines;            // of the steps that call one, each once
  std::vector<int64_t> inputs;                  // tensor of each fusion input; -1: a scalar
  std::vector<int64_t> outputs;                 // tensor of each fusion output
  std::vector<std::optional<int64_t>> aliasOf;  // by output: the fusion input whose memory it uses
  std::vector<Team> teams;                      // of the queues of collectives
  std::vector<ArenaBlock> arena;                // workspaces in the order of the steps, then tensors
  std::map<std::string, SymbolFacts>
      symbols;  // of its expressions, except of run-time integers that no size depends on
  std::shared_ptr<const ProgramSizes> constant;  // the numbers of a program without symbols; else null
  int64_t rank = 0;
  int64_t ranks = 1;
  uint64_t identity = 0;      // of the plan for all values of the symbols; the same on all ranks
  Overlap overlap;            // the same on all ranks
  bool communicates = false;  // some rank does

  // The numbers of a program without symbols; InternalError if it has some.
  const ProgramSizes& sizes() const;
  // The tensor whose memory a tensor is in: another one, or itself.
  int64_t storageOf(int64_t tensor) const { return tensors[tensor].storage < 0 ? tensor : tensors[tensor].storage; }
  std::string toString() const;
};

// The symbols of the program's expressions, as HostProgram::symbols.
[[nodiscard]] std::map<std::string, SymbolFacts> symbolsOf(const HostProgram& program);

// Allocates for a run of the program. A UserError of `allocate` then also says how much memory the program takes, and which tensor takes most.
void sayingMemory(const HostProgram& program, const ProgramSizes& sizes, const std::function<void()>& allocate);

}  // namespace meshfuse
