// Strategies from the rules of ops against all assignments of axes to dims, judged by index sets: the elementary terms of an op, written
// down here for each op, and which ranks can compute them.
#include "autoplan/strategies.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "autoplan/terms.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {
namespace {

std::vector<int64_t> coordinatesOf(int64_t rank, const Sizes& axes) {
  std::vector<int64_t> coordinates(axes.size());
  for (int64_t k = std::ssize(axes) - 1; k >= 0; k--) {
    coordinates[k] = rank % axes[k];
    rank /= axes[k];
  }
  return coordinates;
}

// Whether the rank at these coordinates holds the element: of each dim a block, the outer axes outside.
bool holds(const Placement& placement, const Sizes& shape, const Sizes& axes, const std::vector<int64_t>& coordinates,
           int64_t element) {
  for (int64_t dim = std::ssize(shape) - 1; dim >= 0; dim--) {
    const int64_t index = element % shape[dim];
    element /= shape[dim];
    int64_t blocks = 1;
    int64_t block = 0;
    for (int64_t axis = 0; axis < std::ssize(axes); axis++) {
      if (placement[axis] == dim) {
        blocks *= axes[axis];
        block = block * axes[axis] + coordinates[axis];
      }
    }
    const int64_t length = (shape[dim] + blocks - 1) / blocks;
    if (index / length != block) {
      return false;
    }
  }
  return true;
}

class Oracle {
 public:
  Oracle(const OpWithTerms& op, const Sizes& axes) : op_(op), axes_(axes) {
    for (int64_t rank = 0; rank < productOf(axes); rank++) {
      coordinates_.push_back(coordinatesOf(rank, axes));
    }
  }

  // Every term is computed once for each copy of its result: by one of the ranks that differ on the summed axes only. No rank holds an
  // element that none of its terms reads, though some term does, and none an element of the result to which it contributes nothing.
  bool isStrategy(const std::vector<Placement>& operands, const Placement& result, const std::vector<int64_t>& summed) {
    const auto ranks = std::ssize(coordinates_);
    std::map<std::pair<int64_t, std::vector<int64_t>>, int64_t> computed;  // by term and the other coordinates
    std::vector<std::vector<std::set<int64_t>>> read(operands.size(), std::vector<std::set<int64_t>>(ranks));
    for (int64_t rank = 0; rank < ranks; rank++) {
      std::map<int64_t, int64_t> contributions;  // by element of the result
      for (int64_t t = 0; t < std::ssize(op_.terms); t++) {
        const Term& term = op_.terms[t];
        if (!holds(result, op_.result, axes_, coordinates_[rank], term.result)) {
          continue;
        }
        std::vector<int64_t> group = coordinates_[rank];
        for (const int64_t axis : summed) {
          group[axis] = 0;
        }
        int64_t& count = computed[{t, group}];
        int64_t& mine = contributions[term.result];
        bool can = true;
        for (int64_t k = 0; k < std::ssize(operands); k++) {
          can = can && (term.operands[k] < 0 ||
                        holds(operands[k], op_.operands[k], axes_, coordinates_[rank], term.operands[k]));
        }
        if (can) {
          count++;
          mine++;
          for (int64_t k = 0; k < std::ssize(operands); k++) {
            if (term.operands[k] >= 0) {
              read[k][rank].insert(term.operands[k]);
            }
          }
        }
      }
      for (const auto& [element, count] : contributions) {
        if (count == 0) {
          return false;
        }
      }
    }
    for (const auto& [term, count] : computed) {
      if (count != 1) {
        return false;
      }
    }
    for (int64_t k = 0; k < std::ssize(operands); k++) {
      for (int64_t rank = 0; rank < ranks; rank++) {
        for (const int64_t element : used(k)) {
          if (holds(operands[k], op_.operands[k], axes_, coordinates_[rank], element) &&
              !read[k][rank].contains(element)) {
            return false;
          }
        }
      }
    }
    return true;
  }

