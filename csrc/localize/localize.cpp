#include "localize/localize.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "localize/layout.h"
#include "localize/ops.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/relation.h"
#include "preseg_passes/pack_redistributions.h"

namespace meshfuse {

namespace {

class Localizer {
 public:
  Localizer(const Fusion& global, const HaloExchanges& halos, int64_t rank)
      : global_(global),
        symbols_(global),
        at_{rank, &symbols_},
        local_(std::make_unique<Fusion>()),
        cloner_(global, *local_, {}, FusionCloner::Numbers::Kept),
        windows_(halos, *local_) {}

  // values_ has null for tensors that are on other ranks only: this rank does not compute them.
  std::unique_ptr<Fusion> run() {
    for (Val* in : global_.inputs()) {
      if (in->isTensor()) {
        local_->addInput(input(in->asTensor()));
      } else {
        local_->addInput(cloner_.clone(in));
      }
    }
    for (const std::vector<Expr*>& step : inPackedOrder(global_)) {
      const Expr* e = step[0];
      if (step.size() > 1) {
        redistributeAsOne(step);
      } else if (!e->output()->isTensor()) {
        cloner_.clone(e);
      } else if (e->kind() == ExprKind::Redistribute) {
        define(e->tensorOutput(), redistribute(e));
      } else if (exchangesHalo(e)) {
        define(e->tensorOutput(), window(e));
      } else if (isHere(e->tensorOutput())) {
        define(e->tensorOutput(), op(e));
      } else {
        define(e->tensorOutput(), nullptr);
      }
    }
    std::map<int, TensorView*> outputs;
    for (Val* out : global_.outputs()) {
      if (outputs.count(out->id()) > 0) {
        local_->addOutput(outputs.at(out->id()));
        continue;
      }
      TensorView* local = output(out->asTensor());
      if (isHere(out->asTensor())) {
        local->copyAllocation(*out->asTensor());
      }
      outputs[out->id()] = standsFor(out->asTensor(), local);
      local_->addOutput(outputs.at(out->id()));
    }
    for (const auto& [out, in] : global_.aliases()) {
      local_->aliasOutputToInput(outputs.at(out->id()), inputs_.at(in->id()));
    }
    return std::move(local_);
  }

 private:
  bool isHere(const TensorView* tv) const { return holds(tv->getDeviceMesh(), at_.rank); }

  void define(const TensorView* global, TensorView* local) {
    values_[global->id()] = local == nullptr ? nullptr : standsFor(global, local);
  }

  // The local part of `global` gets its number and memory order. A local tensor that exists already, such as an input, keeps its own.
  TensorView* standsFor(const TensorView* global, TensorView* local) {
    if (local->id() >= global_.numVals()) {
      local_->renumber(local, global->id());
    }
    if (global->hasAllocation() && !local->isFusionInput() && isHere(global)) {
      local->copyAllocation(*global);
    }
    return local;
  }

  // The argument of a tensor that is on other ranks only is empty.
  TensorView* input(const TensorView* tv) {
    const size_t dims = tv->noReductions().size();
    TensorView* out = isHere(tv) ? local_->tensor(tv->dtype(), localDims(tv, shardState(tv), at_.rank))
                                 : localTensor(*local_, tv->dtype(), shapeOfNothing(dims));
    if (isHere(tv)) {
      out->copyAllocation(*tv);
    }
    out = standsFor(tv, out);
    values_[tv->id()] = isHere(tv) ? out : nullptr;
    inputs_[tv->id()] = out;
    return out;
  }

  // An output has a definition of its own, so that no output's memory is an input's or another output's.
  TensorView* output(const TensorView* global) {
    TensorView* tv = values_.at(global->id());
    if (tv == nullptr) {
      return nothing(*local_, global->dtype(), shapeOfNothing(global->noReductions().size()));
    }
    if (!tv->isFusionInput() && !tv->isFusionOutput()) {
      return tv;
    }
    TensorView* copy = local_->tensor(tv->dtype(), dimsOf(tv));
    local_->addExpr(ExprKind::Set, {tv}, {copy});
    return copy;
  }

