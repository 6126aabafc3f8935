// CostGraph: variables with a cost for each choice, and costs of pairs of choices of two variables. minimize() finds the cheapest choices.
//
// Exact variable elimination (min-sum bucket elimination; Dechter, 1999): a variable is replaced by a table over its neighbours, the one
// with the smallest table first; then the choices are read off in reverse. If a table would be too large, its costs are divided among several
// smaller tables that are minimized apart (mini-buckets; Dechter and Rish, 2003): the value is then a lower bound, and the choices a
// solution that may be worse. Ties: the first variable, the first choice.
//
// Exact tables also say what a choice costs at least, whatever follows. visitBelow() descends along them in the reverse order, and leaves a
// choice as soon as nothing that follows can be cheap enough.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace meshfuse {

struct PairTable {
  int64_t rows = 0;  // choices of the first variable
  int64_t columns = 0;
  std::vector<double> costs;  // row-major

  double at(int64_t row, int64_t column) const { return costs[row * columns + column]; }
};

struct PairCost {
  int64_t first = 0;
  int64_t second = 0;  // another variable
  std::shared_ptr<const PairTable> table;
};

struct CostGraph {
  std::vector<std::vector<double>> costs;  // by variable, by choice; infinity: forbidden
  std::vector<PairCost> pairs;

  double costOf(std::span<const int64_t> choices) const;
};

struct Minimum {
  std::vector<int64_t> choices;  // by variable
  double cost = 0;               // of these choices
  double bound = 0;   // no choices are cheaper; equal to cost, except for rounding, if the elimination was exact
  int64_t width = 0;  // the most neighbours that an eliminated variable had
  bool isExact = true;
};

struct EliminationLimits {
  int64_t entries = int64_t{1} << 22;  // of a table with all choices of its eliminated variable
};

// The cost is infinite if no choices avoid forbidden ones (of an exact elimination).
[[nodiscard]] Minimum minimize(const CostGraph& graph, const EliminationLimits& limits = {});

// A variable that was eliminated. scope: the variables around it then, ascending, without itself. least: the least cost of it and of all
// that was eliminated into its table, by the choices of `scope`; row-major, the last of them fastest.
struct EliminatedVariable {
  int64_t variable = 0;
  std::vector<int64_t> scope;
  std::shared_ptr<const std::vector<double>> least;
};

// All variables in the order of an exact elimination; nothing if a table would be too large.
[[nodiscard]] std::optional<std::vector<EliminatedVariable>> eliminated(const CostGraph& graph,
                                                                        const EliminationLimits& limits = {});

class ChoiceVisitor {
 public:
  virtual ~ChoiceVisitor() = default;
  // A variable got its choice; false: no choices with it are visited. Variables leave in the reverse order, also refused ones.
  virtual bool enter(int64_t variable, int64_t choice) = 0;
  virtual void leave(int64_t variable) = 0;
  // All variables have choices. Returns the cost below which choices are visited from now on.
  virtual double visit(const std::vector<int64_t>& choices) = 0;
};

// Visits all choices that cost less than `below`, cheaper choices of a variable first. False if more than `most` choices of single variables
// would be tried, or a table would be too large: then some were not visited. The tables of all variables are kept.
[[nodiscard]] bool visitBelow(const CostGraph& graph, double below, int64_t most, ChoiceVisitor& visitor,
                              const EliminationLimits& limits = {});

}  // namespace meshfuse
