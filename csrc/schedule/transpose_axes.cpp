#include "schedule/transpose_axes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <unordered_map>

#include "base/ranges.h"
#include "digits/row_major.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "schedule/extents.h"
#include "schedule/reads.h"

namespace meshfuse {

namespace {

// The axes along which a tensor's inputs lie, as a set.
enum Along : uint8_t { kAlongM = 1, kAlongN = 2 };

// A tensor of the group at one position over the reference dims.
struct Node {
  const TensorView* tensor;
  std::vector<IntExpr> at;
  struct Operand {
    int64_t node;
    bool guarded;  // a pad or cat reads it at some positions only
  };
  std::vector<Operand> operands;  // none of an input
  uint8_t along = 0;
};

// A tensor in memory that the kernel reads or writes: the step in elements from one position of each dim to the next.
struct Access {
  const TensorView* tensor;
  int64_t node;
  bool isOutput;
  std::vector<std::optional<IntExpr>> steps;  // nothing: no fixed step
  IntExpr offset = 0;                         // where all dims are 0

  bool runsOver(const std::vector<int64_t>& axis) const {
    return std::ranges::any_of(axis, [&](int64_t d) { return steps[d] != IntExpr(0); });
  }
};

// Whether positions a step of `a` apart are nearer than those of `b`. Of steps with symbols one is if it divides the other.
bool isShorter(const IntExpr& a, const IntExpr& b) {
  if (a.isConst() || b.isConst()) {
    return a.isConst() && (!b.isConst() || std::abs(a.constValue()) < std::abs(b.constValue()));
  }
  return divideExactly(b, a).has_value() && !divideExactly(a, b).has_value();
}

class AxesFinder {
 public:
  AxesFinder(const Group& group, const Coordinates& c) : group_(group), c_(c) {}

  std::optional<TransposeAxes> find() {
    if (!mayLieInTwoOrders()) {
      return std::nullopt;
    }
    for (const TensorView* out : group_.outputs) {
      outputs_.push_back(ask(out, c_.index.at(out->id())));
      access(out, outputs_.back(), true);
    }
    for (const auto& [written, read] : candidates()) {
      if (std::optional<TransposeAxes> axes = along(written, read)) {
        return axes;
      }
    }
    return std::nullopt;
  }

 private:
  bool mayLieInTwoOrders() const {
    const bool permutes =
        std::ranges::any_of(group_.exprs, [](const Expr* e) { return e->kind() == ExprKind::Permute; });
    const auto mayGrow = [](const IntExpr& outer, const IntExpr& inner) { return !provenLessEqual(inner, outer); };
    const auto isReordered = [&](const auto& layout) {
      return std::ranges::adjacent_find(layout.second.strides, mayGrow) != layout.second.strides.end();
    };
    const bool indexes = std::ranges::any_of(group_.exprs, [](const Expr* e) { return isIndexing(*e); });
    return (permutes || std::ranges::any_of(group_.layouts, isReordered)) && !indexes;
  }

  // The node of a tensor at a position; its operands come before it.
  int64_t ask(const TensorView* tensor, const std::vector<IntExpr>& at) {
    const std::string key = fmt::format("T{},{}", tensor->id(), joined(at, ",", &IntExpr::toString));
    if (auto known = known_.find(key); known != known_.end()) {
      return known->second;
    }
    Node node{tensor, at, {}};
    if (!contains(group_.inputs, tensor)) {
      const Expr& e = *tensor->definition();
      const std::vector<TensorView*> operands = e.tensorInputs();
      for (int64_t k = 0; k < std::ssize(operands); k++) {
        const Read read = readBy(e, k, at, [](const IntExpr& n) { return n; });
        for (const tile::Pred& p : read.where) {
          append(conditions_, std::vector{p.lhs, p.rhs});
        }
        node.operands.push_back({ask(operands[k], read.at), !read.where.empty()});
      }
      computesPositions_ = computesPositions_ || ruleOf(e).form == OpForm::Positions;
    }
    const int64_t id = std::ssize(nodes_);
    nodes_.push_back(std::move(node));
    known_[key] = id;
    if (contains(group_.inputs, tensor)) {
      access(tensor, id, false);
    }
    return id;
  }