  TensorView* redistribute(const Expr* e) {
    const TensorView* from = e->input(0)->asTensor();
    const ShardState held = shardState(from);
    const ShardState wanted = shardState(e->tensorOutput());
    TensorView* at = values_.at(from->id());
    if (held.mesh.empty()) {
      return isHere(e->tensorOutput()) ? cut(at, held, wanted, at_) : nullptr;
    }
    MovedTensor moved{from->dtype(), wanted.constantShape(), e->attributes().reduce, 0};
    if (std::ranges::count(moved.extents, 0) > 0) {
      return isHere(e->tensorOutput()) ? nothing(*local_, from->dtype(), heldPart(wanted, at_.rank).sizes()) : nullptr;
    }
    invariant(e->attributes().plan.has_value(), "[localize] {} has no plan; run plan-redistributions",
              e->output()->toString());
    for (const CommStep& step : *e->attributes().plan) {
      moved.number = communications_;
      communications_ += step.communicates() ? 1 : 0;
      at = emitStep(*local_, at, step, moved, at_);
    }
    return isHere(e->tensorOutput()) ? at : nullptr;
  }

  void redistributeAsOne(const std::vector<Expr*>& redistributes) {
    const int first = local_->numExprs();
    std::vector<TensorView*> results;
    for (const Expr* e : redistributes) {
      results.push_back(redistribute(e));
    }
    packCommunications(*local_, first, results);
    for (size_t k = 0; k < results.size(); k++) {
      define(redistributes[k]->tensorOutput(), results[k]);
    }
  }

  TensorView* window(const Expr* e) {
    WindowOp op{e, {}, nullptr, at_};
    for (Val* in : e->inputs()) {
      if (in->isTensor()) {
        op.operands.push_back(values_.at(in->id()));
      } else {
        op.fill = cloner_.clone(in);
      }
    }
    return windows_.emit(op, communications_);
  }

  // An op whose operands and results have no mesh is the same on every rank.
  static bool isPlaced(const Expr* e) {
    return e->tensorOutput()->hasDeviceMesh() || std::any_of(e->inputs().begin(), e->inputs().end(), [](Val* in) {
             return in->isTensor() && in->asTensor()->hasDeviceMesh();
           });
  }

  TensorView* op(const Expr* e) {
    const TensorView* result = e->tensorOutput();
    if (!isPlaced(e)) {
      for (Val* in : e->inputs()) {
        if (in->isTensor()) {
          cloner_.set(in, values_.at(in->id()));
        }
      }
      return cloner_.clone(e)->tensorOutput();
    }
    LocalOp op{e, result, shardState(result), {}, {}, at_};
    for (size_t k = 0; k < e->inputs().size(); k++) {
      Val* in = e->input(static_cast<int>(k));
      if (!in->isTensor()) {
        op.operands.push_back(cloner_.clone(in));
        op.needed.emplace_back();
        continue;
      }
      Edge edge = edgeRelation(e, static_cast<int>(k), result);
      invariant(edge.relation != EdgeRelation::Comm && edge.needed,
                "[localize] the edge {} -> {} communicates: {}; run decompose-reshardings", in->toString(),
                result->toString(), edge.reason);
      TensorView* local = values_.at(in->id());
      if (edge.relation == EdgeRelation::Local) {
        TensorView*& sliced = slices_[{in->id(), edge.needed->toString()}];
        if (sliced == nullptr) {
          sliced = cut(local, edge.held, *edge.needed, at_);
        }
        local = sliced;
      }
      op.operands.push_back(local);
      op.needed.push_back(std::move(*edge.needed));
    }
    return emitLocalOp(*local_, op);
  }

  const Fusion& global_;
  const CoordinateSymbols symbols_;
  const LocalRank at_;
  std::unique_ptr<Fusion> local_;
  FusionCloner cloner_;
  WindowEmitter windows_;
  std::map<int, TensorView*> values_;                          // by id of the global tensor
  std::map<int, TensorView*> inputs_;                          // the same; also what is on other ranks
  int64_t communications_ = 0;                                 // of all ranks
  std::map<std::pair<int, std::string>, TensorView*> slices_;  // (tensor, needed state)
};

}  // namespace

std::unique_ptr<Fusion> localize(const Fusion& global, const HaloExchanges& halos, int64_t rank) {
  return Localizer(global, halos, rank).run();
}

}  // namespace meshfuse
