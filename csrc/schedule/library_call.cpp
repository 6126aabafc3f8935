#include "schedule/library_call.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "schedule/extents.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

struct CallJudgement final : Judgement {
  CallJudgement(const Group& g, const DeviceInfo& device) : Judgement(g) {
    callsLibrary = true;
    writesAnyLayout = false;
    kind = g.exprs[0]->opName();
    cost = costOf(group, device);
  }
  [[nodiscard]] std::variant<KernelPlan, LibraryCall> write() const override {
    return LibraryCall{group.exprs[0], group.layouts};
  }
  [[nodiscard]] bool readsWhereItWrites(const TensorView*, const TensorView*) const override { return false; }
  [[nodiscard]] std::optional<std::string> refuseParts(const Judgement&, const Judgement&) const override { return {}; }
};

}  // namespace

Verdict judgeContraction(const Group& group, const DeviceInfo& device) {
  const Expr& op = *group.exprs[0];
  if (group.exprs.size() > 1 || !isContraction(op)) {
    return {};
  }
  if (device.refuseContraction == nullptr) {
    return {nullptr, "there is no library for this device"};
  }
  if (std::optional<std::string> refused = device.refuseContraction(op, group.layouts)) {
    return {nullptr, std::move(*refused)};
  }
  auto judgement = std::make_unique<CallJudgement>(group, device);
  const int64_t summed = usualExtent(op.tensorInputs()[0]->shape().back());
  judgement->cost.flops = 2 * summed * usualElements(*op.tensorOutput());
  return {std::move(judgement), {}};
}

Verdict judgeRoutine(const Group& group, const DeviceInfo& device) {
  const Expr& op = *group.exprs[0];
  if (group.exprs.size() > 1 || isContraction(op) || ruleOf(op).executor != Executor::Library) {
    return {};
  }
  return {std::make_unique<const CallJudgement>(group, device), {}};
}

}  // namespace meshfuse
