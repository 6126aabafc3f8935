#include "schedule/template.h"

#include <algorithm>
#include <array>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "schedule/extents.h"
#include "schedule/library_call.h"
#include "schedule/rows.h"
#include "schedule/scan.h"
#include "schedule/transpose.h"

namespace meshfuse {

namespace {

constexpr std::array kTemplates = {Template{"transpose", judgeTranspose}, Template{"rows", judgeRows},
                                   Template{"scan", judgeScan}, Template{"contraction", judgeContraction},
                                   Template{"routine", judgeRoutine}};

constexpr int64_t kLaunchBytesCpu = 1 << 20;
constexpr int64_t kLaunchMicrosecondsGpu = 5;
constexpr int64_t kUsualBytesPerMicrosecond = 2'000'000;

int64_t launchBytes(const DeviceInfo& device) {
  const int64_t speed = device.gpu.bytesPerMicrosecond;
  return device.target == tile::Target::Cpu ? kLaunchBytesCpu
                                            : kLaunchMicrosecondsGpu * (speed > 0 ? speed : kUsualBytesPerMicrosecond);
}

bool isPointOrCast(const Expr& e) { return e.kind() == ExprKind::Point || e.kind() == ExprKind::Cast; }

// The coordinates of a group do not change with it.
bool hasOneShape(const Expr& e) {
  const std::vector<IntExpr> shape = e.tensorOutput()->shape();
  const std::vector<TensorView*> ins = e.tensorInputs();
  return !ins.empty() && std::ranges::all_of(ins, [&](const TensorView* tv) { return tv->shape() == shape; });
}

}  // namespace

std::span<const Template> allTemplates() { return kTemplates; }

Cost costOf(const Group& group, const DeviceInfo& device) {
  return {.bytes = sumOf(tensorsOf(group), [](const TensorView* tv) { return usualBytes(*tv); }),
          .launch = launchBytes(device)};
}

Verdict judge(const Group& group, const DeviceInfo& device, std::span<const Template> templates) {
  Verdict best;
  for (const Template& t : templates) {
    Verdict verdict = t.judge(group, device);
    if (verdict.judgement == nullptr) {
      best.refusal += (best.refusal.empty() || verdict.refusal.empty() ? "" : "; ") + verdict.refusal;
    } else if (best.judgement == nullptr || verdict.judgement->cost.total() < best.judgement->cost.total()) {
      best.judgement = std::move(verdict.judgement);
    }
  }
  return best;
}

bool takesUnjudged(std::span<Expr* const> exprs, const Expr& next) {
  const Expr& last = *exprs.back();
  const auto isPlain = [](const Expr& e) { return isPointOrCast(e) && hasOneShape(e); };
  const auto isKnown = [&](const TensorView* tv) { return tv->definition() == nullptr || tv->definition() == &last; };
  return isPlain(next) && isPlain(last) && std::ranges::all_of(next.tensorInputs(), isKnown) &&
         std::ranges::none_of(
             exprs, [](const Expr* e) { return e->kind() == ExprKind::Reduce || e->kind() == ExprKind::Scan; });
}

}  // namespace meshfuse
