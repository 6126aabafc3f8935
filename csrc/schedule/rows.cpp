#include "schedule/rows.h"

#include <algorithm>
#include <ranges>

#include "base/ranges.h"
#include "base/rounding.h"
#include "ir/fusion.h"
#include "ir/point_work.h"
#include "schedule/eligibility.h"
#include "schedule/extents.h"
#include "schedule/row_writer.h"

namespace meshfuse {

bool isCostly(const Group& group) {
  return std::ranges::any_of(
      group.exprs, [](const Expr* e) { return e->kind() == ExprKind::Point && isFunction(e->attributes().point); });
}

// The terms of one sum, where `sums` such sums are added up: b terms of one sign add b / (3 sums) to the squared error, terms of both
// signs b / 2. A tree of n terms has 2 and log2(n) in their place.
std::vector<tile::Builder::DigitSpec> summingPart(int64_t steps, int64_t each, int64_t lanes) {
  std::vector<tile::Builder::DigitSpec> digits;
  int64_t sums = powerAtMost(lanes);
  int64_t left = std::max<int64_t>(steps, 1);
  while (left > 2) {
    const int64_t terms = left * each;
    if (terms <= (sums < 4 ? 16 : sums >= 64 && digits.empty() ? 64 : 32)) {
      break;
    }
    const int64_t most = sums > 1 ? std::min<int64_t>(4 * sums, 32) : terms <= 256 ? 8 : 4;
    const int64_t block = terms < 64 ? 8 : terms < 128 ? 16 : 32;
    const int64_t size =
        std::min({most, powerAtLeast(divideUp(terms, block)), powerAtMost(divideUp(left, 2))});  // a power of two
    digits.push_back({tile::Level::Serial, size, ""});
    left = divideUp(left, size);
    sums *= size;
  }
  digits.push_back({tile::Level::Serial, digits.empty() ? left : powerAtLeast(left), ""});
  const int64_t inBlock = productOf(digits | std::views::drop(1), [](const auto& d) { return d.size.constValue(); });
  digits[0].size = divideUp(std::max<int64_t>(steps, 1), inBlock);
  return digits;
}

std::vector<tile::Builder::DigitSpec> summing(int64_t steps, int64_t each, int64_t lanes) {
  std::vector<tile::Builder::DigitSpec> digits = summingPart(steps, each, lanes);
  digits[0].size = 0;
  return digits;
}

int64_t stepWidth(const std::vector<tile::Builder::DigitSpec>& n) {
  return productOf(n, [](const auto& d) { return tile::isRegister(d.level) ? d.size.constValue() : int64_t{1}; });
}

static RowDigits digitsOf(const RowsJudgement& j, const KernelAxes& axes) {
  RowDigits d;
  if (!axes.M.isConst(1) || !axes.K.isConst(1) || !axes.N.isConst(1)) {  // else one element
    d = j.device.target == tile::Target::Cpu ? cpuDigits(j.group, j.coordinates, axes, j.device)
                                             : gpuDigits(j.group, j.coordinates, axes, j.device);
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

KernelPlan RowsJudgement::writeChoice(size_t i) const {
  const RowDigits cut = i == 0 ? digits : digitsOf(*this, choices[i]);
  KernelPlan plan = RowWriter(group, coordinates, choices[i], cut, device.target, std::string(kind)).write();
  plan.kind = kind;
  return plan;
}

// The longest vector axis that every access runs through.
std::variant<KernelPlan, LibraryCall> RowsJudgement::write() const {
  for (size_t i = 0;; i++) {
    KernelPlan plan = writeChoice(i);
    if (i + 1 == choices.size() || runsThrough(plan.program, "n")) {
      return plan;
    }
  }
}

bool RowsJudgement::readsWhereItWrites(const TensorView* output, const TensorView* input) const {
  return sharePositions(group, coordinates, output, input);
}

Verdict judgeRows(const Group& group, const DeviceInfo& device) {
  CoordinatesOrReason found = rowCoordinates(group);
  if (!found.coordinates) {
    return {nullptr, std::move(found.reason)};
  }
  auto judgement = std::make_unique<const RowsJudgement>(group, std::move(*found.coordinates), device);
  std::optional<std::string> refused = refuseFewRows(*judgement);
  refused = refused ? refused : refuseColumns(*judgement);
  if (refused) {
    return {nullptr, std::move(*refused)};
  }
  return {std::move(judgement), {}};
}

}  // namespace meshfuse
