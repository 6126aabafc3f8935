#include "simt/scheduled/scheduled.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/error.h"
#include "interpret/bounds.h"
#include "schedule/kernel_check.h"
#include "schedule/template.h"
#include "tile/interpreter.h"

namespace meshfuse::simt {

namespace {

KernelPlan planOf(const ScheduledCase& c, const DeviceInfo& device) {
  Group group = wholeGroup(*c.fusion);
  for (size_t i = 0; i < c.inputs.size(); i++) {
    if (const Tensor* t = std::get_if<Tensor>(&c.inputs[i])) {
      auto address = std::bit_cast<uint64_t>(t->data());
      int alignment = static_cast<int>(std::min<uint64_t>(64, address & (~address + 1)));
      group.layouts[c.fusion->inputs()[i]->id()] = {{t->strides().begin(), t->strides().end()}, alignment};
    }
  }
  const Verdict verdict = judge(group, device, allTemplates());
  check(verdict.judgement != nullptr, "[simt] no template takes the fusion: {}", verdict.refusal);
  return std::get<KernelPlan>(verdict.judgement->write());
}

// A plan with memory bound to its slots.
struct Bound {
  std::vector<Tensor> outputs;
  std::vector<Tensor> workspaces;
  std::vector<uint64_t> slots;
};

Bound bind(const ScheduledCase& c, const KernelPlan& plan) {
  Bound b;
  std::map<const Val*, size_t> number;
  for (size_t i = 0; i < c.inputs.size(); i++) {
    number[c.fusion->inputs()[i]] = i;
  }
  std::vector<void*> pointers;
  for (const KernelPlan::Slot& slot : plan.slots) {
    if (slot.tensor == nullptr) {
      const KernelPlan::Workspace& w = plan.workspaces[slot.workspace];
      b.workspaces.push_back(Tensor::zeros({w.elements.constValue()}, w.dtype));
      pointers.push_back(b.workspaces.back().data());
    } else if (auto it = number.find(slot.tensor); it != number.end()) {
      pointers.push_back(std::get<Tensor>(c.inputs[it->second]).data());
    } else {
      std::vector<int64_t> shape;
      for (const IntExpr& e : slot.tensor->shape()) {
        shape.push_back(e.constValue());
      }
      b.outputs.push_back(Tensor::empty(shape, slot.tensor->dtype()));
      pointers.push_back(b.outputs.back().data());
    }
  }
  std::vector<int64_t> sizes;
  for (const IntExpr& e : plan.sizes) {
    sizes.push_back(e.constValue());
  }
  std::vector<double> scalars;
  for (const Val* v : plan.scalars) {
    scalars.push_back(std::get<double>(c.inputs[number.at(v)]));
  }
  b.slots = tile::packSlots(plan.program, pointers, sizes, scalars);
  return b;
}

}  // namespace

std::string ScheduledVerdict::describe() const {
  std::string text = difference;
  for (const std::string& f : result.faults) {
    text += (text.empty() ? "" : "\n") + f;
  }
  return text + "\n" + tile::toString(plan.program) + std::string(kernelText(source.text));
}

std::vector<ScheduledVerdict> runScheduled(std::span<const ScheduledCase> cases, const DeviceInfo& device,
                                           const Runner& runner) {
  std::vector<ScheduledVerdict> verdicts(cases.size());
  std::vector<Bound> bound;
  std::vector<Launch> launches;
  for (size_t i = 0; i < cases.size(); i++) {
    verdicts[i].plan = planOf(cases[i], device);
    Kernel kernel = kernelOf(verdicts[i].plan.program);
    verdicts[i].source = kernel.source;
    bound.push_back(bind(cases[i], verdicts[i].plan));
    launches.push_back({std::move(kernel), bound.back().slots, i + 1, false});
  }
  std::vector<Result> results = runner ? runner(launches) : run(launches);
  for (size_t i = 0; i < cases.size(); i++) {
    verdicts[i].result = std::move(results[i]);
    std::vector<BoundedTensor> expected = interpretWithBounds(*cases[i].fusion, cases[i].inputs);
    for (size_t k = 0; k < expected.size() && verdicts[i].difference.empty(); k++) {
      if (std::optional<std::string> d = compare(bound[i].outputs[k], expected[k])) {
        verdicts[i].difference = fmt::format("output {}: {}", k, *d);
      }
    }
  }
  return verdicts;
}

}  // namespace meshfuse::simt
