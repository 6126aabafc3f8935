// Small ops at random with their elementary terms: which element of each operand meets in which element of the result. Written here for
// each op, without its rule.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "autoplan/strategies.h"

namespace meshfuse {

class Fusion;

struct Term {
  int64_t result = 0;             // row-major number of an element
  std::vector<int64_t> operands;  // by tensor operand; -1: it is not read
};

struct OpWithTerms {
  std::string kind;
  std::vector<Sizes> operands;
  Sizes result;
  std::vector<Term> terms;
  bool combines = false;  // terms of one element of the result are added up
};

// Defines one op in the fusion, whose result is its output.
[[nodiscard]] OpWithTerms randomOpWithTerms(std::mt19937& rng, Fusion& fusion);

[[nodiscard]] std::string strategyText(const std::vector<Placement>& operands, const Placement& result,
                                       const std::vector<int64_t>& summed);

}  // namespace meshfuse
