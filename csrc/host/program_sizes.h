// ProgramSizes: the sizes, strides, counts and offsets of a host program as numbers, for one value of each of its symbols.
//
// A program without symbols has one, made when it is built. All other programs get one for each binding.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "digits/int_expr.h"
#include "host/block_copy.h"
#include "host/memory_plan.h"

namespace meshfuse {

struct HostProgram;
class Routine;

struct TensorSizes {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t bytes = 0;
  int64_t offset = 0;  // in the arena
  friend bool operator==(const TensorSizes&, const TensorSizes&) = default;
};

struct WorkspaceSizes {
  int64_t bytes = 0;
  int64_t offset = 0;  // in the arena, or among the zeroed bytes
  friend bool operator==(const WorkspaceSizes&, const WorkspaceSizes&) = default;
};

struct CommSizes {
  int64_t count = 0;
  IntExpr root = 0;  // over the symbols of run-time integers
  std::vector<int64_t> counts;
  std::vector<int64_t> received;
  BlockCopy pack;
  BlockCopy unpack;
  struct Message {
    BlockCopy block;
    int64_t offset = 0;  // into the workspace, where the block is not one piece of the tensor
    friend bool operator==(const Message&, const Message&) = default;
  };
  std::vector<Message> sends;  // in the order of those of CommCall
  std::vector<Message> receives;
  std::vector<BytePiece> kept;
  int64_t bytesReceived = 0;
  uint64_t program = 0;  // identifies the plan, the values and the step among its communications: the same on all ranks
  friend bool operator==(const CommSizes&, const CommSizes&) = default;
};

struct StepSizes {
  int64_t parts = 1;
  std::vector<IntExpr> launch;  // the sizes of the launch, over the symbols of run-time integers; constants where known
  std::vector<WorkspaceSizes> workspaces;
  CommSizes comm;
  friend bool operator==(const StepSizes&, const StepSizes&) = default;
};

struct ProgramSizes {
  std::map<std::string, int64_t> values;  // of the symbols
  std::vector<TensorSizes> tensors;
  std::vector<StepSizes> steps;
  std::vector<std::shared_ptr<const Routine>> routines;  // of the calls of the program
  std::vector<MemoryBlock> arena;                        // in the order of those of the program
  int64_t arenaBytes = 0;
  int64_t zeroedBytes = 0;   // of workspaces that are zero between calls
  int64_t peakBytes = 0;     // arguments, results and arena; without the zeroed bytes, which are few
  int64_t scratchBytes = 0;  // the most that a launch needs
  friend bool operator==(const ProgramSizes&, const ProgramSizes&) = default;
};

// Evaluates the expressions of the program, packs its arena, and proves that the order of the steps orders all accesses of the same bytes
// (verify_program.h). `values`: of the symbols of the program; others are ignored.
//
// UserError, with the tensor or step, its sizes and the values, if a symbol has no value or one that contradicts its facts, if a size, count or
// number of bytes is negative or does not fit in 64 bits, or if a block is not in its tensor.
[[nodiscard]] ProgramSizes sizesOf(const HostProgram& program, const std::map<std::string, int64_t>& values = {});

// The sizes that a program without symbols has; of another one sizesOf(program, values).
[[nodiscard]] std::shared_ptr<const ProgramSizes> sizesFor(const HostProgram& program,
                                                           const std::map<std::string, int64_t>& values);

}  // namespace meshfuse
