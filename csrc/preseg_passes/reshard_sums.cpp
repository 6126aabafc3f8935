#include "preseg_passes/reshard_sums.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <ranges>
#include <set>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"
#include "preseg_passes/reshard_partials.h"

namespace meshfuse {

namespace {

bool sameShape(const TensorView* a, const TensorView* b) {
  return std::ranges::equal(a->noReductions(), b->noReductions(), [](const IterDomain* x, const IterDomain* y) {
    return x->extent() == y->extent() && x->iterType() == y->iterType();
  });
}

// A term of a sum with the state and type of the result.
bool isPlainTerm(const TensorView* in, const TensorView* out, ShardStateMemo& states) {
  return in->dtype() == out->dtype() && sameShape(in, out) && in->getDeviceMesh() == out->getDeviceMesh() &&
         provenEqual(states.state(in), states.state(out));
}

// An add of two tensors; one may be stretched.
bool isPlainAdd(const Expr* e, ShardStateMemo& states) {
  if (e == nullptr || e->kind() != ExprKind::Point || e->attributes().point != PointOp::Add ||
      e->tensorInputs().size() != 2 || e->input(0) == e->input(1)) {
    return false;
  }
  const TensorView* out = e->tensorOutput();
  return out->hasDeviceMesh() && dataTypeSize(out->dtype()) >= 4 && !out->isPartial() &&
         std::ranges::any_of(e->tensorInputs(), [&](const TensorView* in) { return isPlainTerm(in, out, states); }) &&
         std::ranges::all_of(e->tensorInputs(),
                             [&](const TensorView* in) { return isPlainTerm(in, out, states) || !sameShape(in, out); });
}

bool isReadOnce(const Val* val) { return val->fusion().uses(val).size() == 1; }

class SumTrees {
 public:
  SumTrees(Fusion& fusion, PlanMemo& plans, ShardStateMemo& states) : fusion_(fusion), plans_(plans), states_(states) {}

  bool run() {
    bool changed = false;
    const std::vector<int64_t> adds = idsOf(fusion_, [this](const Expr* e) { return isPlainAdd(e, states_); });
    // from the last one on: a tree begins at its root
    for (const int64_t id : std::views::reverse(adds)) {
      Expr* e = inTrees_.contains(id) ? nullptr : fusion_.expr(id);
      if (e != nullptr && isPlainAdd(e, states_)) {
        std::vector<Term> terms;
        collectTerms(e, {}, terms);
        changed |= terms.size() > 1 && combineTogether(e, terms);
      }
    }
    return changed;
  }

 private:
  // A combination of sums among the leaves of a tree, and the linear ops between it and the root, from the leaf up.
  struct Term {
    Expr* combination;
    std::vector<const Expr*> linear;
    TensorView* contributions = nullptr;  // in their form at the root
    std::vector<Expr*> made = {};         // that make them so
  };

  void collectTerms(const Expr* add, const std::vector<const Expr*>& linear, std::vector<Term>& terms) {
    for (TensorView* in : add->tensorInputs()) {
      if (isPlainTerm(in, add->tensorOutput(), states_)) {
        collect(in, linear, terms);
      }
    }
  }

  void collect(TensorView* in, std::vector<const Expr*> linear, std::vector<Term>& terms) {
    Expr* definition = in->definition();
    if (definition == nullptr || !isMovable(in) || !isReadOnce(in) || in->hasAllocation()) {
      return;
    }
    if (isPlainAdd(definition, states_)) {
      inTrees_.insert(definition->id());
      collectTerms(definition, linear, terms);
    } else if (isLinear(definition)) {
      inTrees_.insert(definition->id());
      linear.insert(linear.begin(), definition);
      collect(definition->tensorInputs()[0], std::move(linear), terms);
    } else if (addsContributions(definition) && isReadOnce(definition->input(0))) {
      terms.push_back({definition, std::move(linear)});
    }
  }

  // The terms that can be added before their contributions are combined.
  bool combineTogether(Expr* root, std::vector<Term>& terms) {
    std::map<std::string, std::vector<const Term*>> alike;  // by the state of contributions
    for (Term& term : terms) {
      makeContributions(term);
      if (term.contributions != nullptr) {
        alike[shardState(term.contributions).toString() + " " + std::to_string(term.contributions->partialDim())]
            .push_back(&term);
      }
    }
    const TensorView* result = root->tensorOutput();
    const int64_t rootId = root->id();
    const auto isThere = [&] { return result->definition() != nullptr && result->definition()->id() == rootId; };
    bool changed = false;
    std::set<const Term*> added;
    for (const auto& [state, together] : alike) {
      // a tree that became one sum has no root any more
      if (together.size() > 1 && isThere() && saves(root, together)) {
        addFirst(root, together);
        added.insert(together.begin(), together.end());
        changed = true;
      }
    }
    for (const Term& term : terms) {
      if (!added.contains(&term)) {
        for (Expr* e : std::views::reverse(term.made)) {
          fusion_.removeExpr(e);
        }
      }
    }
    return changed;
  }

