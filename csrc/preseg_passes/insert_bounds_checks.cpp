#include "preseg_passes/insert_bounds_checks.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <variant>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/shard_state.h"
#include "preseg_passes/plain_tensor.h"

namespace meshfuse {

namespace {

// Whether all elements of an iota lie in [0, extent).
bool iotaFits(const Expr* e, const IntExpr& extent) {
  const auto start = e->input(0)->constant();
  const auto step = e->input(1)->constant();
  const int64_t* first = std::get_if<int64_t>(&start);
  const int64_t* by = std::get_if<int64_t>(&step);
  const IntExpr count = e->tensorOutput()->shape()[0];
  if (first == nullptr || by == nullptr || *by < 0 || *first < 0) {
    return false;
  }
  IntExpr from = e->attributes().starts.empty() ? IntExpr(0) : e->attributes().starts[0];
  return provenLess(-1, from) && provenLess((from + count - 1) * *by + *first, extent);
}

bool provenInside(const TensorView* index, const IntExpr& extent) {
  const Expr* e = index->definition();
  while (e != nullptr && ruleOf(*e).elements == Elements::Moved) {
    e = e->input(0)->definition();
  }
  if (e == nullptr) {
    return false;
  }
  if (e->kind() == ExprKind::Iota) {
    return isIntegral(e->output()->dtype()) && iotaFits(e, extent);
  }
  if (ruleOf(*e).elements == Elements::Positions) {
    return provenLessEqual(e->input(0)->asTensor()->shape()[e->attributes().dim], extent);
  }
  return e->kind() == ExprKind::Point && e->attributes().point == PointOp::CheckedIndex &&
         e->input(1)->dtype() == DataType::Int && !e->input(1)->isTensor() &&
         provenLessEqual(e->input(1)->intExpr(), extent);
}

bool isEmpty(const TensorView* tv) {
  return std::ranges::any_of(tv->shape(), [](const IntExpr& e) { return e.isConst(0); });
}

// The state of a check of `index` for `reader`: that of the index, or replicated on the mesh of the reader if the index has no mesh.
ShardState placeOf(const TensorView* index, const TensorView* reader) {
  return index->hasDeviceMesh() || !reader->hasDeviceMesh()
             ? shardState(index)
             : ShardState::replicated(reader->getDeviceMesh(), index->shape());
}

TensorView* checkedIndex(TensorView* index, const IntExpr& extent, const ShardState& place) {
  Fusion& fusion = index->fusion();
  // The check compares in the type of the index, which must hold the extent.
  if (index->dtype() != DataType::Int && !provenLessEqual(extent, highestInteger(index->dtype()))) {
    index = plainOp(ExprKind::Cast, {index}, index, DataType::Int, place);
  }
  TensorView* checked = plainTensor(index, index->dtype(), place);
  fusion.addExpr(ExprKind::Point, {index, fusion.intScalar(extent)}, {checked}, {.point = PointOp::CheckedIndex});
  return checked;
}

}  // namespace

bool insertBoundsChecks(Fusion& fusion, PassContext& /*context*/) {
  std::map<std::tuple<int64_t, std::string, std::string>, TensorView*> checked;  // by index, extent and state
  bool changed = false;
  for (Expr* e : fusion.exprs()) {
    if (!hasIndex(*e)) {
      continue;
    }
    const ExprAttributes& attributes = e->attributes();
    const bool refusesNone = !attributes.flags.empty() && attributes.flags[0];
    const TensorView* table = e->input(tableOf(*e))->asTensor();
    const IntExpr extent = table->shape()[attributes.dim];
    const int64_t operand = indexOf(*e);
    TensorView* index = e->input(operand)->asTensor();
    const bool readsNone = isEmpty(isIndexing(*e) ? e->tensorOutput() : index);
    if (refusesNone || readsNone || provenInside(index, extent)) {
      continue;
    }
    check(!extent.isConst(0), "[{}] dim {} of T{} has no elements for index T{} to choose from; give a longer tensor",
          e->opName(), attributes.dim, table->id(), index->id());
    if (!attributes.starts.empty()) {
      const IntExpr& start = attributes.starts[0];
      check(start.isConst(0),
            "[{}] the text gives table T{} the first row {}, expected 0, because flags say that an index outside of "
            "the table is an error",
            e->opName(), table->id(), start.toString());
    }
    const ShardState place = placeOf(index, e->tensorOutput());
    TensorView*& guard = checked[{index->id(), extent.toString(), place.toString()}];
    if (guard == nullptr) {
      guard = checkedIndex(index, extent, place);
    }
    fusion.replaceInput(e, operand, guard);
    changed = true;
  }
  return changed;
}

}  // namespace meshfuse
