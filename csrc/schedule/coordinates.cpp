#include "schedule/coordinates.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "schedule/elementwise.h"
#include "schedule/propagation.h"
#include "schedule/reads.h"

namespace meshfuse {

namespace {

bool larger(const IntExpr& a, const IntExpr& b) {
  return a.isConst() && b.isConst() ? a.constValue() > b.constValue() : provenLess(b, a);
}

const TensorView* chooseReference(const Group& group) {
  auto candidates = mapped(reductionsOf(group), [](const Expr* e) { return e->tensorInputs()[0]; });
  const TensorView* best = nullptr;
  for (const TensorView* tv : candidates.empty() ? group.outputs : candidates) {
    if (best == nullptr || larger(product(tv->shape()), product(best->shape()))) {
      best = tv;
    }
  }
  return best;
}

constexpr int64_t kAfterColumns = INT32_MAX;  // what follows from sums of columns waits for all stages

// The number of reduction stages before each tensor of the group.
std::map<int64_t, int64_t> stagesBefore(const Group& group, const std::set<int64_t>& columns,
                                        std::map<int64_t, int64_t>& stageOf) {
  std::map<int64_t, int64_t> before;
  for (const Expr* e : group.exprs) {
    int64_t n = 0;
    for (const TensorView* p : e->tensorInputs()) {
      if (auto it = before.find(p->id()); it != before.end()) {
        n = std::max(n, it->second);
      }
    }
    if (e->kind() == ExprKind::Reduce && columns.contains(e->output()->id())) {
      n = std::max(n + 1, kAfterColumns);
    } else if (e->kind() == ExprKind::Reduce) {
      stageOf[e->output()->id()] = n++;
    }
    for (const Val* out : e->outputs()) {
      before[out->id()] = n;
    }
  }
  return before;
}

IntExpr referenceDim(int64_t dim, const IntExpr& extent) {
  return IntExpr::symbol(dimSymbol(dim),
                         {0, extent.upper() ? std::max<int64_t>(0, *extent.upper() - 1) : INT64_MAX, 1});
}

// Numbers of the connected parts of a group, by expr id: ops of one part exchange results.
std::map<int64_t, int64_t> connectedParts(const Group& group) {
  std::map<int64_t, int64_t> next;  // an op of the same part, itself for one of each
  auto last = [&](int64_t id) {
    while (next.at(id) != id) {
      id = next.at(id) = next.at(next.at(id));
    }
    return id;
  };
  for (const Expr* e : group.exprs) {
    next[e->id()] = e->id();
    for (const TensorView* in : e->tensorInputs()) {
      if (in->definition() != nullptr && next.contains(in->definition()->id())) {
        next[last(in->definition()->id())] = e->id();
      }
    }
  }
  std::map<int64_t, int64_t> parts;
  for (const Expr* e : group.exprs) {
    parts[e->id()] = last(e->id());
  }
  return parts;
}

// Finds the coordinates of one group. Each step returns the reason of a refusal, or nothing.
class CoordinateFinder {
 public:
  CoordinateFinder(const Group& group, const TensorView* reference)
      : group_(group), reference_(reference), propagation_(group) {}

  CoordinatesOrReason find() {
    std::string reason = placeReference();
    reason = reason.empty() ? findReduced() : reason;
    findStages();
    reason = reason.empty() ? checkWhatFollowsReductions() : reason;
    if (reason.empty()) {
      collect();
      reason = checkReductions();
    }
    for (const TensorView* out : group_.outputs) {
      reason = reason.empty() ? checkOutput(out) : reason;
    }
    return reason.empty() ? CoordinatesOrReason{std::move(c_), {}} : CoordinatesOrReason{std::nullopt, reason};
  }

 private:
  std::string placeReference() {
    c_.extents = reference_->shape();
    c_.reduced.assign(c_.extents.size(), false);
    c_.order = runOrder();
    for (int64_t d = 0; d < std::ssize(c_.extents); d++) {
      if (!c_.extents[d].isConst(1)) {
        propagation_.of(reference_)[d] = referenceDim(d, c_.extents[d]);
      }
    }
    propagation_.run();
    placeApart();
    c_.conflicted = propagation_.anyConflict();
    const Expr* overgrown = propagation_.overgrown();
    return overgrown == nullptr ? std::string() : overgrownReason(*overgrown);
  }

