#include "preseg_passes/propagate_shardings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ranges>
#include <set>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/axis_facts.h"
#include "multidevice/sharding/plan_memo.h"
#include "multidevice/sharding/propagate.h"
#include "preseg_passes/split_scans.h"

namespace meshfuse {

namespace {

int64_t bytesOf(const Val* val, const PlanMemo& plans) {
  const auto sizeOf = [&](const IntExpr& extent) {
    const IntExpr size = plans.atSizes(extent);
    return size.isConst() ? size.constValue() : 1;
  };
  return dataTypeSize(val->dtype()) * productOf(val->asTensor()->shape(), sizeOf);
}

// Operands in the order of their priority. If the weight and the activations suggest one axis for different dims, the
// smaller of the two is cheaper to gather, so the larger comes first; the weight where they are equal.
std::vector<int64_t> operandOrder(const Expr* expr, const PlanMemo& plans) {
  std::vector<int64_t> order = mapped<int64_t>(indices(expr->inputs()), std::identity());
  if (isContraction(*expr) && bytesOf(expr->input(0), plans) <= bytesOf(expr->input(1), plans)) {
    std::rotate(order.begin(), order.begin() + 1, order.end());  // weight, bias, activations
  }
  return order;
}

// The list in as many orders as it has elements: each of them first once, before the others in their order.
template <class T>
std::vector<std::vector<T>> eachFirst(const std::vector<T>& list) {
  std::vector<std::vector<T>> orders{list};
  for (int64_t k = 1; k < std::ssize(list); k++) {
    std::vector<T>& order = orders.emplace_back(list);
    std::rotate(order.begin(), order.begin() + k, order.begin() + k + 1);
  }
  return orders;
}

bool sameDigits(const ShardState& a, const ShardState& b) {
  return std::ranges::equal(a.dims, b.dims, [](const DigitList& x, const DigitList& y) {
    return x.isOpaque() == y.isOpaque() && std::ranges::equal(x.digits(), y.digits());
  });
}

// Marks the tensors with a mesh of the user, once: after propagation all tensors have a mesh.
bool markUserSharded(const Fusion& fusion) {
  const std::vector<TensorView*> tensors = fusion.tensors();
  if (std::ranges::any_of(tensors, &TensorView::isUserSharded)) {
    return false;
  }
  for (TensorView* tv : tensors) {
    tv->setUserSharded(tv->hasDeviceMesh());
  }
  return std::ranges::any_of(tensors, &TensorView::isUserSharded);
}

// The order in which ops propagate axes of a result back to an operand: first ops that keep elements, then reductions; last ops that
// stretch the operand, because they determine the least.
enum class Way : uint8_t { PassesThrough, Reduces, Stretches };
constexpr int64_t kWays = 3;

Way wayOf(const Expr* e) {
  const OpForm form = ruleOf(*e).form;
  if (form == OpForm::Broadcast || form == OpForm::Expand) {
    return Way::Stretches;
  }
  return form == OpForm::Reduce || form == OpForm::Contract || form == OpForm::Line ? Way::Reduces : Way::PassesThrough;
}

// Adds the axes that cut the dim of a scan on one side to the state of the other side, if split_scans computes the scan in blocks. True if
// `to` changed.
bool addScanned(const Expr& expr, const ShardState& from, ShardState& to) {
  const std::optional<DimBlocks> blocks = scannedBlocks(expr, from);
  if (!blocks || !(from.mesh == to.mesh) || to.hasOpaqueDim() || to.dims[expr.attributes().dim].hasOwned() ||
      std::ranges::any_of(blocks->digits, [&](const Digit& d) { return to.owns(d.owner.axis); })) {
    return false;
  }
  to.dims[expr.attributes().dim] = from.dims[expr.attributes().dim];
  return true;
}

enum class AlongScans : uint8_t { No, Yes };

// The axes travel by a worklist: forward first, the exprs in their order; then backward, one tensor at a time, by the ways of the
// exprs that read it, the last tensor first. An expr or a tensor is visited again when the state of a neighbour has changed.
class Propagation {
 public:
  Propagation(Fusion& fusion, PassContext& context, const PropagationScope& scope = {})
      : fusion_(fusion),
        context_(context),
        scope_(scope),
        exprs_(fusion.exprs()),
        facts_(context.get<AxisFacts>().prover()),
        plans_(context.memo<PlanMemo>()),
        free_(fusion.numVals(), nullptr),
        states_(fusion.numVals()),
        places_(fusion.numExprs(), -1) {
    bool symbolic = false;
    bool awaits = false;
    for (TensorView* tv : fusion.tensors()) {
      symbolic |= tv->getDeviceMesh().isSymbolic();
      awaits |= std::ranges::any_of(tv->getLogicalDomain(), &IterDomain::isSymbolic);
      const bool listed = contains(scope.tensors, tv);
      if (listed || (scope.tensors.empty() && !tv->hasDeviceMesh() && !tv->isFusionInput())) {
        free_[tv->id()] = tv;
        anyFree_ = true;
      }
      if (tv->hasDeviceMesh()) {
        states_[tv->id()] = shardState(tv, facts_);
        if (!isSelective() &&
            std::ranges::any_of(tv->getLoopDomain(), [](auto* id) { return id->isDeviceDim() && id->isReduction(); })) {
          bindsReduced_.push_back(tv);
        }
      }
    }
    leavesWhole_ = symbolic && awaits;
    for (int64_t k = 0; k < std::ssize(exprs_); k++) {
      places_[exprs_[k]->id()] = k;
    }
    for (const auto& [output, input] : fusion.aliases()) {
      if (isFree(output) && find(output) == nullptr) {
        aliased_.insert(output->id());
        reasons_[output->id()] = fmt::format("in the memory of T{}", input->id());
        if (input->asTensor()->hasDeviceMesh()) {
          states_[output->id()] = shardState(input->asTensor(), facts_);
        }
      }
    }
  }

