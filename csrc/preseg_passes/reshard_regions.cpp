#include "preseg_passes/reshard_regions.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/operand_dims.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/relation.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "preseg_passes/decompose_reshardings.h"
#include "preseg_passes/partialize_reductions.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

namespace {

bool ownsAny(const ShardState& state, const std::vector<int64_t>& axes) {
  return std::ranges::any_of(axes, [&](int64_t axis) { return state.owns(axis) || contains(state.partial, axis); });
}

bool ownsAll(const ShardState& state, const std::vector<int64_t>& axes) {
  return std::ranges::all_of(axes, [&](int64_t axis) { return state.owns(axis); });
}

// The state with the outermost local digit of a dim that the axes divide cut into blocks for them.
std::optional<ShardState> inBlocks(const ShardState& state, int64_t dim, const std::vector<int64_t>& axes) {
  const DigitList& digits = state.dims[dim];
  if (digits.isOpaque() || digits.isRagged()) {
    return std::nullopt;
  }
  const int64_t parts = state.mesh.teamSize(axes);
  const auto isDivided = [&](const Digit& d) {
    return d.owner.isLocal() && !d.size.isConst(0) && d.size.divisibleBy(parts);
  };
  const auto top = std::ranges::find_if(digits.digits(), isDivided);
  if (top == digits.digits().end()) {
    return std::nullopt;
  }
  std::vector<Digit> owned = filtered(digits.digits(), [](const Digit& d) { return d.owner.isDevice(); });
  IntExpr stride = top->stride * top->size;
  for (int64_t axis : axes) {
    const IntExpr size = state.mesh.axisSize(axis);
    stride = floorDiv(stride, size);
    owned.push_back({dim, stride, size, Owner::device(axis)});
  }
  ShardState cut = state;
  cut.dims[dim] = fillLocal(dim, digits.extent(), owned);
  return cut.dims[dim].isOpaque() || cut.dims[dim].isRagged() ? std::nullopt : std::optional(cut);
}

// A set of tensors that get axes together. For a user-sharded tensor or an output, a copy in parts joins the set; the copy is then
// redistributed to the original sharding.
class Region {
 public:
  Region(Fusion& fusion, PlanMemo& plans, ShardStateMemo& states, std::vector<int64_t> axes)
      : fusion_(fusion), plans_(plans), states_(states), axes_(std::move(axes)) {}

  void grow(TensorView* seed, ShardState state) {
    take(seed, std::move(state), false);
    while (!open_.empty()) {
      const Member& member = members_.at(*open_.begin());
      open_.erase(open_.begin());
      if (!member.isCopy) {
        intoReaders(member);
      }
      intoOperands(member.tv);
    }
  }

  void apply() {
    for (auto& [id, member] : members_) {
      setShardState(member.tv, member.state);
    }
  }
  void undo() {
    for (auto& [id, member] : members_) {
      setShardState(member.tv, member.before);
    }
  }

  // Once applied: the cost added to the program.
  ReshardCost difference() const {
    ReshardCost more;
    std::set<int64_t> exprs;
    for (const auto& [id, member] : members_) {
      more.held += localBytes(plans_, member.state, member.tv->dtype());
      exprs.insert(member.tv->definition()->id());
      if (member.isCopy) {
        more += costOf(plans_, member.state, member.before, member.tv);
        continue;
      }
      more.held -= localBytes(plans_, member.before, member.tv->dtype());
      for (const Expr* use : fusion_.uses(member.tv)) {
        exprs.insert(use->id());
      }
    }
    std::set<std::pair<int64_t, std::string>> gathered;
    for (int64_t id : exprs) {
      const Expr* e = fusion_.expr(id);
      if (e->kind() == ExprKind::Redistribute && e->input(0)->asTensor()->hasDeviceMesh() &&
          e->tensorOutput()->hasDeviceMesh()) {
        const TensorView* from = e->input(0)->asTensor();
        more += costOf(plans_, readState(from), states_.state(e->tensorOutput()), from);
        more -= costOf(plans_, beforeOf(from), beforeOf(e->tensorOutput()), from);
      } else if (e->output()->isTensor()) {
        more += costOfEdges(e, gathered);
      }
    }
    return more;
  }

