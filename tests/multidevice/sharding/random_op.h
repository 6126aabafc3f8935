// Ops on a tensor of a shape at random: what moves, drops, repeats, picks or adds up elements. They ask the tensor for its extents, so
// that they can be applied to one of symbols as well.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ir/fusion.h"

namespace meshfuse {

// One op: its first operand is `x`, what else it reads it makes itself as inputs of the fusion.
struct RandomOp {
  std::string kind;
  std::function<TensorView*(TensorView* x)> apply;
};

// A number of 0 .. n - 1.
[[nodiscard]] int64_t below(std::mt19937& rng, int64_t n);
[[nodiscard]] RandomOp pickOp(std::mt19937& rng, const std::vector<int64_t>& shape);

}  // namespace meshfuse