  // Meshes first, so that axes have a place to go; then axes to a fixpoint.
  bool run() {
    if (!anyFree_ && bindsReduced_.empty()) {
      return false;
    }
    spreadMeshes();
    for (int64_t k = 0; k < std::ssize(exprs_); k++) {
      forward_.insert(k);
      for (const Val* in : exprs_[k]->inputs()) {
        mayTakeFrom(exprs_[k], in);
      }
    }
    while (step()) {
    }
    return settle();
  }

 private:
  struct Suggestion {
    ShardState state;
    std::string from;  // the tensors that suggest its new axes; empty: none
  };
  using Bytes = std::optional<int64_t>;  // nothing while sizes are symbols
  using Ready = std::set<std::pair<int64_t, int64_t>,
                         std::greater<>>;  // (place of its definition, id) of tensors, the last first

  bool isSelective() const { return !scope_.tensors.empty() || !scope_.axes.empty(); }
  // Only tensors are free or have a state.
  bool isFree(const Val* val) const { return free_[val->id()] != nullptr; }
  bool isPlaced(const Expr* e) const { return places_[e->id()] >= 0; }
  // An output aliased to an input has the sharding of the input, and no axes if the input has none.
  bool takesAxes(const Val* val) const { return isFree(val) && !aliased_.contains(val->id()); }
  // A checked index has the state of its index, so readers suggest axes to the index.
  bool takesFromReaders(const Val* val) const {
    const Expr* e = val->definition();
    const bool checks = e != nullptr && e->kind() == ExprKind::Point && e->attributes().point == PointOp::CheckedIndex;
    return takesAxes(val) && (!checks || takesFromReaders(e->input(0)));
  }
  ShardState* find(const Val* val) {
    std::optional<ShardState>& state = states_[val->id()];
    return state ? &*state : nullptr;
  }

  bool adoptMesh(const Val* val, const Val* neighbour) {
    const ShardState* state = find(neighbour);
    if (!isFree(val) || find(val) != nullptr || state == nullptr) {
      return false;
    }
    states_[val->id()] = ShardState::replicated(state->mesh, val->asTensor()->shape());
    return true;
  }