  std::set<std::string> all(Division division) {
    std::set<std::string> found;
    std::vector<std::vector<Placement>> placements;
    for (const Sizes& shape : op_.operands) {
      placements.push_back(placementsOf(shape, axes_, division));
    }
    const std::vector<Placement> results = placementsOf(op_.result, axes_, division);
    for (int64_t mask = 0; mask < (int64_t{1} << axes_.size()); mask++) {
      std::vector<int64_t> summed;
      for (int64_t axis = 0; axis < std::ssize(axes_); axis++) {
        if ((mask >> axis & 1) != 0) {
          summed.push_back(axis);
        }
      }
      if (!summed.empty() && !op_.combines) {
        continue;
      }
      std::vector<Placement> operands(op_.operands.size());
      for (const Placement& result : results) {
        if (std::ranges::all_of(summed, [&](int64_t axis) { return result[axis] == kUncut; })) {
          tryOperands(placements, 0, operands, result, summed, found);
        }
      }
    }
    return found;
  }

 private:
  const std::set<int64_t>& used(int64_t operand) {
    std::set<int64_t>& elements = used_[operand];
    if (elements.empty()) {
      for (const Term& term : op_.terms) {
        if (term.operands[operand] >= 0) {
          elements.insert(term.operands[operand]);
        }
      }
    }
    return elements;
  }

  void tryOperands(const std::vector<std::vector<Placement>>& placements, size_t k, std::vector<Placement>& operands,
                   const Placement& result, const std::vector<int64_t>& summed, std::set<std::string>& found) {
    if (k == placements.size()) {
      if (isStrategy(operands, result, summed)) {
        found.insert(strategyText(operands, result, summed));
      }
      return;
    }
    for (const Placement& p : placements[k]) {
      operands[k] = p;
      tryOperands(placements, k + 1, operands, result, summed, found);
    }
  }

  const OpWithTerms& op_;
  const Sizes axes_;
  std::vector<std::vector<int64_t>> coordinates_;
  std::map<int64_t, std::set<int64_t>> used_;
};

std::string difference(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::string text;
  for (const std::string& s : a) {
    text += b.contains(s) ? "" : "  " + s + "\n";
  }
  return text;
}

void expectSame(const OpWithTerms& op, const Expr& expr, const Sizes& axes, Division division,
                const std::string& where) {
  const DeviceMesh mesh = DeviceMesh::createForShape(axes);
  std::set<std::string> got;
  for (const Strategy& s : strategiesOf(expr, mesh, division)) {
    std::vector<Placement> operands;
    for (const int64_t k : expr.tensorPositions()) {
      operands.push_back(s.operands[k]);
    }
    got.insert(strategyText(operands, s.result, s.summed));
  }
  const std::set<std::string> expected = Oracle(op, axes).all(division);
  EXPECT_EQ(difference(got, expected), "") << where << ": of the rule only";
  EXPECT_EQ(difference(expected, got), "") << where << ": by enumeration only";
}

TEST(Strategies, AreThoseOfAnEnumerationOfIndexSets) {
  std::map<std::string, int64_t> covered;
  for (uint32_t seed = 0; seed < 300; seed++) {
    std::mt19937 rng(seed);
    Fusion fusion;
    const OpWithTerms op = randomOpWithTerms(rng, fusion);
    const Expr& expr = *fusion.outputs()[0]->definition();
    const Sizes axes = seed % 2 == 0 ? Sizes{2} : seed % 4 == 1 ? Sizes{2, 2} : Sizes{3};
    const Division division = rng() % 4 == 0 ? Division::Uneven : Division::Even;
    expectSame(op, expr, axes, division, "seed " + std::to_string(seed) + " " + fusion.toString());
    if (HasFailure()) {
      return;
    }
    covered[op.kind]++;
  }
  EXPECT_EQ(covered.size(), 12U);
}

}  // namespace
}  // namespace meshfuse