  // Once applied: whether sums in parts are as exact as before. Parts of 16-bit types would be rounded before they are
  // added; rows of a table that is in parts would travel as sums.
  bool keepsSums() const {
    for (const auto& [id, member] : members_) {
      if (member.isCopy) {
        continue;
      }
      for (const Expr* use : fusion_.uses(member.tv)) {
        if (use->kind() == ExprKind::Redistribute || !use->output()->isTensor()) {
          continue;
        }
        const auto losesBits = [&](int64_t operand) {
          return edgeRelation(use, operand, use->tensorOutput(), states_).relation == EdgeRelation::Comm &&
                 (isIndexing(*use) || (becomesPartial(use, operand) && dataTypeSize(use->tensorOutput()->dtype()) < 4));
        };
        if (std::ranges::any_of(use->positionsOf(member.tv), losesBits)) {
          return false;
        }
      }
    }
    return true;
  }

  // Applied for good: readers of a copy read what it is redistributed to.
  void settle() {
    apply();
    for (const auto& [id, member] : members_) {
      if (member.isCopy) {
        takePlace(member.tv, redistributed(member.tv, member.before));
        member.tv->setUserSharded(false);
      }
    }
  }

  size_t size() const { return members_.size(); }

  // Once settled: the ids of all exprs one of whose edges may not be aligned or local.
  std::set<int64_t> touched() const {
    std::set<int64_t> ids;
    for (const auto& [id, member] : members_) {
      ids.insert(member.tv->definition()->id());
      for (const Expr* use : fusion_.uses(member.tv)) {
        ids.insert(use->id());
      }
    }
    return ids;
  }
  // Redistributed tensors of the region and their states, by id.
  std::set<std::pair<int64_t, std::string>> reshards() const {
    std::set<std::pair<int64_t, std::string>> all;
    for (const auto& [id, member] : members_) {
      if (member.tv->definition()->kind() == ExprKind::Redistribute) {
        all.emplace(id, member.state.toString());
      }
    }
    return all;
  }

 private:
  struct Member {
    TensorView* tv;
    ShardState state;
    ShardState before;
    bool isCopy;
  };

  bool contains(const Val* val) const { return members_.contains(val->id()); }

  void take(TensorView* tv, ShardState state, bool isCopy) {
    members_.insert_or_assign(tv->id(), Member{tv, std::move(state), states_.state(tv), isCopy});
    open_.insert(tv->id());
    std::set<int64_t> operands;
    for (const TensorView* in : tv->definition()->tensorInputs()) {
      if (operands.insert(in->id()).second) {
        readers_[in->id()]++;
      }
    }
  }

  bool isCopy(const Val* val) const { return contains(val) && members_.at(val->id()).isCopy; }
  ShardState beforeOf(const TensorView* tv) const {
    return contains(tv) ? members_.at(tv->id()).before : states_.state(tv);
  }
  // The tensor that readers get.
  ShardState readState(const TensorView* tv) const {
    return isCopy(tv) ? members_.at(tv->id()).before : states_.state(tv);
  }

  bool mayTake(const TensorView* tv, const DeviceMesh& mesh) const {
    return !contains(tv) && tv->definition() != nullptr && tv->hasDeviceMesh() && tv->getDeviceMesh() == mesh &&
           !tv->isPartial() && !ownsAny(states_.state(tv), axes_);
  }

  void intoReaders(const Member& member) {
    for (const Expr* use : fusion_.uses(member.tv)) {
      if (use->kind() == ExprKind::Redistribute || use->outputs().size() != 1 || !use->output()->isTensor() ||
          !mayTake(use->tensorOutput(), member.state.mesh)) {
        continue;
      }
      TensorView* out = use->tensorOutput();
      ShardState state = states_.state(out);
      for (const int64_t operand : use->positionsOf(member.tv)) {
        propagateForward(use, operand, member.state, out, state);
      }
      // a copy is gathered in place of the operand
      const bool movable = isMovable(out);
      if (ownsAll(state, axes_) && (movable || localBytes(plans_, state, out->dtype()) <=
                                                   localBytes(plans_, member.state, member.tv->dtype()))) {
        take(out, std::move(state), !movable);
      }
    }
  }

