#include "schedule/recompute_count.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <unordered_map>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "schedule/reads.h"

namespace meshfuse {

namespace {

// Asks for tensors as Lowering does: each at a position and under guards once.
class RecomputeCount {
 public:
  explicit RecomputeCount(const Group& group)
      : most_(std::min(kMaxValues, kFreeValues + kValuesOfAnOp * group.exprs.size())) {
    for (const Expr* e : group.exprs) {
      for (const Val* out : e->outputs()) {
        made_.insert(out->id());
      }
    }
  }

  void ask(const TensorView* tensor, const std::vector<IntExpr>& at) {
    if (!reason_.empty() || !made_.contains(tensor->id()) || !seen_.insert(describe(tensor, at)).second) {
      return;
    }
    const Expr& e = *tensor->definition();
    if (seen_.size() > most_) {
      reason_ =
          fmt::format("{} and others are needed at so many positions that a kernel would compute more than {} values",
                      tensor->toString(), most_);
      return;
    }
    if (isIndexing(e)) {
      const TensorView* index = e.input(indexOf(e))->asTensor();
      ask(index, stretched(index->shape(), positionOfIndex(e, at)));
    } else if (e.kind() != ExprKind::Reduce) {  // whose result is there once
      askOperands(e, at);
    }
  }

  std::string reason() const { return reason_; }

 private:
  void askOperands(const Expr& e, const std::vector<IntExpr>& at) {
    const std::vector<TensorView*> operands = e.tensorInputs();
    for (int64_t k = 0; k < std::ssize(operands) && reason_.empty(); k++) {
      const Read read = readBy(e, k, at, [](const IntExpr& n) { return n; });
      if (e.kind() == ExprKind::Reshape && isOvergrown(at, read.at)) {
        reason_ = overgrownReason(e);
        return;
      }
      const size_t outer = guard_.size();
      for (const tile::Pred& p : read.where) {
        guard_.push_back(fmt::format("{}<{}", p.lhs.toString(), p.rhs.toString()));
      }
      ask(operands[k], read.at);
      guard_.resize(outer);
    }
  }

  std::string describe(const TensorView* tensor, const std::vector<IntExpr>& at) const {
    return fmt::format("T{},{}|{}", tensor->id(), joined(at, ",", &IntExpr::toString), joined(guard_, "|"));
  }

  const size_t most_;
  std::set<int64_t> made_;  // Val ids
  std::set<std::string> seen_;
  std::vector<std::string> guard_;
  std::string reason_;
};

}  // namespace

std::string refuseRecompute(const Group& group, const Coordinates& c) {
  RecomputeCount count(group);
  auto askAtIndex = [&](const TensorView* tensor) {
    if (auto it = c.index.find(tensor->id()); it != c.index.end()) {
      count.ask(tensor, it->second);
    }
  };
  for (const TensorView* out : group.outputs) {
    askAtIndex(out);
  }
  for (const Expr* e : reductionsOf(group)) {
    askAtIndex(e->tensorInputs()[0]);
  }
  return count.reason();
}

std::string refuseSweeps(const Group& group, const Coordinates& c) {
  if (c.stages > kMaxStages) {
    return fmt::format("{} reductions follow one another, more than {}", c.stages, kMaxStages);
  }
  if (c.stages < 2) {
    return {};
  }
  // by Val id, never iterated: bit k: the sweep of stage k, the last one stores
  std::unordered_map<int64_t, uint64_t> sweeps;
  for (const TensorView* out : group.outputs) {
    sweeps[out->id()] |= uint64_t{1} << c.stages;
  }
  int64_t work = 0;
  for (const Expr* e : group.exprs | std::views::reverse) {
    const int64_t id = e->output()->id();
    const bool reduces = e->kind() == ExprKind::Reduce;
    const bool ofRows = reduces && c.stage.contains(id);
    const uint64_t uses = ofRows ? uint64_t{1} << c.stage.at(id) : reduces ? uint64_t{1} << c.stages : sweeps[id];
    work += e->kind() == ExprKind::Point && c.spread.contains(id) ? std::popcount(uses) : 0;
    for (const Val* in : e->inputs()) {
      sweeps[in->id()] |= uses;
    }
  }
  return work <= kMaxSweepWork
             ? std::string()
             : fmt::format("{} reductions follow one another: their sweeps would compute {} values, more than {}",
                           c.stages, work, kMaxSweepWork);
}

}  // namespace meshfuse
