#include "preseg_passes/localize_fusion.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/planner.h"
#include "multidevice/sharding/relation.h"
#include "preseg_passes/local_layout.h"
#include "preseg_passes/local_ops.h"

namespace meshfuse {

namespace {

class Localizer {
 public:
  Localizer(const Fusion& global, int64_t rank)
      : global_(global),
        rank_(rank),
        local_(std::make_unique<Fusion>()),
        cloner_(global, *local_, {}, FusionCloner::Numbers::Kept) {}

  std::unique_ptr<Fusion> run() {
    for (Val* in : global_.inputs()) {
      if (in->isTensor()) {
        values_[in->id()] = standsFor(in->asTensor(), input(in->asTensor()));
      } else {
        scalars_[in->id()] = cloner_.clone(in);
      }
      local_->addInput(in->isTensor() ? values_.at(in->id()) : scalars_.at(in->id()));
    }
    for (const Expr* e : global_.exprs()) {
      if (!e->output()->isTensor()) {
        cloner_.clone(e);
      } else if (e->kind() == ExprKind::Redistribute) {
        values_[e->output()->id()] = standsFor(e->tensorOutput(), redistribute(e));
      } else {
        values_[e->output()->id()] = standsFor(e->tensorOutput(), op(e));
      }
    }
    std::map<int, TensorView*> outputs;
    for (Val* out : global_.outputs()) {
      if (outputs.count(out->id()) > 0) {
        local_->addOutput(outputs.at(out->id()));
        continue;
      }
      TensorView* local = output(values_.at(out->id()));
      local->copyAllocation(*out->asTensor());
      outputs[out->id()] = standsFor(out->asTensor(), local);
      local_->addOutput(outputs.at(out->id()));
    }
    for (const auto& [out, in] : global_.aliases()) {
      local_->aliasOutputToInput(outputs.at(out->id()), values_.at(in->id()));
    }
    return std::move(local_);
  }

 private:
  // What a rank holds of `global` has its number and its order in memory; but a tensor that is there already keeps what it has:
  // an input, what is moved nowhere.
  TensorView* standsFor(const TensorView* global, TensorView* local) {
    if (local->id() >= global_.numVals()) {
      local_->renumber(local, global->id());
    }
    if (global->hasAllocation() && !local->isFusionInput()) {
      local->copyAllocation(*global);
    }
    return local;
  }

  TensorView* input(const TensorView* tv) {
    const ShardState state = shardState(tv);
    const std::vector<IntExpr> shape = localExtents(state, rank_);
    const std::vector<IterDomain*> stored = tv->noReductions();
    std::vector<Dim> dims;
    for (size_t k = 0; k < stored.size(); k++) {
      dims.push_back(localDim(shape[k], stored[k]->iterType()));
    }
    TensorView* out = local_->tensor(tv->dtype(), dims);
    out->copyAllocation(*tv);
    return out;
  }

  // An output has a definition of its own, so that no output's memory is an input's or another output's.
  TensorView* output(TensorView* tv) {
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
      return cut(at, ShardState::replicated(wanted.mesh, from->shape()), wanted);
    }
    std::vector<int64_t> extents;
    for (const DigitList& dim : wanted.dims) {
      extents.push_back(dim.extent().constValue());
    }
    if (std::ranges::count(extents, 0) > 0) {
      return nothing(at, wanted);
    }
    std::vector<std::string> emitted;
    for (const CommStep& step : planRedistribution(held, wanted).steps) {
      at = emitStep(at, step, e->attributes().reduce, extents, rank_);
      emitted.push_back(step.toString());
    }
    const std::vector<std::string>& planned = e->attributes().plan;
    invariant(planned.empty() || planned == emitted, "[localize] {} was planned as [{}], its shardings now need [{}]",
              e->output()->toString(), fmt::join(planned, ", "), fmt::join(emitted, ", "));
    return at;
  }

  // A part of a tensor without elements.
  TensorView* nothing(TensorView* tv, const ShardState& wanted) {
    std::vector<Dim> dims;
    for (const IntExpr& extent : localExtents(wanted, rank_)) {
      dims.push_back(localDim(extent, IterType::Iteration));
    }
    TensorView* out = local_->tensor(tv->dtype(), dims);
    local_->addExpr(ExprKind::Full, {zeroOf(*local_, tv->dtype())}, {out});
    return out;
  }

  // What is left of `tv`, held at `held`, for an op that needs less of it.
  TensorView* cut(TensorView* tv, ShardState held, const ShardState& needed) {
    if (needed.mesh.empty()) {
      return tv;
    }
    if (held.mesh.empty() ||
        !(held.mesh == needed.mesh)) {  // replicated on all ranks of `needed`, as the edge is not Comm
      std::vector<IntExpr> shape;
      for (const DigitList& dim : held.dims) {
        shape.push_back(dim.extent());
      }
      held = ShardState::replicated(needed.mesh, shape);
    }
    if (isRagged(held) || isRagged(needed)) {
      const IndexBlock all = localIndices(held, rank_);
      const IndexBlock some = localIndices(needed, rank_);
      IndexBlock positions;
      for (size_t k = 0; k < all.size(); k++) {
        positions.push_back(positionsIn(all[k], some[k]));
      }
      return takeBlock(tv, positions);
    }
    std::optional<AtomPair> pair = atomPair(held, needed, AtomLevel::Axis);
    invariant(pair.has_value(), "[localize] the digits of {} and {} do not nest", held.toString(), needed.toString());
    std::vector<IntExpr> coordinates;
    for (size_t atom = 0; atom < pair->origins.size(); atom++) {
      coordinates.push_back(
          coordinate(needed.mesh, pair->origins[atom], pair->mesh.axisSize(static_cast<int>(atom)).constValue()));
    }
    return sliceOwned(tv, pair->from, pair->to, coordinates);
  }

  // An op without a mesh around it is the same on every rank.
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
    LocalOp op{e, result, shardState(result), {}, {}, rank_};
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
          sliced = cut(local, edge.held, *edge.needed);
        }
        local = sliced;
      }
      op.operands.push_back(local);
      op.needed.push_back(std::move(*edge.needed));
    }
    return emitLocalOp(*local_, op);
  }

  const Fusion& global_;
  const int64_t rank_;
  std::unique_ptr<Fusion> local_;
  FusionCloner cloner_;
  std::map<int, TensorView*> values_;  // by id of the global tensor
  std::map<int, Val*> scalars_;
  std::map<std::pair<int, std::string>, TensorView*> slices_;  // (tensor, needed state)
};

}  // namespace

std::unique_ptr<Fusion> localize(const Fusion& global, int64_t rank) { return Localizer(global, rank).run(); }

}  // namespace meshfuse
