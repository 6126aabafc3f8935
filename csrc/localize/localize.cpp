#include "localize/localize.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "localize/layout.h"
#include "localize/ops.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/relation.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "preseg_passes/pack_redistributions.h"

namespace meshfuse {

namespace {

class Localizer {
 public:
  Localizer(const Fusion& global, int64_t rank)
      : global_(global),
        symbols_(global),
        at_{rank, &symbols_},
        local_(std::make_unique<Fusion>()),
        cloner_(global, *local_, {}, FusionCloner::Numbers::Kept),
        windows_(global, *local_) {}

  // values_ has null for tensors that are on other ranks only: this rank does not compute them.
  std::unique_ptr<Fusion> run() {
    for (const int64_t k : indices(global_.inputs())) {
      Val* in = global_.inputs()[k];
      local_->addInput(in->isTensor() ? input(in->asTensor()) : cloner_.clone(in), global_.inputNames()[k]);
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
      } else {
        define(e->tensorOutput(), isHere(e->tensorOutput()) ? op(e) : nullptr);
      }
    }
    std::map<int64_t, TensorView*> outputs;
    for (const int64_t k : indices(global_.outputs())) {
      Val* out = global_.outputs()[k];
      TensorView*& local = outputs[out->id()];
      if (local == nullptr) {
        local = output(out->asTensor());
        if (isHere(out->asTensor())) {
          local->copyAllocation(*out->asTensor());
        }
        local = standsFor(out->asTensor(), local);
      }
      local_->addOutput(local, global_.outputNames()[k]);
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

  static std::vector<int64_t> emptyShapeOf(const TensorView* tv) { return shapeOfNothing(tv->noReductions().size()); }

  // The argument of a tensor that is on other ranks only is empty.
  TensorView* input(const TensorView* tv) {
    const bool here = isHere(tv);
    TensorView* out =
        local_->tensor(tv->dtype(), here ? localDims(tv, states_.state(tv), at_.rank) : localDims(emptyShapeOf(tv)));
    if (here) {
      out->copyAllocation(*tv);
    }
    inputs_[tv->id()] = standsFor(tv, out);
    values_[tv->id()] = here ? out : nullptr;
    return out;
  }

  // An output has a definition of its own, so that no output's memory is an input's or another output's.
  TensorView* output(const TensorView* global) {
    TensorView* tv = values_.at(global->id());
    if (tv == nullptr) {
      return nothing(*local_, global->dtype(), emptyShapeOf(global));
    }
    const bool isTaken = tv->isFusionInput() || tv->isFusionOutput();
    return isTaken ? local_->addOp(ExprKind::Set, {tv}, tv->dtype(), dimsOf(tv)) : tv;
  }

  TensorView* redistribute(const Expr* e) {
    const TensorView* from = e->input(0)->asTensor();
    const ShardState held = states_.state(from);
    const ShardState wanted = states_.state(e->tensorOutput());
    TensorView* at = values_.at(from->id());
    if (held.mesh.empty()) {
      return isHere(e->tensorOutput()) ? cut(at, held, wanted, at_) : nullptr;
    }
    MovedTensor moved{from->dtype(), mapped(wanted.dims, [](const DigitList& dim) { return dim.extent(); }),
                      e->attributes().reduce, 0, global_};
    if (contains(moved.extents, IntExpr(0))) {
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
    const int64_t first = local_->numExprs();
    std::vector<TensorView*> results = mapped(redistributes, [this](const Expr* e) { return redistribute(e); });
    packCommunications(*local_, first, results);
    for (int64_t k = 0; k < std::ssize(results); k++) {
      define(redistributes[k]->tensorOutput(), results[k]);
    }
  }

  TensorView* window(const Expr* e) {
    const auto held = mapped(e->tensorInputs(), [this](const TensorView* in) { return values_.at(in->id()); });
    Val* fill = e->kind() == ExprKind::Pad ? cloner_.clone(e->input(1)) : nullptr;
    return windows_.emit({e, held, fill, at_}, communications_);
  }

  // An op whose operands and results have no mesh is the same on every rank.
  static bool isPlaced(const Expr* e) {
    return e->tensorOutput()->hasDeviceMesh() || std::ranges::any_of(e->tensorInputs(), &TensorView::hasDeviceMesh);
  }

  TensorView* op(const Expr* e) {
    const TensorView* result = e->tensorOutput();
    if (!isPlaced(e)) {
      for (const TensorView* in : e->tensorInputs()) {
        cloner_.set(in, values_.at(in->id()));
      }
      return cloner_.clone(e)->tensorOutput();
    }
    LocalOp op{e, result, states_.state(result), {}, {}, at_};
    for (int64_t k = 0; k < std::ssize(e->inputs()); k++) {
      Val* in = e->input(k);
      if (!in->isTensor()) {
        op.operands.push_back(cloner_.clone(in));
        op.needed.emplace_back();
        continue;
      }
      Edge edge = edgeRelation(e, k, result, states_);
      if (edge.relation == EdgeRelation::Comm || !edge.needed) {
        throwInternalError(fmt::format("[localize] the edge {} -> {} communicates: {}; run decompose-reshardings",
                                       in->toString(), result->toString(), edge.reason));
      }
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
  ShardStateMemo states_;
  std::map<int64_t, TensorView*> values_;                          // by id of the global tensor
  std::map<int64_t, TensorView*> inputs_;                          // the same; also what is on other ranks
  int64_t communications_ = 0;                                     // of all ranks
  std::map<std::pair<int64_t, std::string>, TensorView*> slices_;  // (tensor, needed state)
};

}  // namespace

std::unique_ptr<Fusion> localize(const Fusion& global, int64_t rank) { return Localizer(global, rank).run(); }

}  // namespace meshfuse