  static void makeContributions(Term& term) {
    TensorView* at = term.combination->input(0)->asTensor();
    for (const Expr* op : term.linear) {
      at = ofContributions(op, at);
      if (at == nullptr) {
        return;
      }
      term.made.push_back(at->definition());
    }
    term.contributions = at;
  }

  // Sums in a wider type, or of more elements, must not receive more bytes than before.
  bool saves(const Expr* root, const std::vector<const Term*>& terms) const {
    ReshardCost apart;
    for (const Term* term : terms) {
      apart += costOf(plans_, term->combination);
    }
    const TensorView* result = root->tensorOutput();
    return costOf(plans_, shardState(terms[0]->contributions), shardState(result), result).bytes <= apart.bytes;
  }

  void addFirst(Expr* root, const std::vector<const Term*>& terms) {
    const auto plain = std::ranges::find_if(terms, [](const Term* term) { return term->linear.empty(); });
    const ShardState wanted = shardState(root->tensorOutput());
    TensorView* total = nullptr;
    std::set<int64_t> gone;  // tensors of the tree
    for (const Term* term : terms) {
      total = total == nullptr ? term->contributions : add(total, term->contributions);
      if (plain == terms.end() || term != *plain) {
        gone.insert(term->combination->output()->id());
      }
    }
    TensorView* sum = combine(total, wanted);
    if (plain != terms.end()) {
      TensorView* was = (*plain)->combination->tensorOutput();
      fusion_.removeExpr((*plain)->combination);
      takePlace(was, sum);
      sum = nullptr;
    }
    putInto(root, sum, gone);
  }

  // The tree without the tensors that are gone, and with `sum`, if it is not null, as one more term.
  void putInto(Expr* root, TensorView* sum, const std::set<int64_t>& gone) {
    TensorView* result = root->tensorOutput();
    std::vector<TensorView*> terms = termsWithout(root, gone);
    if (sum != nullptr && terms.size() == 2) {
      TensorView*& term = isPlainTerm(terms[0], result, states_) ? terms[0] : terms[1];
      term = plainSum(term, sum);
    } else if (sum != nullptr) {
      terms.push_back(sum);
    }
    if (terms.size() == 2) {
      fusion_.replaceInput(root, 0, terms[0]);
      fusion_.replaceInput(root, 1, terms[1]);
      return;
    }
    TensorView* left = inPlaceOf(result, terms[0]);
    fusion_.removeExpr(root);
    if (result->isFusionOutput() || result->isUserSharded()) {
      takePlace(result, left);
    } else {
      fusion_.replaceUses(result, left);
    }
  }

  std::vector<TensorView*> termsWithout(Expr* op, const std::set<int64_t>& gone) {
    auto left = mapped(op->tensorInputs(), [&](TensorView* in) { return without(in, gone); });
    std::erase(left, nullptr);
    return left;
  }

  // The rest of a tensor of the tree; null if no term is left.
  TensorView* without(TensorView* tv, const std::set<int64_t>& gone) {
    Expr* definition = tv->definition();
    if (gone.contains(tv->id())) {
      fusion_.removeExpr(definition);
      return nullptr;
    }
    if (definition == nullptr || !inTrees_.contains(definition->id())) {
      return tv;
    }
    const std::vector<TensorView*> left = termsWithout(definition, gone);
    if (left.size() < definition->tensorInputs().size()) {
      TensorView* rest = left.empty() ? nullptr : inPlaceOf(tv, left[0]);
      fusion_.removeExpr(definition);
      return rest;
    }
    size_t next = 0;
    for (const int64_t operand : definition->tensorPositions()) {
      fusion_.replaceInput(definition, operand, left[next++]);
    }
    return tv;
  }

  // A term alone has the shape that the sum had.
  static TensorView* inPlaceOf(const TensorView* sum, TensorView* term) {
    if (sameShape(term, sum)) {
      return term;
    }
    return plainOp(ExprKind::Expand, {term}, sum, sum->dtype(), shardState(sum));
  }

  static TensorView* plainSum(TensorView* a, TensorView* b) {
    return plainOp(ExprKind::Point, {a, b}, a, a->dtype(), shardState(a), {.point = PointOp::Add});
  }

  // Contribution by contribution.
  static TensorView* add(TensorView* a, TensorView* b) {
    return placedOp(ExprKind::Point, {a, b}, a->dtype(), dimsOf(a), shardState(a), {.point = PointOp::Add});
  }

  Fusion& fusion_;
  PlanMemo& plans_;
  ShardStateMemo& states_;
  std::set<int64_t> inTrees_;  // additions and linear ops below a root
};

}  // namespace

bool addPartialSums(Fusion& fusion, PassContext& context) {
  return SumTrees(fusion, context.memo<PlanMemo>(), context.memo<ShardStateMemo>()).run();
}

}  // namespace meshfuse
