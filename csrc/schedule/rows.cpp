#include "schedule/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "schedule/elementwise.h"
#include "schedule/eligibility.h"
#include "schedule/extents.h"
#include "schedule/row_writer.h"

namespace meshfuse {

bool isCostly(PointOp op) {
  using enum PointOp;
  constexpr PointOp kCostly[] = {Exp, Exp2, Erf, Log, Sigmoid, Tanh};
  return contains(kCostly, op) || info(op).scalarCall;
}

bool isCostly(const Group& group) {
  return std::ranges::any_of(
      group.exprs, [](const Expr* e) { return e->kind() == ExprKind::Point && isCostly(e->attributes().point); });
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

int64_t stepWidth(const std::vector<tile::Builder::DigitSpec>& n) {
  return productOf(n, [](const auto& d) { return tile::isRegister(d.level) ? d.size.constValue() : int64_t{1}; });
}

static RowDigits digitsOf(const RowsJudgement& j, const KernelAxes& axes) {
  RowDigits d;
  if (!axes.M.isConst(1) || !axes.K.isConst(1) || !axes.N.isConst(1)) {  // else one element
    d = j.device.target == tile::Target::Cpu ? cpuDigits(j.group, j.coordinates, axes, j.device)
                                             : gpuDigits(j.group, j.coordinates, axes);
  }
  d.streamBytes = j.device.lastCacheBytes / 4;
  return d;
}

RowsJudgement::RowsJudgement(const Group& g, Coordinates c, const DeviceInfo& d)
    : Judgement(g), device(d), coordinates(std::move(c)), choices(axesChoices(coordinates)) {
  const KernelAxes& axes = choices[0];
  digits = digitsOf(*this, axes);
  const bool simple = coordinates.stages == 1 && !coordinates.spreadOutputs();
  kind = !coordinates.hasReduction() ? "pointwise" : simple ? "reduction" : "normalization";
  cost = costOf(group, device);
  loops = coordinates.extents;
  positions = usualExtent(axes.M) * usualExtent(axes.K) * usualExtent(axes.N);
}

// The longest vector axis that every access runs through.
std::variant<KernelPlan, LibraryCall> RowsJudgement::write() const {
  for (size_t i = 0;; i++) {
    const RowDigits cut = i == 0 ? digits : digitsOf(*this, choices[i]);
    KernelPlan plan = RowWriter(group, coordinates, choices[i], cut, device.target, std::string(kind)).write();
    if (i + 1 == choices.size() || runsThrough(plan.program, "n")) {
      plan.kind = kind;
      return plan;
    }
  }
}

bool RowsJudgement::readsWhereItWrites(const TensorView* output, const TensorView* input) const {
  if (coordinates.conflicted || !std::ranges::all_of(group.exprs, [](const Expr* e) { return isElementwise(*e); })) {
    return false;
  }
  const auto in = coordinates.index.find(input->id());
  const auto out = coordinates.index.find(output->id());
  return in != coordinates.index.end() && out != coordinates.index.end() && in->second == out->second;
}

Verdict judgeRows(const Group& group, const DeviceInfo& device) {
  CoordinatesOrReason found = rowCoordinates(group);
  if (!found.coordinates) {
    return {nullptr, std::move(found.reason)};
  }
  return {std::make_unique<const RowsJudgement>(group, std::move(*found.coordinates), device), {}};
}

}  // namespace meshfuse
