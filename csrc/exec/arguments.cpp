#include "exec/arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "exec/overlaps.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

void checkArguments(const Fusion& fusion, std::span<const Argument> inputs) {
  check(inputs.size() == fusion.inputs().size(), "[run] the fusion has {} inputs, got {} arguments",
        fusion.inputs().size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    const Val* in = fusion.inputs()[i];
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    if (!in->isTensor()) {
      check(t == nullptr, "[run] input {} ({}) is a {} scalar, got the tensor {}", i, in->toString(), name(in->dtype()),
            t != nullptr ? t->toString() : "");
      bool fits = in->dtype() == DataType::Int    ? std::holds_alternative<int64_t>(inputs[i])
                  : in->dtype() == DataType::Bool ? std::holds_alternative<bool>(inputs[i])
                                                  : !std::holds_alternative<bool>(inputs[i]);
      check(fits, "[run] input {} ({}) is a {} scalar, got a number of another type", i, in->toString(),
            name(in->dtype()));
      continue;
    }
    check(t != nullptr, "[run] input {} ({}) is a tensor, got a number", i, in->toString());
    check(t->defined(), "[run] input {} ({}) got an undefined tensor", i, in->toString());
    check(t->dtype() == in->dtype(), "[run] input {} ({}) has type {}, got {}", i, in->toString(), name(in->dtype()),
          name(t->dtype()));
    size_t dims = in->asTensor()->shape().size();
    check(static_cast<size_t>(t->dim()) == dims, "[run] input {} ({}) has {} dims, got {} with sizes [{}]", i,
          in->toString(), dims, t->dim(), fmt::join(t->sizes(), ", "));
  }
  for (const auto& [output, input] : fusion.aliases()) {
    size_t i =
        static_cast<size_t>(std::find(fusion.inputs().begin(), fusion.inputs().end(), input) - fusion.inputs().begin());
    const Tensor& t = std::get<Tensor>(inputs[i]);
    check(!repeatsElements(t),
          "[run] input {} ({}) takes the result {}, but with strides [{}] some of its elements share memory; pass a "
          "tensor of its own, see Tensor::clone",
          i, input->toString(), output->toString(), fmt::join(t.strides(), ", "));
    const std::vector<int> order = output->asTensor()->memoryOrder();
    check(!output->asTensor()->hasAllocation() || liesInOrder(t.sizes(), t.strides(), order),
          "[run] the result {} takes the memory of input {} ({}) and is to lie in the order [{}], but the argument has "
          "strides [{}] for sizes [{}]; pass a tensor in that order, or give the result none",
          output->toString(), i, input->toString(), fmt::join(order, ", "), fmt::join(t.strides(), ", "),
          fmt::join(t.sizes(), ", "));
  }
}

void checkMeshes(const Fusion& fusion, int ranks) {
  for (const TensorView* tv : fusion.tensors(true)) {
    const std::vector<int64_t>& devices = tv->getDeviceMesh().devices();
    std::vector<bool> named(static_cast<size_t>(ranks));
    for (int64_t rank : devices) {
      check(rank < ranks,
            "[run] the mesh of T{} names rank {}, but there are {} ranks; start more, or use a smaller mesh", tv->id(),
            rank, ranks);
      named[static_cast<size_t>(rank)] = true;
    }
    auto left = std::ranges::find(named, false);
    check(devices.empty() || left == named.end(),
          "[run] the mesh of T{} leaves out rank {} of {}; a mesh is of all ranks that call: start as many as it has",
          tv->id(), left - named.begin(), ranks);
  }
}

std::vector<bool> shapeScalars(const Fusion& fusion) {
  std::set<std::string> symbols;
  for (const TensorView* tv : fusion.tensors()) {
    for (const IterDomain* id : tv->getLogicalDomain()) {
      for (std::string& symbol : id->extent().symbols()) {
        symbols.insert(std::move(symbol));
      }
    }
  }
  std::vector<bool> result;
  for (const Val* in : fusion.inputs()) {
    result.push_back(!in->isTensor() && in->dtype() == DataType::Int &&
                     symbols.contains(std::string(in->intExpr().symbolName())));
  }
  return result;
}

std::vector<std::vector<int64_t>> globalSizes(const Fusion& fusion, std::span<const Argument> inputs) {
  std::vector<std::vector<int64_t>> result(inputs.size());
  const std::vector<bool> givesShapes = shapeScalars(fusion);
  for (size_t i = 0; i < inputs.size(); i++) {
    const Val* in = fusion.inputs()[i];
    if (!in->isTensor()) {
      if (givesShapes[i]) {
        result[i] = {std::get<int64_t>(inputs[i])};
      }
      continue;
    }
    const Tensor& t = std::get<Tensor>(inputs[i]);
    result[i] = globalShape(in->asTensor(), t.sizes());
  }
  return result;
}

void checkLocalShapes(const Fusion& local, std::span<const Argument> inputs) {
  for (size_t i = 0; i < inputs.size(); i++) {
    const Val* in = local.inputs()[i];
    if (!in->isTensor()) {
      continue;
    }
    const Tensor& t = std::get<Tensor>(inputs[i]);
    std::vector<int64_t> expected;
    for (const IntExpr& e : in->asTensor()->shape()) {
      expected.push_back(e.constValue());
    }
    check(std::equal(expected.begin(), expected.end(), t.sizes().begin(), t.sizes().end()),
          "[run] input {} (T{}) has local sizes [{}] on each rank, got [{}]; a sharded input takes the rank's shard, "
          "see shardTensor",
          i, in->id(), fmt::join(expected, ", "), fmt::join(t.sizes(), ", "));
  }
}

std::map<int, Layout> inputLayouts(const Fusion& local, std::span<const Argument> inputs) {
  std::map<int, Layout> layouts;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (const Tensor* t = std::get_if<Tensor>(&inputs[i])) {
      Layout layout{{t->strides().begin(), t->strides().end()}, alignmentOf(t->data())};
      // a dim of extent 1 has no stride of its own
      for (size_t d = layout.strides.size(); d-- > 0;) {
        if (t->sizes()[d] == 1) {
          layout.strides[d] = d + 1 < layout.strides.size() ? layout.strides[d + 1] * t->sizes()[d + 1] : 1;
        }
      }
      layouts[local.inputs()[i]->id()] = std::move(layout);
    }
  }
  return layouts;
}

}  // namespace meshfuse
