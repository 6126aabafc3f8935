#include "preseg_passes/concretize.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/ranges.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "ir/input_text.h"
#include "ir/op_rule.h"
#include "ir/reshape.h"
#include "ir/text.h"
#include "ir/window.h"
#include "multidevice/sharding/shard_state.h"
#include "ops/shape_ops.h"

namespace meshfuse {

namespace {

using Ids = std::vector<IterDomain*>;

IntExpr bound(const IntExpr& e, const SymbolValues& values) { return e.substitute(valuesIn(values)); }

IntExpr bound(const IntExpr& e, const SymbolSizes& sizes) {
  return e.substitute([&](std::string_view symbol) {
    const auto known = sizes.find(std::string(symbol));
    return known == sizes.end() ? std::nullopt : std::optional(known->second);
  });
}

// Solves extent == size for the only unknown symbol, if the extent is linear in it.
void solve(const TensorView* tv, int64_t dim, const IntExpr& extent, int64_t size, SymbolValues& values) {
  const IntExpr left = bound(extent, values);
  const std::vector<std::string> open = left.symbols();
  if (open.size() != 1) {
    return;
  }
  std::optional<LinearForm> form = left.linearIn(open[0]);
  if (!form || !form->slope.isConst() || !form->rest.isConst()) {
    return;
  }
  const int64_t slope = form->slope.constValue();
  const int64_t rest = size - form->rest.constValue();
  check(slope != 0 && rest % slope == 0 && rest / slope >= 0,
        "[concretize] dim {} of {} has extent {}, got {} elements; expected a size that a value of {} gives", dim,
        tv->toString(), extent.toString(), size, open[0]);
  values[open[0]] = rest / slope;
}

// Checks the declared facts of the symbols of `e` against their values, because proofs use them.
void checkFacts(const IntExpr& e, const SymbolValues& values) {
  constexpr std::string_view kFix = "; pass another size, or change the declaration";
  for (const IntTerm& term : e.terms()) {
    for (const IntAtomPtr& atom : term.factors) {
      auto known = values.find(atom->key);
      if (atom->kind == AtomKind::Symbol && known != values.end()) {
        const SymbolFacts& facts = atom->facts;
        const int64_t value = known->second;
        check(value >= facts.lower, "[concretize] the size {} is {}, but the program declares that it is at least {}{}",
              atom->key, value, facts.lower, kFix);
        check(value <= facts.upper, "[concretize] the size {} is {}, but the program declares that it is at most {}{}",
              atom->key, value, facts.upper, kFix);
        check(value % facts.divisor == 0,
              "[concretize] the size {} is {}, but the program declares that it is a multiple of {}{}", atom->key,
              value, facts.divisor, kFix);
      }
      for (const IntExpr& argument : atom->args) {
        checkFacts(argument, values);
      }
    }
  }
}

bool anySymbolic(const Ids& dims) { return std::ranges::any_of(dims, &IterDomain::isSymbolic); }

// A dim with its size: a dim of symbolic structure becomes a broadcast dim if its size is 1.
Dim settled(const IterDomain* id, const SymbolSizes& sizes) {
  const IntExpr extent = bound(id->extent(), sizes);
  const IterType awaited = extent.isConst(1) ? IterType::Broadcast : IterType::Iteration;
  return {extent, id->isSymbolic() ? awaited : id->iterType(), id->combine()};
}

// Copies exprs in order. Results whose structure depends on sizes are built again, after their operands are final.
class Concretizer {
 public:
  Concretizer(const Fusion& from, Fusion& to, const SymbolSizes& sizes)
      : to_(to),
        sizes_(sizes),
        cloner_(
            from, to, [this](const IntExpr& e) { return bound(e, sizes_); }, FusionCloner::Numbers::Kept) {}

  Val* cloneInput(const Val* in) { return cloner_.clone(in); }
  Val* find(const Val* val) const { return cloner_.find(val); }
  void standsFor(const Val* val, Val* copy) { cloner_.set(val, copy); }

