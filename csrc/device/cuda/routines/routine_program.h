// The kernels of an op that no tile program computes: CUDA text written by hand for its types, sizes and strides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/rounding.h"
#include "codegen/cuda/emit.h"
#include "device/device.h"

namespace meshfuse {

// What a slot of a kernel holds.
struct RoutineSlot {
  enum class Kind : uint8_t { Operand, Result, Workspace, Number };
  Kind kind = Kind::Result;
  int64_t value = 0;  // the number of the operand; the offset in the workspace in bytes; the number itself
};

struct RoutineLaunch {
  static constexpr int64_t kMostSlots = 6;
  int64_t kernel = 0;  // in RoutineProgram::kernels
  int64_t blocks = 0;
  std::vector<RoutineSlot> slots;
};

struct RoutineProgram {
  std::string name;                     // of the op and its result, for errors
  std::vector<CudaSource> kernels;      // `blocks` and `slots` of a source are not read: each launch has its own
  std::vector<RoutineLaunch> launches;  // one after the other
  int64_t workspaceBytes = 0;

  // Returns the offset of a new piece of the workspace, aligned as its begin.
  int64_t addWorkspace(int64_t bytes) {
    const int64_t begin = roundUp(workspaceBytes, 64);
    workspaceBytes = begin + bytes;
    return begin;
  }
};

// What computes an op on a GPU that no tile program computes, for messages: cuBLASLt, or the kernels of routineProgram(); nothing for other
// ops.
[[nodiscard]] std::optional<std::string_view> cudaRoutineName(const Expr& op);
// UserError with the name of the op if only a routine computes it, and there is none on a GPU.
void expectCudaRoutine(const Expr& op);

// Of an op of constant sizes for which cudaRoutineName() is not a library. Results have the bits that a CPU gives, except scans with sums
// and products of floating numbers: a CPU combines one element after the other, a GPU segments of 16 elements first, both in Double.
// UserError for a scatter of 2^32 - 1 or more elements along its dim, and for an op of more than 2^31 - 1 blocks, such as a sort of as many
// lines.
[[nodiscard]] RoutineProgram routineProgram(const Expr& op, const RoutineOptions& options);

// Parts of routineProgram(), by kind of op.
[[nodiscard]] RoutineProgram scanProgram(const Expr& op, const RoutineOptions& options);
[[nodiscard]] RoutineProgram argSortProgram(const Expr& op, const RoutineOptions& options);
[[nodiscard]] RoutineProgram scatterProgram(const Expr& op, const RoutineOptions& options);
[[nodiscard]] RoutineProgram addRowsProgram(const Expr& op, const RoutineOptions& options);

}  // namespace meshfuse
