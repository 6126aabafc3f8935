// Random programs, written with the builders a user has, with random shardings. The same seed, the same program.
//
// Operands are kept where an op is defined and tame (logarithms of positive numbers, products of numbers near 1), so that bounds stay
// small enough to say something.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/fusion.h"
#include "tensor/argument.h"

namespace meshfuse::fuzz {

struct Program {
  uint64_t seed = 0;
  std::unique_ptr<Fusion> fusion;  // with meshes and shardings where ranks > 1
  std::vector<Argument> inputs;    // whole tensors
  int ranks = 1;
  std::string mesh;  // "", "x2", "y2x2", "x2 [1, 0]": with its ranks where they are in another order
};

// `choices`: the first of its decisions, see Random.
[[nodiscard]] Program randomProgram(uint64_t seed, std::string_view choices = {});

// The same program for one rank: without meshes and bindings.
[[nodiscard]] std::unique_ptr<Fusion> withoutShardings(const Fusion& fusion);

// What a program does, for the record: op names ("add", "reduce sum", "matmul"), in order of first use.
struct Traits {
  std::vector<std::string> ops;
  bool reduces = false;  // a reduction, a normalization
  bool contracts = false;
  bool indexes = false;       // reads at positions that are data
  bool changesShape = false;  // a reshape, permute, slice, pad, cat
};
[[nodiscard]] Traits traitsOf(const Fusion& fusion);

}  // namespace meshfuse::fuzz
