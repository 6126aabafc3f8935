// Joins several collectives into one: concatenates the operands and slices the result.
#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "localize/layout.h"

namespace meshfuse {

namespace {

// The dim of the team comes first, if there is one.
std::vector<IntExpr> flat(const TensorView* tv, bool hasTeam) {
  const std::vector<IntExpr> shape = tv->shape();
  const IntExpr each = product(std::span(shape).subspan(hasTeam ? 1 : 0));
  return hasTeam ? std::vector<IntExpr>{shape[0], each} : std::vector<IntExpr>{each};
}

TensorView* sideBySide(const std::vector<TensorView*>& parts) {
  std::vector<Dim> dims = dimsOf(parts[0]);
  const IntExpr width = sumOf(parts, [](const TensorView* part) { return part->shape().back(); });
  dims.back() = localDim(width, IterType::Iteration);
  return parts[0]->fusion().addOp(ExprKind::Cat, {parts.begin(), parts.end()}, parts[0]->dtype(), dims,
                                  {.dim = std::ssize(dims) - 1});
}

}  // namespace

void packCommunications(Fusion& local, int64_t first, std::vector<TensorView*>& results) {
  std::vector<Expr*> calls;
  for (int64_t id = first; id < local.numExprs(); id++) {
    Expr* e = local.expr(id);
    if (e != nullptr && e->kind() == ExprKind::Communicate) {
      calls.push_back(e);
    }
  }
  if (calls.size() < 2) {
    return;
  }
  const ExprAttributes attributes = calls[0]->attributes();
  const bool reads = traits(attributes.comm.kind).operandHasBlocks;
  const bool writes = traits(attributes.comm.kind).resultHasBlocks;
  std::vector<TensorView*> parts;
  IntExpr width = 0;
  for (const Expr* e : calls) {
    CommAttributes comm = e->attributes().comm;
    comm.number = attributes.comm.number;
    invariant(comm == attributes.comm, "[localize] {} and {} have one pack number, but different collectives",
              calls[0]->output()->toString(), e->output()->toString());
    TensorView* in = e->input(0)->asTensor();
    parts.push_back(addReshape(in, flat(in, reads)));
    width += flat(e->tensorOutput(), writes).back();
  }
  TensorView* packed = sideBySide(parts);
  std::vector<Dim> dims{localDim(width, IterType::Iteration)};
  if (writes) {
    dims.insert(dims.begin(), localDim(calls[0]->tensorOutput()->shape()[0], IterType::Iteration));
  }
  TensorView* received = local.addOp(ExprKind::Communicate, {packed}, packed->dtype(), dims, attributes);

  IntExpr at = 0;
  for (Expr* e : calls) {
    TensorView* was = e->tensorOutput();
    const IntExpr end = at + flat(was, writes).back();
    std::vector<SymbolicRun> runs = wholeRuns(received);
    runs.back() = {at, end - at};
    at = end;
    TensorView* part = addReshape(sliceRuns(received, runs), was->shape());
    local.replaceUses(was, part);
    std::ranges::replace(results, was, part);
    local.removeExpr(e);
  }
}

}  // namespace meshfuse
