#include "schedule/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "ir/fusion.h"
#include "schedule/row_writer.h"

namespace meshfuse {

PointOp combineOp(ReduceOp op, DataType type) {
  switch (op) {
    case ReduceOp::Sum:
      return PointOp::Add;
    case ReduceOp::Prod:
      return PointOp::Mul;
    case ReduceOp::Max:
      return PointOp::Maximum;
    case ReduceOp::Min:
      return PointOp::Minimum;
    case ReduceOp::And:
      return type == DataType::Bool ? PointOp::LogicalAnd : PointOp::BitwiseAnd;
    case ReduceOp::Or:
      return type == DataType::Bool ? PointOp::LogicalOr : PointOp::BitwiseOr;
    case ReduceOp::Xor:
      return type == DataType::Bool ? PointOp::LogicalXor : PointOp::BitwiseXor;
  }
  throwInternalError("[rows] unknown reduction");
}

bool isCostly(PointOp op) {
  using enum PointOp;
  switch (op) {
    case Exp:
    case Exp2:
    case Erf:
    case Log:
    case Sigmoid:
    case Tanh:
      return true;
    default:
      return info(op).scalarCall;
  }
}

bool isCostly(const Group& group) {
  return std::any_of(group.exprs.begin(), group.exprs.end(),
                     [](const Expr* e) { return e->kind() == ExprKind::Point && isCostly(e->attributes().point); });
}

std::vector<tile::Builder::DigitSpec> summing(int64_t steps, int64_t each) {
  constexpr int64_t kInOneSum = 4096;
  const int64_t terms = steps * each;
  if (terms <= kInOneSum || steps <= 2) {
    return {{tile::Level::Serial, 0, ""}};
  }
  const auto root = std::bit_ceil(static_cast<uint64_t>(std::sqrt(static_cast<double>(terms))));
  const int64_t block = std::max<int64_t>(kInOneSum / 4, static_cast<int64_t>(root));
  return {{tile::Level::Serial, 0, ""}, {tile::Level::Serial, std::max<int64_t>(2, block / each), ""}};
}

KernelPlan writeRows(const Group& group, const Coordinates& coordinates, const KernelAxes& axes,
                     const RowDigits& digits, tile::Target target, const std::string& name) {
  return RowWriter(group, coordinates, axes, digits, target, name).write();
}

KernelPlan scheduleRows(const Group& group, const DeviceInfo& device, const std::string& name) {
  CoordinatesOrReason found = findCoordinates(group);
  invariant(found.coordinates.has_value(), "[{}] a group was accepted that has no coordinates: {}", name, found.reason);
  std::vector<KernelAxes> choices = axesChoices(*found.coordinates);
  for (size_t i = 0;; i++) {
    RowDigits digits = device.target == tile::Target::Cpu ? cpuDigits(group, *found.coordinates, choices[i], device)
                                                          : gpuDigits(group, *found.coordinates, choices[i], device);
    KernelPlan plan = writeRows(group, *found.coordinates, choices[i], digits, device.target, name);
    if (i + 1 == choices.size() || runsThrough(plan.program, "n")) {
      return plan;
    }
  }
}

}  // namespace meshfuse
