// programParts: the parts of a program among which the stages of a pipeline are cut, and the ops of each part in its passes.
//
//   x = embedding(tokens, t) | x = relu(linear(x, u)) | x = relu(linear(x, v)) | g = matmul(dx, v) ... | h = matmul(dg, u) ...
//   part 0                     part 1                   part 2                   part 2, backward       part 1, backward
//
// A program has a backward pass if after the first read of its last parameter (by first reads in program order) it makes a sum over the
// batch with the shape of a parameter, a gradient. The backward pass begins with the first one, or with an op before it that reads the
// weight of the last product again. Parts are cut in the forward pass where at most c tensors cross. c is the smallest number for which no
// part does more than half of all products; if there is none, the smallest for which the largest part is smallest. Of several places
// between two ops that read parameters, the one where the fewest bytes cross is taken. An elementwise op that alone reads the result before
// it is in the same part. If there are more than kMostParts, neighbours are joined in pairs.
//
// For each tensor of the forward pass that an op of the backward pass reads, take the last part whose forward pass reads it (the part that
// makes it if none does); for each operand from the backward pass, the part of that operand. The op is in the smallest of these parts:
// gradients flow from the last part to the first. A view or copy of a gradient is in the part of its first reader. Ops on sums are in such
// a part, too, and run in the update, after the last micro-batch. An op without rows of the batch, such as a cast of a weight, is in every
// part that needs it.
#pragma once

#include <cstdint>
#include <vector>

#include "autoplan/micro_batches.h"

namespace meshfuse {

class Expr;

inline constexpr int64_t kMostParts = 64;
inline constexpr int64_t kEveryPart = -1;

enum class PassOfProgram : uint8_t { Forward, Backward, Update };

struct ProgramParts {
  int64_t count = 0;
  bool hasBackward = false;
  // By step of program->exprs().
  std::vector<const Expr*> exprs;
  std::vector<int64_t> parts;  // or kEveryPart
  std::vector<PassOfProgram> passes;
};

[[nodiscard]] ProgramParts programParts(const MicroBatches& micro);

}  // namespace meshfuse