  // Adds tensors that only the region reads, if all readers need the same part.
  void intoOperands(const TensorView* tv) {
    for (TensorView* in : tv->definition()->tensorInputs()) {
      // asked once: a tensor with a reader outside the region does not join it
      if (!mayTake(in, tv->getDeviceMesh()) || !isMovable(in) || readers_.at(in->id()) < fusion_.uses(in).size() ||
          !asked_.insert(in->id()).second) {
        continue;
      }
      if (std::optional<ShardState> needed = neededOf(in)) {
        take(in, std::move(*needed), false);
      }
    }
  }

  std::optional<ShardState> neededOf(const TensorView* tv) const {
    std::optional<ShardState> needed;
    for (const Expr* use : fusion_.uses(tv)) {
      if (use->kind() == ExprKind::Redistribute || !use->output()->isTensor() || !contains(use->output())) {
        return std::nullopt;
      }
      for (const int64_t operand : use->positionsOf(tv)) {
        ShardState state = states_.state(tv);
        propagateBackward(use, use->tensorOutput(), members_.at(use->output()->id()).state, operand, state);
        if (!ownsAll(state, axes_) || (needed && !provenEqual(*needed, state))) {
          return std::nullopt;
        }
        needed = std::move(state);
      }
    }
    return needed;
  }

  // The axes cut a dim of the operand that the op reduces, and nothing else of it: it becomes a partial sum.
  bool becomesPartial(const Expr* e, int64_t operand) const {
    const TensorView* out = e->tensorOutput();
    if (!contributionsOf(*e) || isIndexing(*e) || out->isPartial() || ownsAny(states_.state(out), axes_)) {
      return false;
    }
    const ShardState held = states_.state(e->input(operand)->asTensor());
    const std::vector<OperandDim> dims = operandDims(e, operand);
    const std::vector<IterDomain*>& root = out->getRootDomain();
    const auto isCut = [&](const DigitList& dim) {
      return std::ranges::any_of(axes_, [&](int64_t axis) { return owns(dim, axis); });
    };
    return std::ranges::all_of(indices(held.dims), [&](int64_t k) {
      return !isCut(held.dims[k]) || (dims[k].root != kUnmapped && root[dims[k].root]->isReduction());
    });
  }

  // An upper bound of the redistributions that partialize-reductions and decompose-reshardings will add: they may find cheaper ones.
  ReshardCost costOfEdges(const Expr* e, std::set<std::pair<int64_t, std::string>>& gathered) const {
    ReshardCost more;
    const TensorView* out = e->tensorOutput();
    bool summed = false;
    for (const int64_t operand : e->tensorPositions()) {
      const TensorView* in = e->input(operand)->asTensor();
      if (isCopy(in)) {
        continue;
      }
      const Edge edge = edgeRelation(e, operand, out, states_);
      if (edge.relation != EdgeRelation::Comm) {
        continue;
      }
      if (becomesPartial(e, operand)) {
        summed = true;
        continue;
      }
      const ShardState needed =
          edge.needed && usesWholeAxes(*edge.needed)
              ? *edge.needed
              : ShardState::replicated(out->hasDeviceMesh() ? out->getDeviceMesh() : edge.held.mesh, in->shape());
      if (gathered.emplace(in->id(), needed.toString()).second && knownReshard(in, needed) == nullptr) {
        more += costOf(plans_, edge.held, needed, in);
        more.held += localBytes(plans_, needed, in->dtype());
      }
    }
    if (summed) {
      ShardState sums = states_.state(out);
      sums.partial = axes_;
      more += costOf(plans_, sums, states_.state(out), out);
      more.held += localBytes(plans_, sums, out->dtype());
    }
    return more;
  }