  // For ops that are not connected with the reference, a tensor of equal extents takes the dims of the reference. One tensor of
  // each part is placed so; the positions of the others follow from it.
  void placeApart() {
    std::vector<std::pair<const TensorView*, const Expr*>> unplaced;
    auto note = [&](const TensorView* tv, const Expr* e) {
      if (!propagation_.indexOf(tv)) {
        unplaced.emplace_back(tv, e);
      }
    };
    for (const Expr* e : reductionsOf(group_)) {
      note(e->tensorInputs()[0], e);
    }
    for (const TensorView* out : group_.outputs) {
      note(out, out->definition());
    }
    if (unplaced.empty()) {
      return;
    }
    const std::map<int64_t, int64_t> parts = connectedParts(group_);
    std::set<int64_t> placed = {parts.at(opOf(reference_)->id())};
    for (const auto& [tv, e] : unplaced) {
      if (!placed.contains(parts.at(e->id())) && takeReferenceDims(tv)) {
        placed.insert(parts.at(e->id()));
      }
    }
    if (placed.size() > 1) {
      propagation_.run();
    }
  }

  // The op of the group that makes a tensor, else the first that reads it.
  const Expr* opOf(const TensorView* tv) const {
    return *std::ranges::find_if(
        group_.exprs, [&](const Expr* e) { return e == tv->definition() || contains(e->tensorInputs(), tv); });
  }

  // The unknown dims of an index become, in order, the reference dims that do not occur in it.
  bool takeReferenceDims(const TensorView* tv) {
    Propagation::Partial& index = propagation_.of(tv);
    const std::vector<IntExpr> shape = tv->shape();
    auto isFree = [&](int64_t d) {
      return !c_.extents[d].isConst(1) &&
             std::ranges::none_of(index, [&](const auto& i) { return i && runsOver(*i, d); });
    };
    auto free = filtered(indices(c_.extents), isFree);
    auto next = free.begin();
    Propagation::Partial taken = index;
    for (int64_t d = 0; d < std::ssize(shape); d++) {
      if (!taken[d]) {
        if (next == free.end() || !(shape[d] == c_.extents[*next])) {
          return false;
        }
        taken[d] = referenceDim(*next++, shape[d]);
      }
    }
    if (next != free.end()) {
      return false;
    }
    index = std::move(taken);
    return true;
  }

  // A kernel without reductions iterates over its reference in memory order.
  std::vector<int64_t> runOrder() const {
    std::vector<int64_t> order(c_.extents.size());
    std::iota(order.begin(), order.end(), 0);
    auto layout = group_.layouts.find(reference_->id());
    if (layout != group_.layouts.end() && reductionsOf(group_).empty()) {
      const std::vector<int64_t> strides = constantStrides(reference_, group_.layouts);
      std::ranges::stable_sort(order, std::greater<>(), [&](int64_t d) { return strides[d]; });
    }
    return order;
  }

  void findStages() {
    c_.waits = stagesBefore(group_, c_.columns, c_.stage);
    for (const auto& [id, stage] : c_.stage) {
      c_.stages = std::max(c_.stages, stage + 1);
    }
  }