  void access(const TensorView* tensor, int64_t node, bool isOutput) {
    const std::vector<IntExpr>& at = nodes_[node].at;
    const auto layout = group_.layouts.find(tensor->id());
    const std::vector<IntExpr> strides =
        layout != group_.layouts.end() ? layout->second.strides : rowMajorStrides(tensor->shape());
    const IntExpr offset = sumOf(indices(at), [&](int64_t d) { return at[d] * strides[d]; });
    const auto dims = mapped(indices(c_.extents), dimSymbol);
    const auto zeroDims = [&](std::string_view s) {
      return contains(dims, s) ? std::optional<IntExpr>(0) : std::nullopt;
    };
    Access a{tensor, node, isOutput, {}, offset.substitute(zeroDims)};
    for (const std::string& dim : dims) {
      const std::optional<LinearForm> form = offset.linearIn(dim);
      const bool isFixed =
          form && std::ranges::none_of(dims, [&](const std::string& d) { return form->slope.contains(d); });
      a.steps.push_back(isFixed ? std::optional(form->slope) : std::nullopt);
    }
    accesses_.push_back(std::move(a));
  }

  bool isLong(int64_t dim) const { return !c_.extents[dim].isConst(1); }

  // The dim along which neighbours are nearest in memory.
  std::optional<int64_t> innermostDim(const Access& a) const {
    std::optional<int64_t> best;
    for (int64_t d : indices(c_.extents)) {
      const IntExpr step = a.steps[d].value_or(0);
      if (isLong(d) && !step.isConst(0) && (!best || isShorter(step, *a.steps[*best]))) {
        best = d;
      }
    }
    return best;
  }

  // Accesses along whose dims it may write and read, those with most traffic first.
  std::vector<std::pair<const Access*, const Access*>> candidates() const {
    std::vector<const Access*> byBytes = mapped(accesses_, [](const Access& a) { return &a; });
    std::ranges::stable_sort(byBytes, std::greater<>(), [](const Access* a) { return usualBytes(*a->tensor); });
    std::vector<std::pair<const Access*, const Access*>> found;
    std::set<std::pair<int64_t, int64_t>> tried;
    for (const Access* written : byBytes) {
      const std::optional<int64_t> m = innermostDim(*written);
      for (const Access* read : byBytes) {
        const std::optional<int64_t> n = innermostDim(*read);
        const bool whole = m && read->steps[*m] != IntExpr(0);  // else it is a row that all read
        if (written->isOutput && m && n && *m != *n && whole && tried.insert({*m, *n}).second) {
          found.emplace_back(written, read);
        }
      }
    }
    return found;
  }

  // The dims that run on from dim `inner` in the memory of `guide`, and that every access traverses as one.
  std::vector<int64_t> run(const Access& guide, int64_t inner, const std::vector<int64_t>& taken) const {
    std::vector<int64_t> dims = {inner};
    const auto isFixed = [&](int64_t d) {
      const std::string symbol = dimSymbol(d);
      return computesPositions_ ||
             std::ranges::any_of(conditions_, [&](const IntExpr& e) { return e.contains(symbol); });
    };
    const auto follows = [&](const Access& a, int64_t outer) {
      const std::optional<IntExpr> step = a.steps[dims.front()];
      const IntExpr& extent = c_.extents[dims.front()];
      return step && a.steps[outer] && *a.steps[outer] == *step * extent;
    };
    while (!isFixed(dims.front())) {
      const auto all = indices(c_.extents);
      const auto next = std::ranges::find_if(all, [&](int64_t d) {
        return isLong(d) && !contains(dims, d) && !contains(taken, d) && !isFixed(d) && follows(guide, d) &&
               std::ranges::all_of(accesses_, [&](const Access& a) { return follows(a, d); });
      });
      if (next == all.end()) {
        break;
      }
      dims.insert(dims.begin(), *next);
    }
    return dims;
  }

  std::optional<TransposeAxes> along(const Access* written, const Access* read) {
    TransposeAxes axes;
    const int64_t m = *innermostDim(*written);
    const int64_t n = *innermostDim(*read);
    axes.m = run(*written, m, {n});
    axes.n = run(*read, n, axes.m);
    for (int64_t d : c_.order) {
      if (isLong(d) && !contains(axes.m, d) && !contains(axes.n, d)) {
        axes.batch.push_back(d);
      }
    }
    const auto extentOf = [&](const std::vector<int64_t>& dims) {
      return productOf(dims, [&](int64_t d) { return c_.extents[d]; });
    };
    axes.M = extentOf(axes.m);
    axes.N = extentOf(axes.n);
    axes.B = extentOf(axes.batch);
    return placeAccesses(axes) && placeValues(axes) ? std::optional(std::move(axes)) : std::nullopt;
  }

