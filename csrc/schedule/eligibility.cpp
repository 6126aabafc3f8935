#include "schedule/eligibility.h"

#include <fmt/core.h>

#include <algorithm>

#include "ir/fusion.h"
#include "schedule/demands.h"

namespace meshfuse {

namespace {

std::optional<std::string> refuseOp(const Group& group, const Expr& e) {
  auto isInput = [&](const TensorView* tv) {
    return std::find(group.inputs.begin(), group.inputs.end(), tv) != group.inputs.end();
  };
  switch (e.kind()) {
    case ExprKind::Matmul:
    case ExprKind::Linear:
    case ExprKind::Scan:
    case ExprKind::ArgSort:
      return fmt::format("{} is a library call", e.opName());
    case ExprKind::Redistribute:
    case ExprKind::Communicate:
      return fmt::format("{} is communication", e.opName());
    case ExprKind::BitCast:
      return "a bit cast is an alias";
    case ExprKind::SegmentSet:
      return isInput(e.tensorInputs()[0]) ? std::nullopt
                                          : std::optional<std::string>("a segment_set asks for a boundary");
    case ExprKind::TakeAlongAxis:
    case ExprKind::Gather:
    case ExprKind::IndexSelect:
      return isInput(e.tensorInputs()[0])
                 ? std::nullopt
                 : std::optional<std::string>(fmt::format("{} indexes data made in the group", e.opName()));
    case ExprKind::Embedding:
      return isInput(e.tensorInputs()[1]) ? std::nullopt
                                          : std::optional<std::string>("embedding indexes a table made in the group");
    default:
      return std::nullopt;
  }
}

}  // namespace

Eligibility rowEligibility(const Group& group) {
  for (const Expr* e : group.exprs) {
    if (std::optional<std::string> reason = refuseOp(group, *e)) {
      return {std::move(reason), {}};
    }
  }
  CoordinatesOrReason found = findCoordinates(group);
  if (!found.coordinates) {
    return {std::move(found.reason), {}};
  }
  if (found.coordinates->readsMove) {
    if (std::string reason = refuseDemands(group, *found.coordinates); !reason.empty()) {
      return {std::move(reason), {}};
    }
  }
  if (std::string reason = refuseSweeps(group, *found.coordinates); !reason.empty()) {
    return {std::move(reason), {}};
  }
  return {std::nullopt, std::move(*found.coordinates)};
}

}  // namespace meshfuse
