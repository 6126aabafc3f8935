#include "preseg_passes/concretize.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "ir/reshape.h"
#include "ir/text.h"

namespace meshfuse {

namespace {

IntExpr bound(const IntExpr& e, const SymbolValues& values) {
  return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
    auto known = values.find(std::string(symbol));
    return known == values.end() ? std::nullopt : std::optional<IntExpr>(known->second);
  });
}

// extent == size, solved for the one symbol that is still open, if it is linear in it.
void solve(const TensorView* tv, int dim, const IntExpr& extent, int64_t size, SymbolValues& values) {
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
        "[concretize] dim {} of {} has extent {}, got {} elements; no {} makes that", dim, tv->toString(),
        extent.toString(), size, open[0]);
  values[open[0]] = rest / slope;
}

bool hasSymbolicDim(const TensorView* tv) {
  const std::vector<IterDomain*>& dims = tv->getLogicalDomain();
  return std::any_of(dims.begin(), dims.end(), [](const IterDomain* id) { return id->isSymbolic(); });
}

// A dim that awaited its size: a broadcast one if that is 1.
IterType settled(const IterDomain* id) {
  return !id->isSymbolic() ? id->iterType() : id->extent().isConst(1) ? IterType::Broadcast : IterType::Iteration;
}

std::vector<Dim> settledDims(const std::vector<IterDomain*>& ids) {
  std::vector<Dim> dims;
  for (const IterDomain* id : ids) {
    dims.push_back({id->extent(), settled(id)});
  }
  return dims;
}

// Replaces the results of ops whose structure waited for sizes, in order, so that each sees settled operands.
void settle(Fusion& fusion) {
  for (Expr* e : fusion.exprs()) {
    if (!e->output()->isTensor() || !hasSymbolicDim(e->tensorOutput())) {
      continue;
    }
    TensorView* old = e->tensorOutput();
    TensorView* fresh = nullptr;
    if (e->kind() == ExprKind::Reshape) {
      const std::vector<IntExpr> shape = old->shape();
      fresh = fusion.tensorFromRoot(
          old->dtype(), settledDims(e->input(0)->asTensor()->noReductions()),
          [&](Fusion& f, const std::vector<IterDomain*>& root) { return connectReshape(f, root, shape); });
    } else if (e->kind() == ExprKind::Permute) {
      fresh = fusion.tensorFromRoot(old->dtype(), settledDims(e->input(0)->asTensor()->noReductions()),
                                    [&](Fusion&, const std::vector<IterDomain*>& root) {
                                      std::vector<IterDomain*> logical;
                                      for (int k : e->attributes().order) {
                                        logical.push_back(root[k]);
                                      }
                                      return logical;
                                    });
    } else if (!old->hasRoot()) {
      fresh = fusion.tensor(old->dtype(), settledDims(old->getLogicalDomain()));
    } else {
      throwInternalError(fmt::format("[concretize] {} of {} keeps a symbolic dim", e->opName(), old->toString()));
    }
    fresh->setDeviceMesh(old->getDeviceMesh());
    fresh->applyLoopTransforms(old->loopTransforms());
    fresh->copyAllocation(*old);
    const ExprKind kind = e->kind();
    const ExprAttributes attributes = e->attributes();
    const std::vector<Val*> inputs = e->inputs();
    fusion.replaceUses(old, fresh);
    fusion.removeExpr(e);
    fusion.addExpr(kind, inputs, {fresh}, attributes);
  }
}

}  // namespace

SymbolValues bindSymbols(const Fusion& fusion, std::span<const std::vector<int64_t>> sizes) {
  check(sizes.size() == fusion.inputs().size(),
        "[concretize] got {} shapes, the fusion has {} inputs; give one an input", sizes.size(),
        fusion.inputs().size());
  SymbolValues values;
  // Twice: an extent may hold a symbol that a later input gives alone.
  for (int round = 0; round < 2; round++) {
    for (size_t i = 0; i < sizes.size(); i++) {
      const Val* in = fusion.inputs()[i];
      if (!in->isTensor()) {
        if (in->dtype() == DataType::Int && !sizes[i].empty()) {
          values[std::string(in->intExpr().symbolName())] = sizes[i][0];
        }
        continue;
      }
      const std::vector<IntExpr> shape = in->asTensor()->shape();
      check(sizes[i].size() == shape.size(), "[concretize] input {} ({}) has {} dims, got {} sizes; give one a dim", i,
            in->toString(), shape.size(), sizes[i].size());
      for (size_t k = 0; k < shape.size(); k++) {
        solve(in->asTensor(), static_cast<int>(k), shape[k], sizes[i][k], values);
      }
    }
  }
  for (size_t i = 0; i < sizes.size(); i++) {
    const Val* in = fusion.inputs()[i];
    for (size_t k = 0; in->isTensor() && k < sizes[i].size(); k++) {
      const IntExpr extent = bound(in->asTensor()->shape()[k], values);
      check(extent.isConst(sizes[i][k]), "[concretize] dim {} of input {} ({}) is {}, expected {}{}", k, i,
            in->toString(), sizes[i][k], in->asTensor()->shape()[k].toString(),
            extent.isConst() && !in->asTensor()->shape()[k].isConst() ? fmt::format(" = {}", extent.constValue()) : "");
    }
  }
  return values;
}

std::unique_ptr<Fusion> concretize(const Fusion& fusion, const SymbolValues& values) {
  auto copy = std::make_unique<Fusion>();
  FusionCloner cloner(fusion, *copy, [&](const IntExpr& e) { return bound(e, values); });
  for (const Val* in : fusion.inputs()) {
    // A bound Int input stays an input, though nothing needs its value any more.
    copy->addInput(!in->isTensor() && in->dtype() == DataType::Int &&
                           values.count(std::string(in->intExpr().symbolName())) > 0
                       ? copy->inputScalar(DataType::Int)
                       : cloner.clone(in));
  }
  for (const Expr* e : fusion.exprs()) {
    cloner.clone(e);
  }
  for (const Val* out : fusion.outputs()) {
    copy->addOutput(cloner.find(out));
  }
  for (const auto& [out, in] : fusion.aliases()) {
    copy->aliasOutputToInput(cloner.find(out), cloner.find(in));
  }
  settle(*copy);
  std::string list;
  for (const std::string& violation : verify(*copy)) {
    list += "\n  " + violation;
  }
  check(list.empty(), "[concretize] the sizes of the inputs do not fit the fusion:{}", list);
  return copy;
}

std::unique_ptr<Fusion> concretize(const Fusion& fusion, std::span<const std::vector<int64_t>> sizes) {
  return concretize(fusion, bindSymbols(fusion, sizes));
}

}  // namespace meshfuse
