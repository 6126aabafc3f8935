#include "schedule/eligibility.h"

#include <fmt/core.h>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "schedule/recompute_count.h"

namespace meshfuse {

namespace {

std::optional<std::string> refuseOp(const Group& group, const Expr& e) {
  auto isInput = [&](const TensorView* tv) { return contains(group.inputs, tv); };
  switch (ruleOf(e).executor) {
    case Executor::Library:  // of one alone, the templates of library calls say more
      return group.exprs.size() == 1 ? "" : fmt::format("{} is a library call", e.opName());
    case Executor::Ranks:
      return fmt::format("{} is communication", e.opName());
    case Executor::Alias:
      return "a bit cast is an alias";
    case Executor::Kernel:
      break;
  }
  if (e.kind() == ExprKind::SegmentSet && !isInput(e.tensorInputs()[0])) {
    return "a segment_set requires a boundary";
  }
  if (isIndexing(e) && !isInput(e.input(tableOf(e))->asTensor())) {
    return fmt::format("{} indexes {} that the group computes", e.opName(), tableOf(e) == 0 ? "data" : "a table");
  }
  return std::nullopt;
}

}  // namespace

CoordinatesOrReason rowCoordinates(const Group& group) {
  for (const Expr* e : group.exprs) {
    if (std::optional<std::string> reason = refuseOp(group, *e)) {
      return {std::nullopt, std::move(*reason)};
    }
  }
  CoordinatesOrReason found = findCoordinates(group);
  if (!found.coordinates) {
    return found;
  }
  std::string reason = found.coordinates->readsMove ? refuseRecompute(group, *found.coordinates) : std::string();
  reason = reason.empty() ? refuseSweeps(group, *found.coordinates) : reason;
  return reason.empty() ? std::move(found) : CoordinatesOrReason{std::nullopt, std::move(reason)};
}

}  // namespace meshfuse
