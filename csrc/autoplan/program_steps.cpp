#include "autoplan/program_steps.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <ranges>
#include <utility>
#include <vector>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// Whether the op is a step of its own.
bool isOwnStep(const Expr& e) {
  const OpForm form = ruleOf(e).form;
  return ruleOf(e).executor == Executor::Library || form == OpForm::Line || form == OpForm::Put;
}

// A permute that only products read is a view with other strides.
bool isFolded(const Expr& e) {
  const std::vector<Expr*> uses = e.fusion().uses(e.output());
  return e.kind() == ExprKind::Permute && !e.output()->isFusionOutput() && !uses.empty() &&
         std::ranges::all_of(uses, [](const Expr* use) { return isContraction(*use); });
}

// Whether the result has the elements of the operand in their order.
bool isInOrder(const Expr& e) {
  const View view = ruleOf(e).view;
  return view == View::InOrder || view == View::Contiguous;
}

// A cast to a wider type is computed by the kernel of its only reader.
bool waitsForReader(const Expr& e) {
  const std::vector<Expr*> uses = e.fusion().uses(e.output());
  return e.kind() == ExprKind::Cast && !e.output()->isFusionOutput() && uses.size() == 1 && !isOwnStep(*uses[0]) &&
         !isFolded(*uses[0]) && e.input(0)->definition() != nullptr &&
         dataTypeSize(e.output()->dtype()) > dataTypeSize(e.input(0)->dtype());
}

class Steps {
 public:
  explicit Steps(const Fusion& fusion) : fusion_(fusion) {}

  ProgramSteps run() {
    for (const Expr* e : fusion_.exprs()) {
      if (e->output()->isTensor()) {
        place(*e);
      }
    }
    findViews();
    putInOrder();
    findStored();
    return std::move(result_);
  }

 private:
  enum class Kind : uint8_t { Kernel, Alone, View, Merged };
  struct Node {
    Kind kind = Kind::Kernel;
    std::vector<const Expr*> exprs;
    std::set<int64_t> producers;
    std::vector<bool> reduced;  // dims of the operands of its reductions; empty: it has none
  };

  static std::vector<bool> reducedDims(const Expr& e) {
    return e.kind() == ExprKind::Reduce ? mapped<bool>(e.tensorOutput()->getRootDomain(), &IterDomain::isReduction)
                                        : std::vector<bool>();
  }

  void place(const Expr& e) {
    if (waitsForReader(e) && !waiting_.contains(e.input(0)->definition()->id())) {
      waiting_.insert(e.id());
      return;
    }
    std::vector<const Expr*> exprs;
    for (const TensorView* in : e.tensorInputs()) {
      if (in->definition() != nullptr && waiting_.erase(in->definition()->id()) > 0) {
        exprs.push_back(in->definition());
      }
    }
    exprs.push_back(&e);
    std::set<int64_t> producers;
    for (const Expr* x : exprs) {
      for (const TensorView* in : x->tensorInputs()) {
        if (in->definition() != nullptr && !contains(exprs, in->definition())) {
          producers.insert(nodeOf_.at(in->definition()->id()));
        }
      }
    }
    const Kind kind = isOwnStep(e) ? Kind::Alone : isFolded(e) ? Kind::View : Kind::Kernel;
    std::vector<int64_t> kernels;
    if (kind == Kind::Kernel) {
      std::ranges::copy_if(producers, std::back_inserter(kernels), [&](int64_t p) { return nodes_[p].kind == kind; });
    }
    if (!kernels.empty() && join(exprs, producers, kernels)) {
      return;
    }
    std::ranges::stable_sort(kernels, std::greater<>(), [&](int64_t p) { return nodes_[p].exprs.size(); });
    for (const int64_t p : kernels) {
      if (kernels.size() > 1 && join(exprs, producers, {p})) {
        return;
      }
    }
    for (const Expr* x : exprs) {
      nodeOf_[x->id()] = std::ssize(nodes_);
    }
    nodes_.push_back({kind, exprs, std::move(producers), reducedDims(e)});
  }

