#include "schedule/coordinates.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "ir/fusion.h"
#include "schedule/row_major.h"

namespace meshfuse {

namespace {

using Partial = std::vector<std::optional<IntExpr>>;

// Derives indices through the ops until nothing changes.
class Propagation {
 public:
  explicit Propagation(const Group& group) : group_(group) {}

  Partial& of(const TensorView* tv) { return known(tv).index; }

  bool isConflicted(const TensorView* tv) const { return conflicts_.contains(tv->id()); }

  bool anyConflict() const { return !conflicts_.empty(); }

  void run() {
    do {
      changed_ = false;
      for (Expr* e : group_.exprs) {
        visit(*e);
      }
      for (auto e = group_.exprs.rbegin(); e != group_.exprs.rend(); ++e) {
        visit(**e);
      }
    } while (changed_);
  }

 private:
  struct Known {
    std::vector<IntExpr> shape;
    Partial index;
  };

  Known& known(const TensorView* tv) {
    auto [it, isNew] = known_.try_emplace(tv->id());
    if (isNew) {
      it->second.shape = tv->shape();
      for (const IntExpr& e : it->second.shape) {
        it->second.index.push_back(e.isConst(1) ? std::optional<IntExpr>(0) : std::nullopt);
      }
    }
    return it->second;
  }

  void set(const TensorView* tv, std::optional<IntExpr>& slot, const std::optional<IntExpr>& value) {
    if (!value) {
      return;
    }
    if (!slot) {
      slot = value;
      changed_ = true;
    } else if (!(*slot == *value)) {
      conflicts_.insert(tv->id());
    }
  }

  // Dim `pd` of p and dim `cd` of c are the same positions, unless one stretches.
  void same(const TensorView* p, size_t pd, const TensorView* c, size_t cd) {
    Known& parent = known(p);
    Known& child = known(c);
    if (!(parent.shape[pd] == child.shape[cd])) {
      return;
    }
    if (parent.index[pd] && child.index[cd]) {
      if (!(*parent.index[pd] == *child.index[cd])) {
        conflicts_.insert(c->id());
        conflicts_.insert(p->id());
      }
      return;
    }
    set(c, child.index[cd], parent.index[pd]);
    set(p, parent.index[pd], child.index[cd]);
  }

  void reshape(const TensorView* from, const TensorView* to) {
    const Partial& known = of(from);
    if (std::any_of(known.begin(), known.end(), [](const auto& k) { return !k; })) {
      return;
    }
    std::vector<IntExpr> index;
    for (const auto& k : known) {
      index.push_back(*k);
    }
    std::vector<IntExpr> result = reshapeIndex(index, from->shape(), to->shape());
    for (size_t d = 0; d < result.size(); d++) {
      if (!of(to)[d]) {
        set(to, of(to)[d], result[d]);
      }
    }
  }

  void visit(const Expr& e) {
    if (e.outputs().size() != 1 || !e.output()->isTensor()) {
      return;
    }
    const TensorView* c = e.tensorOutput();
    switch (e.kind()) {
      case ExprKind::Set:
      case ExprKind::SegmentSet:
      case ExprKind::Point:
      case ExprKind::Cast:
      case ExprKind::BitCast:
      case ExprKind::Expand:
        for (const TensorView* p : e.tensorInputs()) {
          for (size_t d = 0; d < known(p).shape.size(); d++) {
            same(p, d, c, d);
          }
        }
        return;
      case ExprKind::Broadcast:
        flagged(e.tensorInputs()[0], c, e.attributes().flags);
        return;
      case ExprKind::Squeeze:
        flagged(c, e.tensorInputs()[0], e.attributes().flags);
        return;
      case ExprKind::Permute:
        for (size_t d = 0; d < e.attributes().order.size(); d++) {
          same(e.tensorInputs()[0], static_cast<size_t>(e.attributes().order[d]), c, d);
        }
        return;
      case ExprKind::Reshape:
        reshape(e.tensorInputs()[0], c);
        reshape(c, e.tensorInputs()[0]);
        return;
      case ExprKind::Reduce: {
        size_t cd = 0;
        const TensorView* p = e.tensorInputs()[0];
        for (size_t d = 0; d < c->getLogicalDomain().size(); d++) {
          if (!c->getLogicalDomain()[d]->isReduction()) {
            same(p, d, c, cd++);
          }
        }
        return;
      }
      case ExprKind::Slice:
      case ExprKind::Pad:
      case ExprKind::Cat:
      case ExprKind::Matmul:
      case ExprKind::Linear:
      case ExprKind::Full:
      case ExprKind::Iota:
      case ExprKind::Eye:
      case ExprKind::Random:
      case ExprKind::TakeAlongAxis:
      case ExprKind::Gather:
      case ExprKind::IndexSelect:
      case ExprKind::Embedding:
      case ExprKind::Redistribute:
      case ExprKind::Communicate:
        return;
    }
  }

