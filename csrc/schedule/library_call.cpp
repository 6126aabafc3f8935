#include "schedule/library_call.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "schedule/extents.h"
#include "schedule/fused_activation.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

struct CallJudgement final : Judgement {
  CallJudgement(const Group& g, const DeviceInfo& device, Activation applied = Activation::None)
      : Judgement(g), activation(applied) {
    callsLibrary = true;
    writesAnyLayout = false;
    kind = g.exprs[0]->opName();
    cost = costOf(group, device);
  }
  [[nodiscard]] std::variant<KernelPlan, LibraryCall> write() const override {
    return LibraryCall{group.exprs[0], group.layouts, activation};
  }
  [[nodiscard]] bool readsWhereItWrites(const TensorView*, const TensorView*) const override { return false; }
  [[nodiscard]] std::optional<std::string> refuseParts(const Judgement&, const Judgement&) const override { return {}; }

  Activation activation;
};

// Some step that is no kernel reads the tensor, or a view of it, or it leaves the program. Else the kernel that reads it may compute it
// too, at no further cost.
bool isNeededInMemory(const Fusion& fusion, const TensorView* tensor) {
  return tensor->isFusionOutput() || std::ranges::any_of(fusion.uses(tensor), [&](const Expr* use) {
           const OpRule& rule = ruleOf(*use);
           return rule.view == View::No ? rule.executor != Executor::Kernel
                                        : isNeededInMemory(fusion, use->tensorOutput());
         });
}

std::optional<std::string> refuseFusedActivation(const Group& group, Activation activation, const DeviceInfo& device) {
  const TensorView* result = group.outputs[0];
  if (device.refuseActivation == nullptr) {
    return fmt::format("the library applies no {}", name(activation));
  }
  if (std::optional<std::string> refused = device.refuseActivation(*group.exprs[0], activation)) {
    return refused;
  }
  const auto layout = group.layouts.find(result->id());
  if (layout != group.layouts.end() && layout->second.strides != layoutOf(result, {}).strides) {
    return fmt::format("{} has another order in memory than that of a library's results", result->toString());
  }
  if (!isNeededInMemory(*group.fusion, result)) {
    return fmt::format("a kernel reads {} and computes it at no further cost", result->toString());
  }
  return std::nullopt;
}

}  // namespace

Verdict judgeContraction(const Group& group, const DeviceInfo& device) {
  const Expr& op = *group.exprs[0];
  if (!isContraction(op)) {
    return {};
  }
  const std::optional<Activation> activation = activationOf(group);
  if (!activation) {
    return {};
  }
  if (device.refuseContraction == nullptr) {
    return {nullptr, "there is no library for this device"};
  }
  if (std::optional<std::string> refused = device.refuseContraction(op, group.layouts)) {
    return {nullptr, std::move(*refused)};
  }
  if (*activation != Activation::None) {
    if (std::optional<std::string> refused = refuseFusedActivation(group, *activation, device)) {
      return {nullptr, std::move(*refused)};
    }
  }
  auto judgement = std::make_unique<CallJudgement>(group, device, *activation);
  judgement->mayGrow = device.refuseActivation != nullptr;
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