  bool join(const std::vector<const Expr*>& exprs, const std::set<int64_t>& producers,
            const std::vector<int64_t>& with) {
    std::vector<bool> reduced = reducedDims(*exprs.back());
    for (const int64_t p : with) {
      const std::vector<bool>& own = nodes_[p].reduced;
      if (!own.empty() && !reduced.empty() && own != reduced) {
        return false;
      }
      reduced = own.empty() ? reduced : own;
    }
    if ((producers.size() > with.size() || with.size() > 1) && waitsForItself(with, producers)) {
      return false;
    }
    Node& first = nodes_[with[0]];
    first.reduced = std::move(reduced);
    for (const int64_t p : with | std::views::drop(1)) {
      append(first.exprs, nodes_[p].exprs);
      first.producers.merge(nodes_[p].producers);
      nodes_[p] = {.kind = Kind::Merged};
    }
    append(first.exprs, exprs);
    first.producers.insert(producers.begin(), producers.end());
    for (const Expr* x : first.exprs) {
      nodeOf_[x->id()] = with[0];
    }
    if (with.size() > 1) {
      for (Node& n : nodes_) {
        for (const int64_t p : with | std::views::drop(1)) {
          if (n.producers.erase(p) > 0) {
            n.producers.insert(with[0]);
          }
        }
      }
    }
    for (const int64_t p : with) {
      first.producers.erase(p);
    }
    return true;
  }

  // Whether a node of `with`, or an op that depends on `producers`, depends on a node of `with` through other nodes.
  bool waitsForItself(const std::vector<int64_t>& with, const std::set<int64_t>& producers) const {
    std::set<int64_t> seen;
    std::vector<int64_t> work;
    const auto push = [&](const std::set<int64_t>& next) {
      for (const int64_t p : next) {
        if (!contains(with, p) && seen.insert(p).second) {
          work.push_back(p);
        }
      }
    };
    push(producers);
    for (const int64_t p : with) {
      push(nodes_[p].producers);
    }
    while (!work.empty()) {
      const Node& n = nodes_[work.back()];
      work.pop_back();
      if (std::ranges::any_of(n.producers, [&](int64_t p) { return contains(with, p); })) {
        return true;
      }
      push(n.producers);
    }
    return false;
  }

  // A kernel of ops that keep a tensor's elements in their order is none, unless the tensor is an input.
  void findViews() {
    for (Node& n : nodes_) {
      if (n.kind == Kind::Kernel && n.exprs[0]->tensorInputs().size() == 1 &&
          n.exprs[0]->input(0)->definition() != nullptr &&
          std::ranges::all_of(n.exprs, [](const Expr* e) { return isInOrder(*e); })) {
        n.kind = Kind::View;
      }
      if (n.kind == Kind::View) {
        for (const Expr* e : n.exprs) {
          result_.owner[e->output()->id()] = result_.ownerOf(e->input(0)->id());
        }
      }
    }
  }

  // Of the nodes that wait for no other, the first comes next.
  void putInOrder() {
    std::vector<std::set<int64_t>> consumers(nodes_.size());
    std::vector<size_t> waiting(nodes_.size());
    std::set<int64_t> ready;
    for (int64_t k = 0; k < std::ssize(nodes_); k++) {
      waiting[k] = nodes_[k].producers.size();
      for (const int64_t p : nodes_[k].producers) {
        consumers[p].insert(k);
      }
      if (nodes_[k].kind != Kind::Merged && nodes_[k].producers.empty()) {
        ready.insert(k);
      }
    }
    while (!ready.empty()) {
      const int64_t next = *ready.begin();
      ready.erase(ready.begin());
      for (const Expr* e : nodes_[next].exprs) {
        result_.stepOf[e->output()->id()] = result_.count;
      }
      result_.count += nodes_[next].kind == Kind::View ? 0 : 1;
      for (const int64_t c : consumers[next]) {
        if (--waiting[c] == 0) {
          ready.insert(c);
        }
      }
    }
  }

  void findStored() {
    for (const auto& list : {fusion_.inputs(), fusion_.outputs()}) {
      for (const Val* val : list) {
        if (val->isTensor()) {
          result_.stored.insert(result_.ownerOf(val->id()));
        }
      }
    }
    for (const Node& n : nodes_) {
      for (const Expr* e : n.exprs) {
        if (n.kind == Kind::Alone) {
          result_.stored.insert(e->output()->id());
        }
        for (const TensorView* in : e->tensorInputs()) {
          if (in->definition() != nullptr && nodeOf_.at(in->definition()->id()) != nodeOf_.at(e->id())) {
            result_.stored.insert(result_.ownerOf(in->id()));
          }
        }
      }
    }
  }

  const Fusion& fusion_;
  ProgramSteps result_;
  std::vector<Node> nodes_;
  std::map<int64_t, int64_t> nodeOf_;  // by id of an op
  std::set<int64_t> waiting_;          // casts, by id
};

}  // namespace

int64_t ProgramSteps::ownerOf(int64_t tensor) const {
  const auto it = owner.find(tensor);
  return it == owner.end() ? tensor : it->second;
}

ProgramSteps programSteps(const Fusion& fusion) { return Steps(fusion).run(); }

}  // namespace meshfuse