  void add(const Expr* e) {
    if (ruleOf(*e).form == OpForm::Line) {
      checkLine(e);
    }
    if (!e->output()->isTensor()) {
      cloner_.clone(e);
    } else if (e->kind() == ExprKind::Reshape) {
      reshape(e);
    } else if (e->kind() == ExprKind::Expand) {
      expand(e);
    } else if (anySymbolic(e->tensorOutput()->getRootDomain()) || anySymbolic(e->tensorOutput()->getLogicalDomain())) {
      settle(e);
    } else {
      cloner_.clone(e);
    }
  }

 private:
  std::vector<IntExpr> boundAll(const std::vector<IntExpr>& exprs) const {
    return mapped(exprs, [&](const IntExpr& e) { return bound(e, sizes_); });
  }

  std::vector<Dim> settledDims(const Ids& ids) const {
    return mapped(ids, [&](const IterDomain* id) { return settled(id, sizes_); });
  }

  // Dims like the first operand's, which is copied.
  std::vector<Dim> operandDims(const Expr* e) { return dimsOf(cloner_.clone(e->input(0))->asTensor()); }

  // The copy of `e` with `fresh` in the place of its result.
  void replace(const Expr* e, TensorView* fresh, ExprKind kind) {
    const TensorView* old = e->tensorOutput();
    fresh->setDeviceMesh(old->getDeviceMesh());
    std::vector<LoopTransform> transforms = old->loopTransforms();
    for (LoopTransform& t : transforms) {
      t.factor = bound(t.factor, sizes_);
      t.sizes = boundAll(t.sizes);
    }
    fresh->applyLoopTransforms(transforms);
    fresh->copyAllocation(*old);
    fresh->setUserSharded(old->isUserSharded());
    ExprAttributes attributes = e->attributes();
    attributes.starts = boundAll(attributes.starts);
    attributes.stops = boundAll(attributes.stops);
    attributes.steps = boundAll(attributes.steps);
    std::vector<Val*> inputs = mapped(e->inputs(), [&](const Val* in) { return cloner_.clone(in); });
    to_.renumber(fresh, old->id());
    cloner_.set(old, fresh);
    to_.addExpr(kind, std::move(inputs), {fresh}, std::move(attributes));
  }

  // The result has at most as many elements along its dim as the operand.
  void checkLine(const Expr* e) const {
    const int64_t axis = e->attributes().dim;
    const IntExpr wanted = bound(e->tensorOutput()->shape()[axis], sizes_);
    const IntExpr extent = bound(e->input(0)->asTensor()->shape()[axis], sizes_);
    check(!provenLess(extent, wanted),
          "[{}] {} elements of dim {} of {} are requested, but it has {}; request no more than that", e->calledName(),
          wanted.toString(), axis, operandText(e->input(0)), extent.toString());
  }

  void reshape(const Expr* e) {
    const TensorView* old = e->tensorOutput();
    const std::vector<IntExpr> shape = boundAll(old->shape());
    const std::vector<Dim> root = operandDims(e);
    const std::vector<IntExpr> from = mapped(root, &Dim::extent);
    check(!provenUnequal(product(from), product(shape)),
          "[{}] {} of sizes {} has {} elements, sizes {} make {}; expected equal numbers", e->calledName(),
          operandText(e->input(0)), toString(from), product(from).toString(), toString(shape),
          product(shape).toString());
    const Ids& logical = old->getLogicalDomain();
    const Ids& rootIds = old->getRootDomain();
    const bool connected = std::ranges::all_of(logical, [&](const IterDomain* id) {
      return id->definition() != nullptr || id->isBroadcast() || contains(rootIds, id);
    });
    if (connected && !anySymbolic(logical) && !anySymbolic(rootIds)) {
      cloner_.clone(e);
      return;
    }
    const auto connect = [&](Fusion& f, const Ids& ids) { return connectReshape(f, ids, shape); };
    replace(e, to_.tensorFromRoot(old->dtype(), root, connect), ExprKind::Reshape);
  }