  // `wide` has the dims of `narrow` where flags are false.
  void flagged(const TensorView* narrow, const TensorView* wide, const std::vector<bool>& flags) {
    size_t n = 0;
    for (size_t d = 0; d < flags.size(); d++) {
      if (!flags[d]) {
        same(narrow, n++, wide, d);
      }
    }
  }

  const Group& group_;
  std::unordered_map<int, Known> known_;  // by Val id; never iterated
  std::set<int> conflicts_;
  bool changed_ = false;
};

IntExpr product(const std::vector<IntExpr>& extents) {
  IntExpr n = 1;
  for (const IntExpr& e : extents) {
    n *= e;
  }
  return n;
}

bool larger(const IntExpr& a, const IntExpr& b) {
  if (a.isConst() && b.isConst()) {
    return a.constValue() > b.constValue();
  }
  return provenLess(b, a);
}

const TensorView* chooseReference(const Group& group) {
  const TensorView* best = nullptr;
  for (const Expr* e : group.exprs) {
    if (e->kind() == ExprKind::Reduce) {
      const TensorView* p = e->tensorInputs()[0];
      if (best == nullptr || larger(product(p->shape()), product(best->shape()))) {
        best = p;
      }
    }
  }
  if (best != nullptr) {
    return best;
  }
  for (const TensorView* o : group.outputs) {
    if (best == nullptr || larger(product(o->shape()), product(best->shape()))) {
      best = o;
    }
  }
  return best;
}

// How many rounds of reductions each tensor of the group waits for.
std::map<int, int> roundsBefore(const Group& group, std::map<int, int>& roundOf) {
  std::map<int, int> before;
  for (const Expr* e : group.exprs) {
    int n = 0;
    for (const TensorView* p : e->tensorInputs()) {
      if (auto it = before.find(p->id()); it != before.end()) {
        n = std::max(n, it->second);
      }
    }
    if (e->kind() == ExprKind::Reduce) {
      roundOf[e->output()->id()] = n++;
    }
    for (const Val* out : e->outputs()) {
      before[out->id()] = n;
    }
  }
  return before;
}

bool rewritesPositions(ExprKind kind) {
  switch (kind) {
    case ExprKind::Slice:
    case ExprKind::Pad:
    case ExprKind::Cat:
    case ExprKind::TakeAlongAxis:
    case ExprKind::Gather:
    case ExprKind::IndexSelect:
    case ExprKind::Embedding:
      return true;
    default:
      return false;
  }
}

CoordinatesOrReason refusal(std::string reason) { return {std::nullopt, std::move(reason)}; }

}  // namespace

IntExpr referenceDim(int dim, const IntExpr& extent) {
  return IntExpr::symbol(fmt::format("d{}", dim),
                         {0, extent.upper() ? std::max<int64_t>(0, *extent.upper() - 1) : INT64_MAX, 1});
}

bool dependsOnReduced(const Coordinates& coordinates, const IntExpr& index) {
  for (size_t d = 0; d < coordinates.extents.size(); d++) {
    if (coordinates.reduced[d] && index.contains(fmt::format("d{}", d))) {
      return true;
    }
  }
  return false;
}

CoordinatesOrReason findCoordinates(const Group& group) {
  const TensorView* reference = chooseReference(group);
  if (reference == nullptr) {
    return refusal("the group has no output");
  }
  Coordinates result;
  Propagation propagation(group);
  result.extents = reference->shape();
  result.reduced.assign(result.extents.size(), false);
  for (size_t d = 0; d < result.extents.size(); d++) {
    if (!result.extents[d].isConst(1)) {
      propagation.of(reference)[d] = referenceDim(static_cast<int>(d), result.extents[d]);
    }
  }
  propagation.run();
  result.conflicted = propagation.anyConflict();

  std::map<int, int> before = roundsBefore(group, result.round);
  auto indexOf = [&](const TensorView* tv) -> std::optional<std::vector<IntExpr>> {
    std::vector<IntExpr> index;
    for (const std::optional<IntExpr>& i : propagation.of(tv)) {
      if (!i) {
        return std::nullopt;
      }
      index.push_back(*i);
    }
    return index;
  };

  // The reduced dims: those of the first reduction over the reference; every other reduction must run over the same.
  bool first = true;
  for (const Expr* e : group.exprs) {
    if (e->kind() != ExprKind::Reduce) {
      continue;
    }
    const TensorView* p = e->tensorInputs()[0];
    const TensorView* c = e->tensorOutput();
    std::optional<std::vector<IntExpr>> index = indexOf(p);
    if (!index) {
      return refusal(fmt::format("{} reduces {}, whose dims are not those of {}", c->toString(), p->toString(),
                                 reference->toString()));
    }
    std::vector<bool> reduced(result.extents.size(), false);
    for (size_t d = 0; d < index->size(); d++) {
      if (!c->getLogicalDomain()[d]->isReduction() || (*index)[d].isConst(0)) {
        continue;
      }
      if (!(*index)[d].isSymbol()) {
        return refusal(fmt::format("{} reduces a dim of {} that is not a dim of {}", c->toString(), p->toString(),
                                   reference->toString()));
      }
      reduced[static_cast<size_t>(std::stoi(std::string((*index)[d].symbolName().substr(1))))] = true;
    }
    if (first) {
      result.reduced = reduced;
      first = false;
    } else if (reduced != result.reduced) {
      return refusal(fmt::format("{} reduces other dims than the reductions before it", c->toString()));
    }
    result.rounds = std::max(result.rounds, result.round[c->id()] + 1);
  }

  for (const Expr* e : group.exprs) {
    for (const TensorView* p : e->tensorInputs()) {
      bool afterReduction = before.contains(p->id()) && before[p->id()] > 0;
      if (!afterReduction) {
        continue;
      }
      if (rewritesPositions(e->kind())) {
        return refusal(fmt::format("{} reads {}, which follows a reduction, at other positions",
                                   e->output()->toString(), p->toString()));
      }
      if (propagation.isConflicted(p) || !indexOf(p)) {
        return refusal(fmt::format("{}, which follows a reduction, is needed at two positions", p->toString()));
      }
    }
    // judged before anything reads it: what joins later without a look has the same positions
    const Val* out = e->output();
    if (out->isTensor() && before[out->id()] > 0 && propagation.isConflicted(out->asTensor())) {
      return refusal(fmt::format("{}, which follows a reduction, has two positions", out->toString()));
    }
  }

  for (const Expr* e : group.exprs) {
    for (const Val* out : e->outputs()) {
      if (!out->isTensor()) {
        continue;
      }
      if (std::optional<std::vector<IntExpr>> index = indexOf(out->asTensor())) {
        result.index[out->id()] = *index;
      }
    }
  }
  for (const TensorView* in : group.inputs) {
    if (std::optional<std::vector<IntExpr>> index = indexOf(in)) {
      result.index[in->id()] = *index;
    }
  }

  // A reduction's result does not run over reduced dims, and each output is written exactly once.
  for (const auto& [id, round] : result.round) {
    auto it = result.index.find(id);
    if (it == result.index.end() || std::any_of(it->second.begin(), it->second.end(),
                                                [&](const IntExpr& i) { return dependsOnReduced(result, i); })) {
      return refusal(fmt::format("the result T{} of a reduction has no index of its own", id));
    }
  }
  for (const TensorView* out : group.outputs) {
    auto it = result.index.find(out->id());
    if (it == result.index.end()) {
      return refusal(fmt::format("output {} has no index over the dims of {}", out->toString(), reference->toString()));
    }
    std::vector<bool> used(result.extents.size(), false);
    for (const IntExpr& i : it->second) {
      for (size_t d = 0; d < used.size(); d++) {
        used[d] = used[d] || i.contains(fmt::format("d{}", d));
      }
    }
    bool full = true;
    bool row = result.hasReduction();
    IntExpr positions = 1;
    for (size_t d = 0; d < used.size(); d++) {
      positions *= used[d] ? result.extents[d] : IntExpr(1);
      bool trivial = result.extents[d].isConst(1);
      full = full && (used[d] || trivial);
      row = row && (used[d] != result.reduced[d] || trivial);
    }
    if (!(positions == product(out->shape()))) {  // [d0, d0]: an outer product of what is one dim elsewhere
      return refusal(fmt::format("output {} has more elements than the dims of {} it runs over", out->toString(),
                                 reference->toString()));
    }
    if (!full && !row) {
      return refusal(
          fmt::format("output {} covers only a part of the dims of {}", out->toString(), reference->toString()));
    }
  }
  return {std::move(result), {}};
}

}  // namespace meshfuse
