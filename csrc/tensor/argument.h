// An argument of a call of a fusion: a tensor, or a number for a scalar input.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/tensor.h"

namespace meshfuse {

using Argument = std::variant<Tensor, double, int64_t, bool>;
using NamedArguments = std::vector<std::pair<std::string, Argument>>;  // names of inputs

// nvFuser's name of a list of arguments that grows: args.push(x).
class KernelArgumentHolder : public std::vector<Argument> {
 public:
  using std::vector<Argument>::vector;
  void push(Argument argument) { push_back(std::move(argument)); }
};

}  // namespace meshfuse