  Fusion& fusion_;
  PlanMemo& plans_;
  ShardStateMemo& states_;
  std::vector<int64_t> axes_;
  std::map<int64_t, Member> members_;  // by id
  std::set<int64_t> open_;             // of members_, whose neighbours are to be asked
  std::map<int64_t, size_t> readers_;  // by id of a tensor: exprs in the region that read it
  std::set<int64_t> asked_;            // ids of tensors all of whose readers are in the region
};

// The axes over which a Redistribute sums to a result that every rank holds whole; empty if it is no all-reduce.
std::vector<int64_t> allReduced(const Expr* e, ShardStateMemo& states) {
  if (!isOneMeshReshard(e) || !isMovable(e->tensorOutput())) {
    return {};
  }
  const std::vector<int64_t> axes = states.state(e->input(0)->asTensor()).partial;
  return ownsAny(states.state(e->tensorOutput()), axes) ? std::vector<int64_t>{} : axes;
}

class Split {
 public:
  Split(Fusion& fusion, PassContext& context)
      : fusion_(fusion), context_(context), plans_(context.memo<PlanMemo>()), states_(context.memo<ShardStateMemo>()) {}

  // The ids of the exprs around what has changed; none if nothing has.
  std::set<int64_t> run() {
    for (const int64_t id : idsOf(fusion_, [this](const Expr* e) { return !allReduced(e, states_).empty(); })) {
      splitAt(fusion_.expr(id));
    }
    return touched_;
  }

 private:
  struct Choice {
    Region region;
    ReshardCost more;
    int64_t dim;
  };

  int64_t weight(const ReshardCost& more) const { return more.held + context_.settings().callBytes * more.calls; }

  void splitAt(const Expr* e) {
    const std::vector<int64_t> axes = allReduced(e, states_);  // an earlier region may have taken it
    if (axes.empty()) {
      return;
    }
    TensorView* sum = e->tensorOutput();
    const ShardState state = states_.state(sum);
    std::optional<Choice> best;
    for (int64_t dim = 0; dim < std::ssize(state.dims); dim++) {
      std::optional<ShardState> cut = inBlocks(state, dim, axes);
      if (!cut || !tried_.emplace(sum->id(), cut->toString()).second) {
        continue;
      }
      Region region(fusion_, plans_, states_, axes);
      region.grow(sum, std::move(*cut));
      region.apply();
      const ReshardCost more = region.difference();
      const auto key = [&](const ReshardCost& c) { return std::pair(c.bytes, weight(c)); };
      const bool pays = more.bytes <= 0 && weight(more) < 0 && (!best || key(more) < key(best->more));
      const bool isBetter = pays && region.keepsSums();
      region.undo();
      // a member of a rejected region would grow the same region, or a part of it
      tried_.merge(region.reshards());
      if (isBetter) {
        best.emplace(Choice{std::move(region), more, dim});
      }
    }
    if (!best) {
      return;
    }
    context_.remark(fmt::format(
        "T{} is reduce-scattered over its dim {}, and {} tensors after it are sharded: {} bytes less to receive, {} "
        "less to "
        "compute and hold, {} more collectives",
        sum->id(), best->dim, best->region.size() - 1, -best->more.bytes, -best->more.held, best->more.calls));
    best->region.settle();
    touched_.merge(best->region.touched());
  }

  Fusion& fusion_;
  PassContext& context_;
  PlanMemo& plans_;
  ShardStateMemo& states_;
  std::set<std::pair<int64_t, std::string>> tried_;  // (tensor, state) in regions that were tried
  std::set<int64_t> touched_;                        // exprs around regions that were settled, by id
};

}  // namespace

bool splitAllReduces(Fusion& fusion, PassContext& context) {
  const int64_t before = fusion.numExprs();
  const std::set<int64_t> touched = Split(fusion, context).run();
  if (touched.empty()) {
    return false;
  }
  partializeReductions(fusion, context);
  decomposeReshardings(fusion, context, [&](const Expr* e) { return e->id() >= before || touched.contains(e->id()); });
  return true;
}

}  // namespace meshfuse
