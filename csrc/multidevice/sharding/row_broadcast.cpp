#include "multidevice/sharding/row_broadcast.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"
#include "multidevice/sharding/plan_options.h"
#include "multidevice/sharding/relation.h"

namespace meshfuse {

namespace {

bool isPoint(const Val* val, PointOp op) {
  const Expr* e = val->definition();
  return e != nullptr && e->kind() == ExprKind::Point && e->attributes().point == op;
}

bool isOver(const IntExpr& expr, const std::vector<Val*>& inputs) {
  return std::ranges::all_of(expr.symbols(), [&](const std::string& symbol) {
    return std::ranges::any_of(inputs, [&](const Val* in) {
      return !in->isTensor() && in->dtype() == DataType::Int && in->intExpr().isSymbol() &&
             in->intExpr().symbolName() == symbol;
    });
  });
}

// The value of a tensor of one element, modulo `extent`.
std::optional<IntExpr> elementOf(const Val* val, const IntExpr& extent) {
  const Expr* e = val->definition();
  if (e == nullptr) {
    return std::nullopt;
  }
  if (e->kind() == ExprKind::Full && e->input(0)->dtype() == DataType::Int) {
    return mod(e->input(0)->intExpr(), extent);
  }
  if (e->kind() == ExprKind::Set || e->kind() == ExprKind::Redistribute || isPoint(val, PointOp::CheckedIndex)) {
    return elementOf(e->input(0), extent);
  }
  // rows from the end: where(i < 0, i + extent, i)
  if (isPoint(val, PointOp::Where) && isPoint(e->input(0), PointOp::Lt) && isPoint(e->input(1), PointOp::Add)) {
    const Expr* isNegative = e->input(0)->definition();
    const Expr* moved = e->input(1)->definition();
    const Val* number = e->input(2);
    const Val* by = moved->input(1);
    if (isNegative->input(0) == number && !isNegative->input(1)->isTensor() &&
        isNegative->input(1)->intExpr().isConst(0) && moved->input(0) == number && !by->isTensor() &&
        by->dtype() == DataType::Int && by->intExpr() == extent) {
      return elementOf(number, extent);
    }
  }
  return std::nullopt;
}

// Where the part of a row begins in the padded dim: the part is the last one that begins at or before the row.
IntExpr placeOfPart(const IntExpr& row, const std::vector<IntExpr>& parts) {
  IntExpr part = 0;
  IntExpr begin = 0;
  for (int64_t k = 0; k + 1 < std::ssize(parts); k++) {
    begin += parts[k];
    part += min(1, max(0, row + 1 - begin));
  }
  return part * largestOf(parts);
}

}  // namespace

std::optional<IntExpr> rowNumber(const Expr* expr) {
  if (expr->kind() != ExprKind::IndexSelect || !expr->input(1)->isTensor() ||
      !expr->input(1)->asTensor()->shape()[0].isConst(1)) {
    return std::nullopt;
  }
  const IntExpr extent = expr->input(0)->asTensor()->shape()[expr->attributes().dim];
  if (!extent.isConst() || extent.isConst(0)) {
    return std::nullopt;
  }
  std::optional<IntExpr> row = elementOf(expr->input(1), extent);
  return row && isOver(*row, expr->fusion().inputs()) ? row : std::nullopt;
}

std::optional<HaloExchange> rowBroadcast(const Expr* expr) {
  const std::optional<IntExpr> row = rowNumber(expr);
  if (!row) {
    return std::nullopt;
  }
  const TensorView* table = expr->input(0)->asTensor();
  const TensorView* result = expr->tensorOutput();
  const ShardState made = shardState(result);
  ShardState held = shardState(table);
  const int64_t dim = expr->attributes().dim;
  if (!(held.mesh == made.mesh) || table->isPartial() || result->isPartial() || !held.isConstant() ||
      !made.isConstant() || edgeRelation(expr, 1, result).relation == EdgeRelation::Comm) {
    return std::nullopt;
  }
  const DigitList digits = held.dims[dim];
  held.dims[dim] = DigitList::whole(dim, digits.extent());
  HaloExchange broadcast;
  broadcast.to = made.mesh;
  broadcast.step.kind = Collective::Broadcast;
  for (int64_t axis = 0; axis < held.mesh.numAxes(); axis++) {
    if (owns(digits, axis)) {
      broadcast.broadcastAxes.push_back(axis);
      broadcast.step.axes.push_back(held.mesh.axisName(axis));
    }
  }
  const std::optional<ShardState> needed = edgeRelation(expr, 0, result).needed;
  const auto isUsed = [&](int64_t axis) { return held.owns(axis) || made.owns(axis); };
  if (broadcast.broadcastAxes.empty() || std::ranges::any_of(broadcast.broadcastAxes, isUsed) || !needed ||
      !provenEqual(held, *needed) || !digits.isRange()) {  // the rows of a rank are contiguous
    return std::nullopt;
  }
  // the owner's coordinates are digits of the row's number, and its position among the ranks follows from them
  const IntExpr counted = digits.hasParts() ? placeOfPart(*row, digits.digits().front().parts) : *row;
  for (const Digit& d : digits.digits()) {
    if (d.owner.isLocal()) {
      continue;
    }
    IntExpr place = d.owner.below;
    for (int64_t axis : broadcast.broadcastAxes) {
      place = axis > d.owner.axis ? place * held.mesh.axisSize(axis) : place;
    }
    broadcast.root = broadcast.root + mod(floorDiv(counted, d.stride), d.size) * place;
  }
  broadcast.received = productOf(made.dims, [](const DigitList& d) { return d.localSize().constValue(); });
  const int64_t team = made.mesh.teamSize(broadcast.broadcastAxes);
  broadcast.total = broadcast.received * (made.mesh.numDevices() / team) * (team - 1);
  const PlannerSettings& prices = expr->fusion().planner();
  broadcast.cost = costAlong(broadcast.step.axes, prices.alpha) +
                   costAlong(broadcast.step.axes, prices.beta) * static_cast<double>(broadcast.received);
  return broadcast;
}

}  // namespace meshfuse