  // An iteration dim of one element that stretches is made a broadcast dim first.
  void expand(const Expr* e) {
    const TensorView* old = e->tensorOutput();
    const std::vector<Dim> from = operandDims(e);
    const std::vector<Dim> to = settledDims(old->getLogicalDomain());
    bool stretches = from.size() != to.size();
    std::vector<bool> plainOnes(from.size(), false);
    for (int64_t k = 0; k < std::ssize(from) && k < std::ssize(to); k++) {
      const bool equal = from[k].extent == to[k].extent;
      stretches |= !equal;
      check(equal || from[k].extent.isConst(1) || !provenUnequal(from[k].extent, to[k].extent),
            "[{}] dim {} of {} has extent {}, got {}; only a dim of extent 1 stretches", e->calledName(), k,
            operandText(e->input(0)), from[k].extent.toString(), to[k].extent.toString());
      plainOnes[k] = !equal && from[k].extent.isConst(1) && from[k].type != IterType::Broadcast;
    }
    Val* operand = cloner_.clone(e->input(0));
    if (contains(plainOnes, true)) {
      cloner_.set(e->input(0), broadcast(squeeze(operand->asTensor(), plainOnes), plainOnes));
    }
    replace(e, to_.tensor(old->dtype(), to), stretches ? ExprKind::Expand : ExprKind::Set);
    cloner_.set(e->input(0), operand);  // for its other uses
  }

  void settle(const Expr* e) {
    const TensorView* old = e->tensorOutput();
    const ExprAttributes& a = e->attributes();
    const auto fromRoot = [&](const auto& connect) {
      return to_.tensorFromRoot(old->dtype(), operandDims(e), connect);
    };
    TensorView* fresh = nullptr;
    if (e->kind() == ExprKind::Permute) {
      fresh = fromRoot([&](Fusion&, const Ids& root) { return mapped(a.order, [&](int64_t k) { return root[k]; }); });
    } else if (e->kind() == ExprKind::Slice) {
      fresh = fromRoot([&](Fusion& f, const Ids& root) {
        return connectSlice(f, root, boundAll(a.starts), boundAll(a.stops), boundAll(a.steps));
      });
    } else if (e->kind() == ExprKind::Pad) {
      fresh = fromRoot(
          [&](Fusion& f, const Ids& root) { return connectPad(f, root, boundAll(a.starts), boundAll(a.stops)); });
    } else {
      check(!old->hasRoot(), "[concretize] {} = {}: a tensor with a symbolic dim has a root domain; leave out root[..]",
            old->toString(), e->opName());
      fresh = to_.tensor(old->dtype(), settledDims(old->getLogicalDomain()));
    }
    replace(e, fresh, e->kind());
  }

