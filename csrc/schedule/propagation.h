// Propagation: indices of a group's tensors derived through the ops, forward and backward, from what is known of some.
#pragma once

#include <map>
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

  // What is known of a tensor's index, by stored dim: all dims of extent 1 at first, what `run` derives, what a caller puts here.
  using Partial = std::vector<std::optional<IntExpr>>;
  Partial& of(const TensorView* tensor) { return known(tensor).index; }
  // The index if all of it is known.
  std::optional<std::vector<IntExpr>> indexOf(const TensorView* tensor);

  void run();  // until nothing changes

  // Two ops ask for a tensor at different positions.
  bool isConflicted(const TensorView* tensor) const;
  bool anyConflict() const { return !conflicts_.empty(); }
  // A reshape that nothing was derived through, for what it would have cost; nullptr if there is none.
  const Expr* overgrown();
  // What follows from each reshape's result for its operand is written as the operand's index is.
  bool writesEachOnce() const { return !rewritten_; }

 private:
  struct Known {
    std::vector<IntExpr> shape;
    Partial index;
  };
  Known& known(const TensorView* tensor);
  void visit(const Expr& expr);
  void set(std::optional<IntExpr>& slot, const std::optional<IntExpr>& value);
  void complete(const TensorView* tensor, const std::optional<std::vector<IntExpr>>& derived);
  void same(const TensorView* parent, size_t parentDim, const TensorView* child, size_t childDim);
  void flagged(const TensorView* narrow, const TensorView* wide, const std::vector<bool>& flags);
  std::optional<std::vector<IntExpr>> reshaped(const TensorView* from, const TensorView* to);
  bool agrees(const std::vector<IntExpr>& derived, const TensorView* tensor);
  void reshape(const Expr& expr);

  const Group& group_;
  std::unordered_map<int, Known> known_;  // by Val id; never iterated
  std::set<int> conflicts_;
  std::set<int> settled_;  // ids of reshapes both sides of which are known and agree
  bool rewritten_ = false;
  bool changed_ = false;
};

}  // namespace meshfuse