  // Finds the reduced dims. Either all reductions combine the same dims; or some combine the innermost dim and others the remaining dims: then
  // the former are the reductions of rows, and the latter those of columns.
  std::string findReduced() {
    std::vector<std::vector<bool>> reducedBy;  // in the order of the reductions
    for (const Expr* e : reductionsOf(group_)) {
      const TensorView* p = e->tensorInputs()[0];
      const TensorView* c = e->tensorOutput();
      std::optional<std::vector<IntExpr>> index = propagation_.indexOf(p);
      if (!index) {
        return fmt::format("{} reduces {}, whose dims are not those of {}", c->toString(), p->toString(),
                           reference_->toString());
      }
      std::vector<bool> reduced(c_.extents.size(), false);
      for (int64_t d = 0; d < std::ssize(*index); d++) {
        if (!c->getLogicalDomain()[d]->isReduction() || (*index)[d].isConst(0)) {
          continue;
        }
        const auto dims = indices(c_.extents);
        const auto dim = std::ranges::find_if(
            dims, [&](int64_t k) { return (*index)[d].isSymbol() && (*index)[d].symbolName() == dimSymbol(k); });
        if (dim == dims.end()) {
          return fmt::format("{} reduces a dim of {} that is not a dim of {}", c->toString(), p->toString(),
                             reference_->toString());
        }
        reduced[*dim] = true;
      }
      if (!reducedBy.empty() && reduced != reducedBy[0] && !complements(reduced, reducedBy[0])) {
        return fmt::format("{} reduces other dims than the reductions before it", c->toString());
      }
      reducedBy.push_back(std::move(reduced));
    }
    const auto dims = filtered(c_.order, [&](int64_t d) { return !c_.extents[d].isConst(1); });
    const auto ofRows = std::ranges::find_if(reducedBy, [&](const auto& r) { return !dims.empty() && r[dims.back()]; });
    if (!reducedBy.empty()) {
      c_.reduced = ofRows == reducedBy.end() ? reducedBy[0] : *ofRows;
    }
    const std::vector<const Expr*> reductions = reductionsOf(group_);
    for (int64_t i = 0; i < std::ssize(reductions); i++) {
      if (reducedBy[i] != c_.reduced) {
        c_.columns.insert(reductions[i]->output()->id());
      }
    }
    return {};
  }

  // Each dim of more than one position is in one of the two sets.
  bool complements(const std::vector<bool>& a, const std::vector<bool>& b) const {
    return std::ranges::all_of(indices(c_.extents),
                               [&](int64_t d) { return c_.extents[d].isConst(1) || a[d] != b[d]; });
  }

  // A reduction's result exists at one position of the space only, and so do the values computed from it.
  std::string checkWhatFollowsReductions() {
    for (const Expr* e : group_.exprs) {
      for (const TensorView* p : e->tensorInputs()) {
        if (c_.waitsFor(p) == 0) {
          continue;
        }
        if (readsElsewhere(*e)) {
          return fmt::format("{} reads {}, which follows a reduction, at other positions", e->output()->toString(),
                             p->toString());
        }
        if (propagation_.isConflicted(p) || !propagation_.indexOf(p)) {
          return fmt::format("{}, which follows a reduction, is needed at two positions", p->toString());
        }
      }
      // judged before another op reads it: plain ops that join later without a judgement have the same positions
      const Val* out = e->output();
      if (out->isTensor() && c_.waitsFor(out->asTensor()) > 0 && propagation_.isConflicted(out->asTensor())) {
        return fmt::format("{}, which follows a reduction, has two positions", out->toString());
      }
    }
    return {};
  }

  void collect() {
    std::vector<std::string> reduced;
    for (int64_t d = 0; d < std::ssize(c_.extents); d++) {
      if (c_.reduced[d]) {
        reduced.push_back(dimSymbol(d));
      }
    }
    auto isReduced = [&](const IntExpr& i) {
      return std::ranges::any_of(reduced, [&](const std::string& symbol) { return i.contains(symbol); });
    };
    auto add = [&](const TensorView* tv) {
      if (std::optional<std::vector<IntExpr>> index = propagation_.indexOf(tv)) {
        if (std::ranges::any_of(*index, isReduced)) {
          c_.spread.insert(tv->id());
        }
        c_.index[tv->id()] = std::move(*index);
      }
    };
    for (const Expr* e : group_.exprs) {
      for (const Val* out : e->outputs()) {
        if (out->isTensor()) {
          add(out->asTensor());
        }
      }
    }
    for (const TensorView* in : group_.inputs) {
      add(in);
    }
    c_.readsMove =
        c_.conflicted || !propagation_.writesEachOnce() || std::ranges::any_of(group_.exprs, [&](const Expr* e) {
          return readsElsewhere(*e) || !c_.index.contains(e->output()->id());
        });
    for (const TensorView* out : group_.outputs) {
      if (c_.isSpread(out) && !c_.followsColumns(out)) {
        (c_.waitsFor(out) > 0 ? c_.lateOutputs : c_.earlyOutputs) = true;
      }
    }
  }