  void spreadMeshes() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Expr* e : exprs_) {
        for (const Val* out : e->outputs()) {
          for (const Val* in : e->inputs()) {
            changed |= adoptMesh(out, in);
          }
        }
      }
      for (const Expr* e : std::views::reverse(exprs_)) {
        for (const Val* in : e->inputs()) {
          for (const Val* out : e->outputs()) {
            changed |= adoptMesh(in, out);
          }
        }
      }
    }
  }

  // An operand of `e` may take axes of its results.
  void mayTakeFrom(const Expr* e, const Val* operand) {
    if (takesFromReaders(operand)) {
      const Expr* definition = operand->definition();  // an input has none
      const int64_t place = definition == nullptr ? 0 : places_[definition->id()];
      backward_[static_cast<size_t>(wayOf(e))].emplace(place, operand->id());
    }
  }

  // Queues the definition and the readers of `val` for another visit.
  void hasChanged(const Val* val) {
    if (const Expr* definition = val->definition(); definition != nullptr && isPlaced(definition)) {
      forward_.insert(places_[definition->id()]);
      for (const Val* in : definition->inputs()) {
        mayTakeFrom(definition, in);
      }
    }
    for (const Expr* use : fusion_.uses(val)) {
      if (isPlaced(use)) {
        forward_.insert(places_[use->id()]);
        mayTakeFrom(use, val);
      }
    }
  }

  // Visits the first entry of the worklist; false if it is empty.
  bool step() {
    if (!forward_.empty()) {
      const int64_t place = *forward_.begin();
      forward_.erase(forward_.begin());
      forward(exprs_[place]);
      return true;
    }
    for (int64_t way = 0; way < kWays; way++) {
      Ready& ready = backward_[way];
      if (!ready.empty()) {
        const int64_t id = ready.begin()->second;
        ready.erase(ready.begin());
        backward(free_[id], static_cast<Way>(way));
        return true;
      }
    }
    return false;
  }

  void place(const Val* tv, Suggestion suggestion) {
    ShardState& state = *find(tv);
    if (sameDigits(suggestion.state, state)) {
      return;
    }
    state = std::move(suggestion.state);
    std::string& reason = reasons_[tv->id()];
    reason += (reason.empty() ? "" : ", then ") + suggestion.from;
    hasChanged(tv);
  }

  void forward(const Expr* e) {
    for (Val* out : e->outputs()) {
      if (takesAxes(out) && find(out) != nullptr) {
        place(out, fromOperands(e, out->asTensor()));
      }
    }
  }

  void backward(const TensorView* tv, Way way) {
    if (find(tv) != nullptr) {
      place(tv, fromReaders(tv, way));
    }
  }

  // The first of the suggestions for which the fewest bytes move; the first of all where sizes are not known yet.
  Suggestion choose(const TensorView* tv, const std::vector<Suggestion>& all, std::string_view who,
                    const std::function<Bytes(const ShardState&)>& bytesOf) {
    size_t best = 0;
    Bytes least;  // set once two suggestions differ
    std::vector<std::string> others;
    for (int64_t k = 1; k < std::ssize(all); k++) {
      if (sameDigits(all[k].state, all[best].state)) {
        continue;
      }
      const std::string text = all[k].state.toString();
      if (contains(others, text)) {
        continue;
      }
      least = least ? least : bytesOf(all[best].state);
      const Bytes bytes = bytesOf(all[k].state);
      if (!least || !bytes) {
        return all[best];
      }
      const bool cheaper = *bytes < *least;
      others.push_back(cheaper ? all[best].state.toString() : text);
      choices_[tv->id()] = fmt::format("{} takes {}, for which {} {} bytes, not {}, for which {}", tv->toString(),
                                       cheaper ? text : all[best].state.toString(), who, std::min(*bytes, *least),
                                       others.back(), std::max(*bytes, *least));
      if (cheaper) {
        best = k;
        least = bytes;
      }
    }
    return all[best];
  }

  // The state of a result with the axes that its operands suggest: each of them first once, where they may differ.
  Suggestion fromOperands(const Expr* e, const TensorView* out) {
    if (e->kind() == ExprKind::Scan) {
      return choose(out, {inOrder(e, out, {0}, AlongScans::Yes), inOrder(e, out, {0})}, "its neighbours receive",
                    [&](const ShardState& state) { return bytesAround(out, state); });
    }
    std::vector<std::vector<int64_t>> orders = eachFirst(operandOrder(e, plans_));
    if (e->kind() != ExprKind::Point && !isContraction(*e)) {
      orders.resize(1);
    }
    const auto all = mapped(orders, [&](const std::vector<int64_t>& order) { return inOrder(e, out, order); });
    return choose(out, all, "its operands receive",
                  [&](const ShardState& state) { return bytesOfOperands(e, out, state); });
  }

  // A state with only the axes that propagate, until the next call.
  const ShardState& travelling(const ShardState& all) {
    if (scope_.axes.empty()) {
      return all;
    }
    ShardState& state = travelling_ = all;
    const auto travels = [&](const Owner& owner) { return contains(scope_.axes, state.mesh.typeOf(owner.axis)); };
    for (int64_t k = 0; k < std::ssize(state.dims); k++) {
      DigitList& dim = state.dims[k];
      if (dim.hasOwned() && !dim.isOpaque()) {
        const auto isKept = [&](const Digit& d) { return d.owner.isDevice() && travels(d.owner); };
        dim = fillLocal(k, dim.extent(facts_), filtered(dim.digits(), isKept), facts_);
      }
    }
    return state;
  }

  Suggestion inOrder(const Expr* e, const TensorView* out, const std::vector<int64_t>& order,
                     AlongScans scans = AlongScans::No) {
    Suggestion suggestion{*find(out), ""};
    for (int64_t operand : order) {
      const ShardState* from = find(e->input(operand));
      if (from == nullptr) {
        continue;
      }
      bool grew = propagateForward(e, operand, travelling(*from), out, suggestion.state, facts_);
      grew |= scans == AlongScans::Yes && addScanned(*e, travelling(*from), suggestion.state);
      if (grew) {
        suggestion.from += fmt::format("{}T{}", suggestion.from.empty() ? "from " : " and ", e->input(operand)->id());
      }
    }
    return suggestion;
  }

  // The state of a tensor with the axes that its readers of this way suggest: each of them first once.
  Suggestion fromReaders(const TensorView* tv, Way way) {
    const auto isReader = [&](const Expr* use) { return isPlaced(use) && wayOf(use) == way; };
    std::vector<Expr*> readers = filtered(fusion_.uses(tv), isReader);
    std::ranges::sort(readers, {}, [&](const Expr* e) { return places_[e->id()]; });
    const auto all = mapped(eachFirst(readers), [&](const std::vector<Expr*>& order) {
      Suggestion suggestion{*find(tv), ""};
      for (const Expr* reader : order) {
        takeFrom(reader, tv, suggestion);
      }
      return suggestion;
    });
    return choose(tv, all, "its neighbours receive", [&](const ShardState& state) { return bytesAround(tv, state); });
  }

  void takeFrom(const Expr* reader, const TensorView* tv, Suggestion& suggestion) {
    for (const Val* out : reader->outputs()) {
      const ShardState* from = find(out);
      for (const int64_t operand : reader->positionsOf(tv)) {
        if (from != nullptr &&
            propagateBackward(reader, out->asTensor(), travelling(*from), operand, suggestion.state, facts_)) {
          suggestion.from += fmt::format("{}T{}", suggestion.from.empty() ? "for " : " and ", out->id());
        }
      }
    }
  }

  // A state of a tensor for the sizes of the call and the hints of the mesh; nothing while some are unknown.
  std::optional<ShardState> sized(const TensorView* tv, const ShardState& state) const {
    const auto shape = mapped(tv->shape(), [this](const IntExpr& extent) { return plans_.atSizes(extent); });
    const bool isKnown = std::ranges::all_of(shape, [](const IntExpr& extent) { return extent.isConst(); });
    return isKnown ? atHints(plans_.atSizes(state), shape) : std::nullopt;
  }

  // The bytes of a tensor that the busiest rank receives; axes of symbolic size count with their hints.
  Bytes bytesBetween(const TensorView* tv, const ShardState& held, const ShardState& needed) const {
    const std::optional<ShardState> from = sized(tv, held);
    const std::optional<ShardState> to = sized(tv, needed);
    return from && to ? Bytes(plans_.plan(tv->fusion(), *from, *to).elements * dataTypeSize(tv->dtype()))
                      : std::nullopt;
  }

  // The state of an operand that `result` at `state` needs.
  ShardState neededOf(const Expr* e, const TensorView* result, const ShardState& state, int64_t operand) {
    ShardState needed = ShardState::replicated(state.mesh, e->input(operand)->asTensor()->shape());
    propagateBackward(e, result, state, operand, needed, facts_);
    (void)addScanned(*e, state, needed);
    return needed;
  }

  // The operand of a scan with a cut result moves to its blocks, and numbers of the blocks to all ranks; or the operand is gathered.
  Bytes bytesOfScan(const Expr* e, const TensorView* out, const ShardState& state, const DimBlocks& blocks,
                    ShardState needed) {
    const TensorView* in = e->input(0)->asTensor();
    const ShardState& held = *find(in);
    const std::optional<ShardState> made = sized(out, state);
    const Bytes toBlocks = bytesBetween(in, held, needed);
    needed.dims[e->attributes().dim] = DigitList::whole(e->attributes().dim, blocks.extent);
    const Bytes toAll = bytesBetween(in, held, needed);
    if (!made || !toBlocks || !toAll) {
      return std::nullopt;
    }
    return std::min(*toAll, *toBlocks + bytesOfTotals(*e, blocks.parts, *made));
  }

  // The bytes that redistributed operands receive if the result is at `state`.
  Bytes bytesOfOperands(const Expr* e, const TensorView* out, const ShardState& state) {
    int64_t bytes = 0;
    for (const int64_t operand : e->tensorPositions()) {
      const TensorView* in = e->input(operand)->asTensor();
      const ShardState* held = find(in);
      // contributions to a sum are combined in any state
      if (held == nullptr || !(held->mesh == state.mesh) || in->isPartial()) {
        continue;
      }
      const ShardState needed = neededOf(e, out, state, operand);
      const std::optional<DimBlocks> blocks = scannedBlocks(*e, state);
      const Bytes more = blocks ? bytesOfScan(e, out, state, *blocks, needed) : bytesBetween(in, *held, needed);
      if (!more) {
        return std::nullopt;
      }
      bytes += *more;
    }
    return bytes;
  }

  // What its operands and, of itself, its readers receive if a tensor is at `state`. Readers that have no axes yet may follow it.
  Bytes bytesAround(const TensorView* tv, const ShardState& state) {
    const Bytes bytes = tv->isFusionInput() ? 0 : bytesOfOperands(tv->definition(), tv, state);
    if (!bytes || tv->isPartial()) {
      return bytes;
    }
    const Bytes more = bytesOfReaders(tv, state);
    return more ? Bytes(*bytes + *more) : std::nullopt;
  }

  // Ops on each element that have no axes yet will follow a scan: their readers count as if they were its own.
  static bool follows(const Expr* use, const TensorView* tv) {
    return (use->kind() == ExprKind::Point || use->kind() == ExprKind::Cast) &&
           use->tensorOutput()->shape() == tv->shape();
  }

  Bytes bytesOfReaders(const TensorView* tv, const ShardState& state) {
    const bool isOfScan = !tv->isFusionInput() && tv->definition()->kind() == ExprKind::Scan;
    std::vector<const TensorView*> read = {tv};  // and the ops that follow a scan
    std::set<const Val*> followers;
    Bytes bytes = 0;
    for (int64_t k = 0; k < std::ssize(read); k++) {
      std::set<std::string> moved;
      for (const Expr* use : fusion_.uses(read[k])) {
        for (const Val* out : use->outputs()) {
          const ShardState* reader = find(out);
          if (reader == nullptr || !(reader->mesh == state.mesh)) {
            continue;
          }
          if (takesAxes(out) && !reader->isSharded()) {
            if (isOfScan && follows(use, read[k]) && followers.insert(out).second) {
              read.push_back(out->asTensor());
            }
            continue;
          }
          for (const int64_t operand : use->positionsOf(read[k])) {
            const ShardState needed = neededOf(use, out->asTensor(), *reader, operand);
            const Bytes more = moved.insert(needed.toString()).second ? bytesBetween(read[k], state, needed) : Bytes(0);
            if (!more) {
              return std::nullopt;
            }
            bytes = *bytes + *more;
          }
        }
      }
    }
    return bytes;
  }

  std::string whyWhole(const TensorView* tv) {
    const Expr* e = tv->definition();
    const ShardState* from = e == nullptr || e->kind() != ExprKind::Reshape ? nullptr : find(e->input(0));
    const std::string why = from == nullptr ? "" : opaqueInReshape(e, *from, tv, facts_);
    return why.empty() ? "no tensor that is connected to it is sharded" : why;
  }

  // Writes the states into the tensors and tells the reasons. True if a tensor has changed.
  bool settle() {
    bool changed = false;
    for (TensorView* tv : bindsReduced_) {
      const ShardState& state = *states_[tv->id()];
      if (!state.hasOpaqueDim()) {
        setShardState(tv, state, facts_);
        changed = true;
      }
    }
    for (const int64_t id : indices(free_)) {
      TensorView* tv = free_[id];
      const std::optional<ShardState>& state = states_[id];
      if (tv == nullptr || !state) {
        continue;
      }
      const bool written = isSelective() ? reasons_.contains(id) || (!tv->hasDeviceMesh() && !scope_.tensors.empty())
                                         : !leavesWhole_ || state->isSharded();
      if (written) {
        setShardState(tv, *state, facts_);
        if (!reasons_.contains(id)) {
          reasons_[id] = whyWhole(tv);
        }
        changed = true;
      }
    }
    for (const auto& [id, choice] : choices_) {
      context_.remark(choice);
    }
    for (const auto& [id, reason] : reasons_) {
      context_.because(id, reason);
    }
    return changed;
  }

  const Fusion& fusion_;
  PassContext& context_;
  const PropagationScope& scope_;
  std::vector<Expr*> exprs_;
  const Prover& facts_;
  PlanMemo& plans_;
  // Tensors that no axis reached may get one when the structure of those that await their sizes is known.
  bool leavesWhole_ = false;
  // Tensors with a binding of a reduced dim. It does not shard the result, so it is removed.
  std::vector<TensorView*> bindsReduced_;
  std::vector<TensorView*> free_;  // by id; nullptr: it has the sharding that it has
  bool anyFree_ = false;
  std::vector<std::optional<ShardState>> states_;  // by id
  ShardState travelling_;
  std::map<int64_t, std::string> choices_;  // of a tensor with several suggestions, by id: what was chosen and why
  std::map<int64_t, std::string> reasons_;  // of a placed tensor, by id: where its axes come from
  std::set<int64_t> aliased_;               // of free_: outputs in the memory of an input
  std::vector<int64_t> places_;             // by id of an expr: where it stands in exprs_; -1: nowhere
  std::set<int64_t> forward_;               // of exprs_, to be looked at
  std::array<Ready, kWays> backward_;
};

}  // namespace

bool propagateShardings(Fusion& fusion, PassContext& context) {
  const bool marked = markUserSharded(fusion);
  return Propagation(fusion, context).run() || marked;
}

bool propagateShardings(Fusion& fusion, const PropagationScope& scope) {
  const std::vector<TensorView*> tensors = fusion.tensors();
  for (const TensorView* tv : scope.tensors) {
    check(contains(tensors, tv), "[propagateShardings] {} reaches no output of the fusion; add the outputs first",
          tv == nullptr ? "a null tensor" : tv->toString());
  }
  for (const ParallelType axis : scope.axes) {
    check(axis.isDevice() && !axis.isPart(), "[propagateShardings] got {}, expected whole mesh axes such as DIDx",
          axis.toString());
  }
  PassContext context(fusion);
  return Propagation(fusion, context, scope).run();
}

}  // namespace meshfuse
