#include "preseg_passes/reshard_sums.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

namespace {

bool sameShape(const TensorView* a, const TensorView* b) {
  return std::ranges::equal(a->noReductions(), b->noReductions(), [](const IterDomain* x, const IterDomain* y) {
    return x->extent() == y->extent() && x->iterType() == y->iterType();
  });
}

// A term of a sum in the place and type of its result.
bool isPlainTerm(const TensorView* in, const TensorView* out) {
  return in->dtype() == out->dtype() && sameShape(in, out) && in->getDeviceMesh() == out->getDeviceMesh() &&
         provenEqual(shardState(in), shardState(out));
}

// Of two tensors, one of which may be stretched.
bool isPlainAdd(const Expr* e) {
  if (e == nullptr || e->kind() != ExprKind::Point || e->attributes().point != PointOp::Add ||
      e->tensorInputs().size() != 2 || e->input(0) == e->input(1)) {
    return false;
  }
  const TensorView* out = e->tensorOutput();
  return out->hasDeviceMesh() && dataTypeSize(out->dtype()) >= 4 && partialDim(out) < 0 &&
         std::ranges::any_of(e->tensorInputs(), [&](const TensorView* in) { return isPlainTerm(in, out); }) &&
         std::ranges::all_of(e->tensorInputs(),
                             [&](const TensorView* in) { return isPlainTerm(in, out) || !sameShape(in, out); });
}

bool isScalar(const Val* val) { return !val->isTensor(); }

// Of one tensor, element by element, and the same for a sum as for its terms added up: without more rounding, if the type is one in
// which sums may be in another order.
bool isLinear(const Expr* e) {
  if (e == nullptr || e->tensorInputs().size() != 1 || !e->output()->isTensor()) {
    return false;
  }
  const TensorView* in = e->tensorInputs()[0];
  const TensorView* out = e->tensorOutput();
  const bool widens = e->kind() == ExprKind::Cast && isFloatingPoint(in->dtype()) && isFloatingPoint(out->dtype()) &&
                      dataTypeSize(out->dtype()) > dataTypeSize(in->dtype());
  const PointOp op = e->attributes().point;
  const bool scales = e->kind() == ExprKind::Point && in->dtype() == out->dtype() &&
                      (op == PointOp::Neg || (op == PointOp::Mul && (isScalar(e->input(0)) || isScalar(e->input(1)))) ||
                       (op == PointOp::Div && isScalar(e->input(1)) && isFloatingPoint(out->dtype())));
  return (widens || scales) && out->hasDeviceMesh() && dataTypeSize(out->dtype()) >= 4 && partialDim(out) < 0 &&
         in->getDeviceMesh() == out->getDeviceMesh() && provenEqual(shardState(in), shardState(out));
}

bool isReadOnce(const Val* val) { return val->fusion().uses(val).size() == 1; }

class SumTrees {
 public:
  explicit SumTrees(Fusion& fusion) : fusion_(fusion) {}

  bool run() {
    bool changed = false;
    std::vector<int> adds;
    for (const Expr* e : fusion_.exprs()) {
      if (isPlainAdd(e)) {
        adds.push_back(e->id());
      }
    }
    // from the last one on: a tree begins at its root
    for (auto id = adds.rbegin(); id != adds.rend(); ++id) {
      Expr* e = inTrees_.contains(*id) ? nullptr : fusion_.expr(*id);
      if (e == nullptr || !isPlainAdd(e)) {
        continue;
      }
      std::map<std::string, std::vector<Term>> sums;  // terms by the state of what is combined
      collectTerms(e, {}, sums);
      for (const auto& [state, terms] : sums) {
        // a tree that became one sum has no root any more
        if (terms.size() > 1 && fusion_.expr(*id) == e && saves(terms)) {
          addFirst(e, terms);
          changed = true;
        }
      }
    }
    return changed;
  }

 private:
  // A combination of sums among the leaves of a tree, and the linear ops between it and the root, from the leaf up.
  struct Term {
    Expr* combination;
    std::vector<const Expr*> linear;
  };

  void collectTerms(const Expr* add, const std::vector<const Expr*>& linear,
                    std::map<std::string, std::vector<Term>>& sums) {
    for (TensorView* in : add->tensorInputs()) {
      if (isPlainTerm(in, add->tensorOutput())) {
        collect(in, linear, sums);
      }
    }
  }

  void collect(TensorView* in, std::vector<const Expr*> linear, std::map<std::string, std::vector<Term>>& sums) {
    Expr* definition = in->definition();
    if (definition == nullptr || !isMovable(in) || !isReadOnce(in) || in->hasAllocation()) {
      return;
    }
    if (isPlainAdd(definition)) {
      inTrees_.insert(definition->id());
      collectTerms(definition, linear, sums);
    } else if (isLinear(definition)) {
      inTrees_.insert(definition->id());
      linear.insert(linear.begin(), definition);
      collect(definition->tensorInputs()[0], std::move(linear), sums);
    } else if (isOneMeshReshard(definition) && partialDim(definition->input(0)->asTensor()) >= 0 &&
               definition->attributes().reduce == ReduceOp::Sum && isReadOnce(definition->input(0))) {
      const TensorView* partial = definition->input(0)->asTensor();
      sums[shardState(partial).toString() + " " + std::to_string(partialDim(partial))].push_back(
          {definition, std::move(linear)});
    }
  }

