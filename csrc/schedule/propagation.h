// Propagation: derives indices of a group's tensors through its ops, forward and backward, from the known indices of some.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "digits/int_expr.h"
#include "schedule/group.h"

namespace meshfuse {

class Propagation {
 public:
  explicit Propagation(const Group& group) : group_(group) {}

  // The known part of a tensor's index, by stored dim: at first the dims of extent 1; `run` and callers add more.
  using Partial = std::vector<std::optional<IntExpr>>;
  Partial& of(const TensorView* tensor) { return known(tensor).index; }
  // The index if all of it is known.
  std::optional<std::vector<IntExpr>> indexOf(const TensorView* tensor);

  void run();  // until nothing changes

  // Two ops ask for a tensor at different positions.
  bool isConflicted(const TensorView* tensor) const;
  bool anyConflict() const { return !conflicts_.empty(); }
  // A reshape that no index was derived through, because the index would be too large; nullptr if there is none.
  const Expr* overgrown();
  // For each reshape, the index derived from its result is written in the same way as the operand's index.
  bool writesEachOnce() const { return !rewritten_; }

 private:
  struct Known {
    std::vector<IntExpr> shape;
    Partial index;
  };
  // A dim of an operand and a dim of the result with the same positions, unless one stretches.
  struct Link {
    std::optional<IntExpr>* operand = nullptr;
    std::optional<IntExpr>* result = nullptr;
    int64_t operandId = 0;
    int64_t resultId = 0;
    bool isSettled = false;  // both positions are known and have been compared
  };
  struct OpLinks {
    const Expr* reshape = nullptr;  // it has no links
    std::vector<Link> links;
  };
  Known& known(const TensorView* tensor);
  OpLinks linksOf(const Expr& expr);
  void visit(OpLinks& op);
  void follow(Link& link);
  void set(std::optional<IntExpr>& slot, const std::optional<IntExpr>& value);
  void complete(const TensorView* tensor, const std::optional<std::vector<IntExpr>>& derived);
  std::optional<std::vector<IntExpr>> reshaped(const TensorView* from, const TensorView* to);
  bool agrees(const std::vector<IntExpr>& derived, const TensorView* tensor);
  void reshape(const Expr& expr);

  const Group& group_;
  std::unordered_map<int64_t, Known> known_;  // by Val id; never iterated
  std::set<int64_t> conflicts_;
  std::set<int64_t> settled_;  // ids of reshapes whose two indices are known and agree
  bool rewritten_ = false;
  bool changed_ = false;
};

}  // namespace meshfuse
