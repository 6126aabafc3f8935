// Roles of inputs, by how a program reads them: parameters, optimizer state, or data.
#pragma once

#include <cstdint>
#include <set>

#include "ir/val.h"

namespace meshfuse {

class Fusion;

class Roles {
 public:
  explicit Roles(const Fusion& fusion);

  // A table; an operand of a product other than the first, or an operand of an elementwise op that stretches over rows, unless the program
  // also reads it as the first operand of a product or as an index; or an input that is updated in place.
  bool isParameter(const Val* input) const { return parameters_.contains(input->id()) || isOptimizerState(input); }
  // Updated in place, and read by nothing but elementwise ops and reductions.
  bool isOptimizerState(const Val* input) const { return state_.contains(input->id()); }

 private:
  std::set<int64_t> parameters_;
  std::set<int64_t> state_;
};

}  // namespace meshfuse