  std::string checkReductions() const {
    for (const auto& [id, stage] : c_.stage) {
      if (!c_.index.contains(id) || c_.spread.contains(id)) {
        return fmt::format("the result T{} of a reduction has no index of its own", id);
      }
    }
    for (const Expr* e : group_.exprs) {
      const TensorView* out = e->tensorOutput();
      if (c_.followsColumns(out) &&
          (c_.stage.contains(out->id()) || c_.waitsFor(out) > kAfterColumns || !isColumn(out) || joinsRows(*e))) {
        return fmt::format("{} combines sums over other dims with whole rows", out->toString());
      }
    }
    return {};
  }

  // An op after sums of columns reads what follows from sums of rows, which no longer exists then: also sum(w * w) of one row w.
  bool joinsRows(const Expr& e) const {
    return !c_.columns.contains(e.output()->id()) && std::ranges::any_of(e.tensorInputs(), [&](const TensorView* p) {
      return c_.waitsFor(p) > 0 && !c_.followsColumns(p);
    });
  }

  // The tensor runs over no dims but the reduced ones.
  bool isColumn(const TensorView* tensor) const {
    const auto index = c_.index.find(tensor->id());
    return index != c_.index.end() && std::ranges::none_of(indices(c_.extents), [&](int64_t d) {
             return !c_.reduced[d] && runsOver(index->second, d);
           });
  }

  // Each element of an output is written once.
  std::string checkOutput(const TensorView* out) const {
    auto it = c_.index.find(out->id());
    if (it == c_.index.end()) {
      return fmt::format("output {} has no index over the dims of {}", out->toString(), reference_->toString());
    }
    bool full = true;
    bool part = c_.hasReduction();  // rows have one element each, columns too
    IntExpr positions = 1;
    for (int64_t d = 0; d < std::ssize(c_.extents); d++) {
      const bool used = runsOver(it->second, d);
      positions *= used ? c_.extents[d] : IntExpr(1);
      bool trivial = c_.extents[d].isConst(1);
      full = full && (used || trivial);
      part = part && ((used == c_.reduced[d]) == c_.followsColumns(out) || trivial);
    }
    if (!(positions == product(out->shape()))) {  // [d0, d0]: an outer product of a dim with itself
      return fmt::format("output {} has more elements than the dims of {} it runs over", out->toString(),
                         reference_->toString());
    }
    if (!full && !part) {
      return fmt::format("output {} covers only a part of the dims of {}", out->toString(), reference_->toString());
    }
    return {};
  }

  const Group& group_;
  const TensorView* reference_;
  Propagation propagation_;
  Coordinates c_;
};

}  // namespace

std::string dimSymbol(int64_t dim) { return fmt::format("dim {}", dim); }

bool runsOver(const IntExpr& expr, int64_t dim) { return expr.contains(dimSymbol(dim)); }

bool runsOver(const std::vector<IntExpr>& index, int64_t dim) {
  return std::ranges::any_of(index, [&](const IntExpr& i) { return runsOver(i, dim); });
}

bool Coordinates::isSpread(const TensorView* tensor) const { return spread.contains(tensor->id()); }

int64_t Coordinates::waitsFor(const TensorView* tensor) const {
  auto it = waits.find(tensor->id());
  return it == waits.end() ? 0 : it->second;
}

bool Coordinates::followsColumns(const TensorView* tensor) const { return waitsFor(tensor) >= kAfterColumns; }

CoordinatesOrReason findCoordinates(const Group& group) {
  const TensorView* reference = chooseReference(group);
  if (reference == nullptr) {
    return {std::nullopt, "the group has no output"};
  }
  return CoordinateFinder(group, reference).find();
}

bool sharePositions(const Group& group, const Coordinates& c, const TensorView* a, const TensorView* b) {
  if (c.conflicted || !std::ranges::all_of(group.exprs, [](const Expr* e) { return isElementwise(*e); })) {
    return false;
  }
  const auto indexOfA = c.index.find(a->id());
  const auto indexOfB = c.index.find(b->id());
  return indexOfA != c.index.end() && indexOfB != c.index.end() && indexOfA->second == indexOfB->second;
}

}  // namespace meshfuse
