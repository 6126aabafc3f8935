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

// Of two tensors in the place and type of its result, none of them stretched.
bool isPlainAdd(const Expr* e) {
  if (e == nullptr || e->kind() != ExprKind::Point || e->attributes().point != PointOp::Add ||
      e->tensorInputs().size() != 2 || e->input(0) == e->input(1)) {
    return false;
  }
  const TensorView* out = e->tensorOutput();
  return out->hasDeviceMesh() && dataTypeSize(out->dtype()) >= 4 && partialDim(out) < 0 &&
         std::ranges::all_of(e->tensorInputs(), [&](const TensorView* in) {
           return in->dtype() == out->dtype() && sameShape(in, out) && in->getDeviceMesh() == out->getDeviceMesh() &&
                  provenEqual(shardState(in), shardState(out));
         });
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
      const Expr* e = inTrees_.contains(*id) ? nullptr : fusion_.expr(*id);
      if (e == nullptr || !isPlainAdd(e)) {
        continue;
      }
      std::map<std::string, std::vector<Expr*>> sums;  // combinations by the state of what they combine
      collect(e, sums);
      for (const auto& [state, combinations] : sums) {
        if (combinations.size() > 1) {
          addFirst(combinations);
          changed = true;
        }
      }
    }
    return changed;
  }

 private:
  // The combinations of sums among the leaves of the tree under `add`.
  void collect(const Expr* add, std::map<std::string, std::vector<Expr*>>& sums) {
    for (TensorView* in : add->tensorInputs()) {
      Expr* definition = in->definition();
      if (definition == nullptr || !isMovable(in) || !isReadOnce(in) || in->hasAllocation()) {
        continue;
      }
      if (isPlainAdd(definition)) {
        inTrees_.insert(definition->id());
        collect(definition, sums);
      } else if (isOneMeshReshard(definition) && partialDim(definition->input(0)->asTensor()) >= 0 &&
                 definition->attributes().reduce == ReduceOp::Sum && isReadOnce(definition->input(0))) {
        const TensorView* partial = definition->input(0)->asTensor();
        sums[shardState(partial).toString() + " " + std::to_string(partialDim(partial))].push_back(definition);
      }
    }
  }

  void addFirst(const std::vector<Expr*>& combinations) {
    TensorView* first = combinations[0]->tensorOutput();
    const ShardState wanted = shardState(first);
    TensorView* total = combinations[0]->input(0)->asTensor();
    for (size_t k = 1; k < combinations.size(); k++) {
      TensorView* partial = combinations[k]->input(0)->asTensor();
      total = add(total, partial);
      // its sum is in the total: the addition of it falls away
      TensorView* combined = combinations[k]->tensorOutput();
      Expr* reader = fusion_.uses(combined)[0];
      TensorView* other = reader->input(reader->input(0) == combined ? 1 : 0)->asTensor();
      TensorView* result = reader->tensorOutput();
      fusion_.removeExpr(reader);
      takePlaceOf(result, other);
      fusion_.removeExpr(combinations[k]);
    }
    TensorView* sum = combine(total, wanted, ReduceOp::Sum);
    fusion_.removeExpr(combinations[0]);
    takePlace(first, sum);
  }

  static TensorView* add(TensorView* a, TensorView* b) {
    Fusion& fusion = a->fusion();
    TensorView* sum = fusion.tensor(a->dtype(), dimsOf(a));
    ExprAttributes attributes;
    attributes.point = PointOp::Add;
    fusion.addExpr(ExprKind::Point, {a, b}, {sum}, attributes);
    setShardState(sum, shardState(a));  // of which the definition says that it counts contributions
    return sum;
  }

  // The other operand of an addition is a part of the tree, and nobody else reads it, where the result is to stay what it is.
  void takePlaceOf(TensorView* result, TensorView* other) {
    if (result->isFusionOutput() || result->isPinned()) {
      takePlace(result, other);
    } else {
      fusion_.replaceUses(result, other);
    }
  }

  Fusion& fusion_;
  std::set<int> inTrees_;  // additions below a root
};

}  // namespace

bool addPartialSums(Fusion& fusion) { return SumTrees(fusion).run(); }

}  // namespace meshfuse
