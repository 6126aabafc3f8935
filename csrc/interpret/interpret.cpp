#include "interpret/interpret.h"

#include "base/ranges.h"
#include "interpret/program.h"

namespace meshfuse {

std::vector<Tensor> interpret(const Fusion& fusion, std::span<const Argument> inputs) {
  reference::Program program(fusion, inputs, {}, reference::Keep::Results);
  program.run();
  return mapped(fusion.outputs(), [&](const Val* out) { return reference::toTensor(program.array(out)); });
}

std::vector<Tensor> interpret(const Fusion& fusion, std::initializer_list<Argument> inputs) {
  return interpret(fusion, std::span<const Argument>(inputs.begin(), inputs.size()));
}

std::map<int64_t, Tensor> interpretAll(const Fusion& fusion, std::span<const Argument> inputs) {
  reference::Program program(fusion, inputs, {}, reference::Keep::All);
  program.run();
  std::map<int64_t, Tensor> tensors;
  for (int64_t id : program.ids()) {
    tensors.emplace(id, reference::toTensor(program.array(id)));
  }
  return tensors;
}

}  // namespace meshfuse
