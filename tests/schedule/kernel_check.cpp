#include "schedule/kernel_check.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/error.h"
#include "interpret/bounds.h"
#include "schedule/template.h"

namespace meshfuse {

static int alignmentOf(const void* data) {
  uint64_t address = std::bit_cast<uint64_t>(data);
  return static_cast<int>(std::min<uint64_t>(64, address & (~address + 1)));
}

Group wholeGroup(const Fusion& fusion) {
  Group g;
  g.fusion = &fusion;
  g.exprs = fusion.exprs();
  for (Val* in : fusion.inputs()) {
    if (in->isTensor()) {
      g.inputs.push_back(in->asTensor());
    }
  }
  for (Val* out : fusion.outputs()) {
    g.outputs.push_back(out->asTensor());
  }
  return g;
}

std::string refusal(const Fusion& fusion, const DeviceInfo& device) {
  return judge(wholeGroup(fusion), device, allTemplates()).refusal;
}

KernelCheck checkKernel(const Fusion& fusion, const DeviceInfo& device, const std::vector<Argument>& inputs) {
  Group g = wholeGroup(fusion);
  std::map<const Val*, size_t> number;
  for (size_t i = 0; i < inputs.size(); i++) {
    number[fusion.inputs()[i]] = i;
    if (const Tensor* t = std::get_if<Tensor>(&inputs[i])) {
      g.layouts[fusion.inputs()[i]->id()] = {{t->strides().begin(), t->strides().end()}, alignmentOf(t->data())};
    }
  }
  const Verdict verdict = judge(g, device, allTemplates());
  check(verdict.judgement != nullptr, "[kernel check] no template takes the fusion: {}", verdict.refusal);
  KernelCheck result;
  result.plan = std::get<KernelPlan>(verdict.judgement->write());
  std::vector<std::string> errors = tile::verify(result.plan.program);
  if (!errors.empty()) {
    result.difference = fmt::format("verifier: {}\n{}", errors[0], tile::toString(result.plan.program));
    return result;
  }
  std::vector<BoundedTensor> expected = interpretWithBounds(fusion, inputs);
  std::vector<Tensor> outputs;
  std::vector<Tensor> workspaces;
  std::vector<void*> pointers;
  for (const KernelPlan::Slot& slot : result.plan.slots) {
    if (slot.tensor == nullptr) {
      const KernelPlan::Workspace& w = result.plan.workspaces[slot.workspace];
      workspaces.push_back(Tensor::zeros({w.elements.constValue()}, w.dtype));
      pointers.push_back(workspaces.back().data());
    } else if (auto it = number.find(slot.tensor); it != number.end()) {
      pointers.push_back(std::get<Tensor>(inputs[it->second]).data());
    } else {
      std::vector<int64_t> shape;
      for (const IntExpr& e : slot.tensor->shape()) {
        shape.push_back(e.constValue());
      }
      outputs.push_back(Tensor::empty(shape, slot.tensor->dtype()));
      pointers.push_back(outputs.back().data());
    }
  }
  std::vector<int64_t> sizes;
  for (const IntExpr& e : result.plan.sizes) {
    sizes.push_back(e.constValue());
  }
  std::vector<double> scalars;
  for (const Val* v : result.plan.scalars) {
    scalars.push_back(std::get<double>(inputs[number.at(v)]));
  }
  result.traffic = tile::interpret(result.plan.program, tile::packSlots(result.plan.program, pointers, sizes, scalars));
  for (size_t k = 0; k < outputs.size(); k++) {
    if (std::optional<std::string> d = compare(outputs[k], expected[k])) {
      result.difference = fmt::format("output {}: {}\n{}", k, *d, tile::toString(result.plan.program));
      return result;
    }
  }
  return result;
}

}  // namespace meshfuse