  // Sums in a wider type are not to take more bytes than those in narrower ones did.
  static bool saves(const std::vector<Term>& terms) {
    ReshardCost apart;
    for (const Term& term : terms) {
      apart += costOf(term.combination);
    }
    const Expr* first = terms[0].combination;
    const DataType type =
        terms[0].linear.empty() ? first->output()->dtype() : terms[0].linear.back()->output()->dtype();
    return costOf(shardState(first->input(0)->asTensor()), shardState(first->tensorOutput()), type).bytes <=
           apart.bytes;
  }

  void addFirst(Expr* root, const std::vector<Term>& terms) {
    const auto plain = std::ranges::find_if(terms, [](const Term& term) { return term.linear.empty(); });
    const ShardState wanted = shardState(root->tensorOutput());
    TensorView* total = nullptr;
    std::set<int> gone;  // tensors of the tree
    for (const Term& term : terms) {
      TensorView* partial = term.combination->input(0)->asTensor();
      for (const Expr* op : term.linear) {
        partial = applied(op, partial);
      }
      total = total == nullptr ? partial : add(total, partial);
      if (plain == terms.end() || term.combination != plain->combination) {
        gone.insert(term.combination->output()->id());
      }
    }
    TensorView* sum = combine(total, wanted, ReduceOp::Sum);
    if (plain != terms.end()) {
      TensorView* was = plain->combination->tensorOutput();
      fusion_.removeExpr(plain->combination);
      takePlace(was, sum);
      sum = nullptr;
    }
    putInto(root, sum, gone);
  }

  // The tree without the tensors that are gone, and with `sum`, if it is not null, as one more term.
  void putInto(Expr* root, TensorView* sum, const std::set<int>& gone) {
    TensorView* result = root->tensorOutput();
    std::vector<TensorView*> terms = termsWithout(root, gone);
    if (sum != nullptr && terms.size() == 2) {
      TensorView*& term = isPlainTerm(terms[0], result) ? terms[0] : terms[1];
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
    if (result->isFusionOutput() || result->isPinned()) {
      takePlace(result, left);
    } else {
      fusion_.replaceUses(result, left);
    }
  }

  std::vector<TensorView*> termsWithout(Expr* op, const std::set<int>& gone) {
    std::vector<TensorView*> left;
    for (TensorView* in : op->tensorInputs()) {
      if (TensorView* term = without(in, gone)) {
        left.push_back(term);
      }
    }
    return left;
  }

  // What is left of a tensor of the tree; null if that is nothing.
  TensorView* without(TensorView* tv, const std::set<int>& gone) {
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
    for (size_t k = 0; k < definition->inputs().size(); k++) {
      if (definition->input(static_cast<int>(k))->isTensor()) {
        fusion_.replaceInput(definition, static_cast<int>(k), left[next++]);
      }
    }
    return tv;
  }

  // A term alone has the shape that the sum had.
  TensorView* inPlaceOf(const TensorView* sum, TensorView* term) {
    if (sameShape(term, sum)) {
      return term;
    }
    TensorView* whole = plainTensor(sum, sum->dtype(), shardState(sum));
    fusion_.addExpr(ExprKind::Expand, {term}, {whole});
    return whole;
  }

  TensorView* plainSum(TensorView* a, TensorView* b) {
    TensorView* sum = plainTensor(a, a->dtype(), shardState(a));
    ExprAttributes attributes;
    attributes.point = PointOp::Add;
    fusion_.addExpr(ExprKind::Point, {a, b}, {sum}, attributes);
    return sum;
  }

  // Contributions to a sum stay contributions: the definition says so.
  static TensorView* made(ExprKind kind, const std::vector<Val*>& operands, const TensorView* partial, DataType type,
                          const ExprAttributes& attributes) {
    Fusion& fusion = partial->fusion();
    TensorView* out = fusion.tensor(type, dimsOf(partial));
    fusion.addExpr(kind, operands, {out}, attributes);
    setShardState(out, shardState(partial));
    return out;
  }
  static TensorView* add(TensorView* a, TensorView* b) {
    ExprAttributes attributes;
    attributes.point = PointOp::Add;
    return made(ExprKind::Point, {a, b}, a, a->dtype(), attributes);
  }
  static TensorView* applied(const Expr* op, TensorView* partial) {
    std::vector<Val*> operands = op->inputs();
    std::ranges::replace_if(
        operands, [](const Val* v) { return v->isTensor(); }, partial);
    return made(op->kind(), operands, partial, op->output()->dtype(), op->attributes());
  }

  Fusion& fusion_;
  std::set<int> inTrees_;  // additions and linear ops below a root
};

}  // namespace

bool addPartialSums(Fusion& fusion) { return SumTrees(fusion).run(); }

}  // namespace meshfuse