  Fusion& to_;
  const SymbolSizes& sizes_;
  FusionCloner cloner_;
};

}  // namespace

SymbolValues bindSymbols(const Fusion& fusion, std::span<const std::vector<int64_t>> sizes) {
  check(sizes.size() == fusion.inputs().size(),
        "[concretize] got {} shapes, the fusion has {} inputs; give one for each input", sizes.size(),
        fusion.inputs().size());
  const auto shapes = mapped(
      fusion.inputs(), [](const Val* in) { return in->isTensor() ? in->asTensor()->shape() : std::vector<IntExpr>(); });
  SymbolValues values;
  // Two rounds, because an extent may contain a symbol whose value a later input gives.
  for (int64_t round = 0; round < 2; round++) {
    for (int64_t i = 0; i < std::ssize(sizes); i++) {
      const Val* in = fusion.inputs()[i];
      if (!in->isTensor()) {
        if (in->dtype() == DataType::Int && !sizes[i].empty()) {
          values[std::string(in->intExpr().symbolName())] = sizes[i][0];
        }
        continue;
      }
      const std::vector<IntExpr>& shape = shapes[i];
      const bool hasElements =
          shape.size() == 1 && shape[0].isConst() && std::ssize(sizes[i]) == 1 + shape[0].constValue();
      check(hasElements || sizes[i].size() == shape.size(),
            "[concretize] {} has {} dims, got {} sizes; give one for each dim", InputText{fusion, i}, shape.size(),
            sizes[i].size());
      for (int64_t k = 1; k < std::ssize(sizes[i]) && hasElements; k++) {
        values[std::string(in->asTensor()->element(k - 1).symbolName())] = sizes[i][k];
      }
      for (int64_t k = 0; k < std::ssize(shape); k++) {
        if (!shape[k].isConst()) {
          solve(in->asTensor(), k, shape[k], sizes[i][k], values);
        }
      }
    }
  }
  for (int64_t i = 0; i < std::ssize(sizes); i++) {
    const Val* in = fusion.inputs()[i];
    const std::vector<IntExpr>& shape = shapes[i];
    for (const int64_t k : indices(shape)) {
      const IntExpr extent = bound(shape[k], values);
      if (!extent.isConst(sizes[i][k])) {
        throwUserError(fmt::format(
            "[concretize] dim {} of {} is {}, expected {}{}", k, inputText(fusion, i), sizes[i][k], shape[k].toString(),
            extent.isConst() && !shape[k].isConst() ? fmt::format(" = {}", extent.constValue()) : ""));
      }
      checkFacts(shape[k], values);
    }
    if (!in->isTensor() && in->dtype() == DataType::Int) {
      checkFacts(in->intExpr(), values);
    }
  }
  return values;
}

namespace {

// Shardings that spread while sizes were unknown assume that axes divide the dims. Where the sizes do not, a part may be no rectangle:
// such a tensor becomes whole on every rank. The user's shardings stay.
void replicateWhatNoRankHolds(Fusion& fusion) {
  const std::vector<TensorView*> tensors = fusion.tensors();
  if (std::ranges::none_of(tensors, &TensorView::isUserSharded)) {
    return;  // no sharding has spread
  }
  for (TensorView* tv : tensors) {
    const bool isPlaced = tv->hasDeviceMesh() && !tv->isUserSharded() && !tv->isFusionInput() && !tv->isPartial();
    if (isPlaced && !tv->getDeviceMesh().isSymbolic() && shardState(tv).hasOpaqueDim()) {
      setShardState(tv, ShardState::replicated(tv->getDeviceMesh(), tv->shape()));
    }
  }
}

}  // namespace

std::unique_ptr<Fusion> concretize(const Fusion& fusion, const SymbolSizes& sizes) {
  auto copy = std::make_unique<Fusion>();
  copy->setPlanner(fusion.planner());
  Concretizer concretizer(fusion, *copy, sizes);
  for (const int64_t k : indices(fusion.inputs())) {
    const Val* in = fusion.inputs()[k];
    if (!in->isTensor() && in->dtype() == DataType::Int && sizes.contains(std::string(in->intExpr().symbolName()))) {
      // it stays an input without readers: they read the size now
      Val* unread = copy->inputScalar(DataType::Int);
      copy->renumber(unread, in->id());
      copy->addInput(unread, fusion.inputNames()[k]);
      if (!fusion.uses(in).empty()) {
        concretizer.standsFor(in, copy->intScalar(sizes.at(std::string(in->intExpr().symbolName()))));
      }
    } else {
      copy->addInput(concretizer.cloneInput(in), fusion.inputNames()[k]);
    }
  }
  for (const Expr* e : fusion.exprs()) {
    concretizer.add(e);
  }
  for (const int64_t k : indices(fusion.outputs())) {
    copy->addOutput(concretizer.find(fusion.outputs()[k]), fusion.outputNames()[k]);
  }
  for (const auto& [out, in] : fusion.aliases()) {
    copy->aliasOutputToInput(concretizer.find(out), concretizer.find(in));
  }
  const std::string list = joined(verify(*copy), "", [](const std::string& violation) { return "\n  " + violation; });
  check(list.empty(), "[concretize] the sizes of the inputs do not fit the fusion:{}", list);
  replicateWhatNoRankHolds(*copy);
  return copy;
}

std::unique_ptr<Fusion> concretize(const Fusion& fusion, const SymbolValues& values) {
  return concretize(fusion, SymbolSizes(values.begin(), values.end()));
}

std::unique_ptr<Fusion> concretize(const Fusion& fusion, std::span<const std::vector<int64_t>> sizes) {
  return concretize(fusion, bindSymbols(fusion, sizes));
}

}  // namespace meshfuse