  // Which accesses lie along n and which along m; false if one has no fixed step.
  bool placeAccesses(TransposeAxes& axes) {
    const auto isFixed = [](const Access& a, const std::vector<int64_t>& dims) {
      return std::ranges::all_of(dims, [&](int64_t d) { return a.steps[d].has_value(); });
    };
    for (Node& node : nodes_) {
      node.along = 0;
    }
    int64_t divisors[2] = {0, 0};  // along m, along n
    for (const Access& a : accesses_) {
      if (!isFixed(a, axes.m) || !isFixed(a, axes.n)) {
        return false;
      }
      const bool isWhole = a.runsOver(axes.m) && a.runsOver(axes.n);
      const bool alongN = isWhole && isShorter(*a.steps[axes.n.back()], *a.steps[axes.m.back()]);
      if (!isWhole) {
        continue;
      }
      if (!a.isOutput) {
        nodes_[a.node].along = alongN ? kAlongN : kAlongM;
      }
      if (alongN || !a.isOutput) {
        (a.isOutput ? axes.outputsAlongN : alongN ? axes.inputsAlongN : axes.inputsAlongM).push_back(a.tensor);
      }
      int64_t& divisor = divisors[alongN ? 1 : 0];
      const std::vector<int64_t>& own = alongN ? axes.n : axes.m;
      divisor = std::gcd(divisor, a.offset.divisor());
      for (int64_t d : indices(a.steps)) {
        divisor = contains(own, d) ? divisor : std::gcd(divisor, a.steps[d].value_or(1).divisor());
      }
    }
    axes.divisorAlongM = std::max<int64_t>(divisors[0], 1);
    axes.divisorAlongN = std::max<int64_t>(divisors[1], 1);
    for (Node& node : nodes_) {
      for (const Node::Operand& o : node.operands) {
        node.along |= nodes_[o.node].along;
      }
    }
    return true;
  }

  // The values to exchange; false if a result along n needs one along m, or if a value cannot be exchanged.
  bool placeValues(TransposeAxes& axes) {
    bool possible = true;
    for (int64_t k : indices(group_.outputs)) {
      if (contains(axes.outputsAlongN, group_.outputs[k])) {
        possible = possible && (nodes_[outputs_[k]].along & kAlongM) == 0;
      } else {
        possible = possible && exchange(axes, outputs_[k], false);
      }
    }
    return possible && !axes.exchanged.empty();
  }

  bool exchange(TransposeAxes& axes, int64_t id, bool guarded) {
    const Node& node = nodes_[id];
    if ((node.along & kAlongN) == 0) {
      return true;
    }
    if ((node.along & kAlongM) != 0) {
      return std::ranges::all_of(node.operands,
                                 [&](const Node::Operand& o) { return exchange(axes, o.node, guarded || o.guarded); });
    }
    const Node& narrow = nodes_[narrowest(id)];
    const auto index = c_.index.find(narrow.tensor->id());
    if (guarded || index == c_.index.end() || index->second != narrow.at) {
      return false;
    }
    if (!contains(axes.exchanged, narrow.tensor)) {
      axes.exchanged.push_back(narrow.tensor);
    }
    return true;
  }

  // The node itself, or the narrowest one from which it is derived by moving elements and casts only.
  int64_t narrowest(int64_t id) const {
    int64_t best = id;
    for (int64_t k = id; nodes_[k].operands.size() == 1 && !nodes_[k].operands[0].guarded;) {
      const Expr& e = *nodes_[k].tensor->definition();
      if (e.kind() != ExprKind::Cast && e.kind() != ExprKind::Permute && e.kind() != ExprKind::Set) {
        break;
      }
      k = nodes_[k].operands[0].node;
      best = dataTypeSize(nodes_[k].tensor->dtype()) < dataTypeSize(nodes_[best].tensor->dtype()) ? k : best;
    }
    return best;
  }

  const Group& group_;
  const Coordinates& c_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, int64_t> known_;  // by tensor and position; never iterated
  std::vector<int64_t> outputs_;                    // nodes
  std::vector<Access> accesses_;
  std::vector<IntExpr> conditions_;  // sides of the conditions of guarded reads
  bool computesPositions_ = false;   // some value follows from its position
};

}  // namespace

std::vector<IntExpr> TransposeAxes::dims(const Coordinates& c, const IntExpr& mAt, const IntExpr& nAt,
                                         const IntExpr& batchAt) const {
  std::vector<IntExpr> result(c.extents.size(), IntExpr(0));
  const auto spread = [&](const std::vector<int64_t>& axis, const IntExpr& at) {
    const std::vector<IntExpr> index = delinearize(at, mapped(axis, [&](int64_t d) { return c.extents[d]; }));
    for (int64_t i : indices(axis)) {
      result[axis[i]] = index[i];
    }
  };
  spread(m, mAt);
  spread(n, nAt);
  spread(batch, batchAt);
  return result;
}

std::optional<TransposeAxes> findTransposeAxes(const Group& group, const Coordinates& coordinates) {
  return coordinates.hasReduction() ? std::nullopt : AxesFinder(group, coordinates).find();
}

}  // namespace meshfuse
