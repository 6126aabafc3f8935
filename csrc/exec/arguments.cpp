#include "exec/arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/exact.h"
#include "base/nearest_word.h"
#include "base/ranges.h"
#include "exec/agreement.h"
#include "exec/overlaps.h"
#include "ir/fusion.h"
#include "ir/input_text.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state.h"
#include "tensor/device_memory.h"

namespace meshfuse {

std::vector<Argument> inOrder(const Fusion& fusion, const NamedArguments& named) {
  const std::vector<std::string>& names = fusion.inputNames();
  std::vector<const Argument*> found(names.size(), nullptr);
  for (const auto& [name, argument] : named) {
    const int64_t i = name.empty() ? std::ssize(names) : positionIn(names, name);
    if (i == std::ssize(names)) {
      const auto textOf = [&](int64_t k) { return inputText(fusion, k); };
      throwUserError(fmt::format("[run] the fusion has no input named {}{}; it has: {}", name, nearestWord(name, names),
                                 joined(indices(names), ", ", textOf)));
    }
    if (found[i] != nullptr) {
      throwUserError(fmt::format("[run] got two arguments for {}; give one", inputText(fusion, i)));
    }
    found[i] = &argument;
  }
  return mapped(indices(found), [&](int64_t i) {
    if (found[i] == nullptr) {
      throwUserError(fmt::format(
          "[run] got no argument for {}; {}", inputText(fusion, i),
          names[i].empty() ? "name it in addInput, or give all arguments by position" : "give one by this name"));
    }
    return *found[i];
  });
}

void checkArguments(const Fusion& fusion, std::span<const Argument> inputs) {
  check(inputs.size() == fusion.inputs().size(),
        "[run] the fusion has {} inputs, got {} arguments; give one for each input, in order", fusion.inputs().size(),
        inputs.size());
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    const Val* in = fusion.inputs()[i];
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    if (!in->isTensor()) {
      check(t == nullptr, "[run] {} is a {} scalar, got the tensor {}; give a number", InputText{fusion, i},
            name(in->dtype()), t != nullptr ? t->toString() : "");
      bool fits = in->dtype() == DataType::Int    ? std::holds_alternative<int64_t>(inputs[i])
                  : in->dtype() == DataType::Bool ? std::holds_alternative<bool>(inputs[i])
                                                  : !std::holds_alternative<bool>(inputs[i]);
      check(fits, "[run] {} is a {} scalar, got a number of another type; give one of its type", InputText{fusion, i},
            name(in->dtype()));
      continue;
    }
    check(t != nullptr, "[run] {} is a tensor, got a number; give a tensor, see Tensor::full", InputText{fusion, i});
    check(t->defined(),
          "[run] {} got an undefined tensor, expected one with elements; make one with Tensor::empty or Tensor::wrap",
          InputText{fusion, i});
    check(t->dtype() == in->dtype(), "[run] {} has type {}, got {}; convert the tensor with Tensor::to",
          InputText{fusion, i}, name(in->dtype()), name(t->dtype()));
    const int64_t dims = std::ranges::count(in->asTensor()->getLogicalDomain(), false, &IterDomain::isReduction);
    check(t->dim() == dims || (dims == 0 && std::ranges::equal(t->sizes(), shapeOfNothing(0))),
          "[run] {} has {} dims, got {} with sizes [{}]; reshape the tensor with Tensor::view", InputText{fusion, i},
          dims, t->dim(), fmt::join(t->sizes(), ", "));
  }
  for (const auto& [output, input] : fusion.aliases()) {
    const int64_t i = positionIn(fusion.inputs(), input);
    const Tensor& t = std::get<Tensor>(inputs[i]);
    check(!repeatsElements(t),
          "[run] {} is overwritten with the result {}, but with strides [{}] some of its elements share "
          "memory; pass a copy, see Tensor::clone",
          InputText{fusion, i}, output->toString(), fmt::join(t.strides(), ", "));
    const std::vector<int64_t> order = output->asTensor()->memoryOrder();
    check(!output->asTensor()->hasAllocation() || liesInOrder(t.sizes(), t.strides(), order),
          "[run] the result {} is written into {} in the memory order [{}], but the argument has strides [{}] "
          "for sizes [{}]; pass a tensor in that order, or set no memory order for the result",
          output->toString(), InputText{fusion, i}, fmt::join(order, ", "), fmt::join(t.strides(), ", "),
          fmt::join(t.sizes(), ", "));
  }
}

void checkMeshes(const Fusion& fusion, int64_t ranks) {
  for (const TensorView* tv : fusion.tensors(ExprSet::All)) {
    check(!tv->getDeviceMesh().isSymbolic(),
          "[run] the mesh {} of T{} has an axis without a size; give its size in ExecutorOptions::meshSizes",
          tv->getDeviceMesh().toString(), tv->id());
    for (int64_t rank : tv->getDeviceMesh().devices()) {
      check(rank < ranks,
            "[run] the mesh of T{} contains rank {}, but there are {} ranks; start more ranks, or use a smaller mesh",
            tv->id(), rank, ranks);
    }
  }
}

std::vector<bool> shapeInputs(const Fusion& fusion) {
  if (std::ranges::none_of(fusion.inputs(), [](const Val* in) { return in->dtype() == DataType::Int; })) {
    return std::vector<bool>(fusion.inputs().size());
  }
  std::set<std::string> symbols;
  const auto add = [&](const IntExpr& size) {
    std::ranges::copy(size.symbols(), std::inserter(symbols, symbols.end()));
  };
  for (const TensorView* tv : fusion.tensors()) {
    std::ranges::for_each(tv->getLogicalDomain(), add, &IterDomain::extent);
    for (const LoopTransform& t : tv->loopTransforms()) {
      add(t.factor);
      std::ranges::for_each(t.sizes, add);
    }
  }
  return mapped(fusion.inputs(), [&](const Val* in) {
    if (in->dtype() != DataType::Int) {
      return false;
    }
    if (!in->isTensor()) {
      return symbols.contains(std::string(in->intExpr().symbolName()));
    }
    const std::string element = fmt::format("T{}.", in->id());
    const auto first = symbols.lower_bound(element);
    return in->asTensor()->shape().size() == 1 && first != symbols.end() && first->starts_with(element);
  });
}

std::vector<int64_t> elementsOf(const Tensor& sizes) {
  const Tensor packed = sizes.to(DeviceId::cpu()).contiguous();
  const auto* const first = packed.data_as<const int64_t>();
  return {first, first + packed.numel()};
}

namespace {

// The required sizes of symbolic dims that are bound to an axis without a split, one element for each rank; 0 for all other dims.
std::vector<int64_t> sizesOfWholeDims(const TensorView* tv) {
  std::vector<int64_t> sizes(tv->shape().size(), 0);
  const std::vector<IterDomain*> stored = tv->noReductions();
  for (int64_t k = 0; k < std::ssize(sizes) && tv->hasDeviceMesh(); k++) {
    const bool whole = stored[k]->isDeviceDim() && !stored[k]->extent().isConst();
    sizes[k] = whole ? tv->getDeviceMesh().size(stored[k]->parallelType()).constValue() : 0;
  }
  return sizes;
}

void checkWholeDims(const TensorView* tv, int64_t input, const Tensor& t) {
  const std::vector<int64_t> sizes = sizesOfWholeDims(tv);
  for (int64_t k = 0; k < std::ssize(sizes); k++) {
    if (sizes[k] == 0) {
      continue;
    }
    const DeviceMesh& mesh = tv->getDeviceMesh();
    const int64_t got = t.globalShape().empty() ? mulExact(t.sizes()[k], sizes[k]) : t.globalShape()[k];
    check(got == sizes[k],
          "[run] dim {} of {} is bound without a split to axis {} of size {}, so its global size must be "
          "{}, got {}; to shard a dim of another size, split it by the size of the axis",
          k, InputText{tv->fusion(), input}, mesh.axisName(mesh.axisOf(tv->noReductions()[k]->parallelType())),
          sizes[k], sizes[k], got);
  }
}

// Values of size symbols: of scalars, of dims that no mesh axis cuts, and of the global shapes of arguments.
std::map<std::string, int64_t> knownSizes(const Fusion& fusion, std::span<const Argument> inputs, int64_t rank,
                                          const std::vector<bool>& givesShapes) {
  std::map<std::string, int64_t> known;
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    const Val* in = fusion.inputs()[i];
    if (!in->isTensor()) {
      if (givesShapes[i]) {
        known.emplace(in->intExpr().symbolName(), std::get<int64_t>(inputs[i]));
      }
      continue;
    }
    const Tensor& t = std::get<Tensor>(inputs[i]);
    const std::vector<IntExpr> shape = in->asTensor()->shape();
    if (!givesShapes[i] && std::ranges::none_of(shape, &IntExpr::isSymbol)) {
      continue;
    }
    const ShardState state = shardState(in->asTensor());
    if (givesShapes[i]) {
      check(!state.isSharded() && holds(state.mesh, rank),
            "[run] the elements of {} are sizes, so every rank needs all of them, but the input is sharded "
            "or not on all ranks; replicate it on all ranks",
            inputText(fusion, i));
      const std::vector<int64_t> elements = elementsOf(t);
      for (const int64_t k : indices(elements)) {
        known.emplace(in->asTensor()->element(k).symbolName(), elements[k]);
      }
    }
    const std::vector<int64_t> ofAxes = sizesOfWholeDims(in->asTensor());
    for (int64_t k = 0; k < std::ssize(shape); k++) {
      if (!shape[k].isSymbol()) {
        continue;
      }
      const bool whole = holds(state.mesh, rank) && !state.dims[k].isOpaque() && !state.dims[k].hasOwned();
      const bool named = !t.globalShape().empty() && in->asTensor()->hasDeviceMesh();
      if (ofAxes[k] > 0) {
        known.emplace(shape[k].symbolName(), ofAxes[k]);
      } else if (named || whole) {
        known.emplace(shape[k].symbolName(), named ? t.globalShape()[k] : t.sizes()[k]);
      }
    }
  }
  return known;
}

// The global sizes of an input without a shard on this rank.
std::vector<int64_t> sizesElsewhere(const TensorView* tv, int64_t input, int64_t rank,
                                    const std::map<std::string, int64_t>& known) {
  return mapped(tv->shape(), [&](const IntExpr& extent) {
    const IntExpr bound = extent.substitute(valuesIn(known));
    check(bound.isConst(),
          "[run] {} is on mesh {}, which does not contain rank {}, and its global size is not known on "
          "this rank; pass an empty tensor with the global shape, see shardTensor and Tensor::withGlobalShape",
          inputText(tv->fusion(), input), tv->getDeviceMesh().toString(), rank);
    return bound.constValue();
  });
}

}  // namespace

std::vector<std::vector<int64_t>> globalSizes(const Fusion& fusion, std::span<const Argument> inputs, int64_t rank,
                                              std::string* assumed) {
  std::vector<std::vector<int64_t>> result(inputs.size());
  const std::vector<bool> givesShapes = shapeInputs(fusion);
  const std::map<std::string, int64_t> known = knownSizes(fusion, inputs, rank, givesShapes);
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    const Val* in = fusion.inputs()[i];
    if (!in->isTensor()) {
      if (givesShapes[i]) {
        result[i] = {std::get<int64_t>(inputs[i])};
      }
      continue;
    }
    const Tensor& t = std::get<Tensor>(inputs[i]);
    const TensorView* tv = in->asTensor();
    const bool isHere = holds(tv->getDeviceMesh(), rank);
    if (isHere) {
      checkWholeDims(tv, i, t);
    }
    if (!t.globalShape().empty() && tv->hasDeviceMesh()) {
      result[i].assign(t.globalShape().begin(), t.globalShape().end());
      append(result[i], givesShapes[i] ? elementsOf(t) : std::vector<int64_t>());  // of all of them, on every rank
      continue;
    }
    if (!isHere) {
      result[i] = sizesElsewhere(tv, i, rank, known);
      continue;
    }
    if (givesShapes[i] || !tv->hasDeviceMesh()) {
      result[i].assign(t.sizes().begin(), t.sizes().end());
      append(result[i], givesShapes[i] ? elementsOf(t) : std::vector<int64_t>());
      continue;
    }
    std::vector<int64_t> even;
    result[i] = globalShape(tv, t.sizes(), valuesIn(known), &even);
    const std::vector<int64_t> ofAxes = sizesOfWholeDims(tv);
    for (int64_t k = 0; k < std::ssize(ofAxes); k++) {
      result[i][k] = ofAxes[k] > 0 ? ofAxes[k] : result[i][k];
    }
    std::erase_if(even, [&](int64_t k) { return ofAxes[k] > 0; });
    for (const int64_t k : assumed != nullptr ? even : std::vector<int64_t>()) {
      *assumed += fmt::format("{}dim {} of {} has local size {} and global size {}\n", kAssumedSizes, k,
                              inputText(fusion, i), t.sizes()[k], result[i][k]);
    }
  }
  return result;
}

bool mayAssumeSizes(const Fusion& fusion) {
  return std::ranges::any_of(fusion.inputs(), [](const Val* in) {
    if (!in->isTensor() || !in->asTensor()->hasDeviceMesh()) {
      return false;
    }
    const ShardState state = shardState(in->asTensor());
    const std::vector<IntExpr> shape = in->asTensor()->shape();
    return std::ranges::any_of(indices(shape), [&](int64_t k) {
      return !shape[k].isConst() && (state.dims[k].isOpaque() || state.dims[k].hasOwned());
    });
  });
}

std::shared_ptr<Fusion> sayingSizes(const std::string& assumed,
                                    const std::function<std::unique_ptr<Fusion>()>& concretize) {
  try {
    return concretize();
  } catch (const UserError& e) {
    if (assumed.empty()) {
      throw;
    }
    throwUserError(
        fmt::format("{}\n{}pass each rank its shard, not the whole tensor, see shardTensor; of uneven shards, give the "
                    "global size with Tensor::withGlobalShape",
                    e.what(), assumed));
  }
}

void checkLocalShapes(const Fusion& local, std::span<const Argument> inputs,
                      const std::map<std::string, int64_t>& values) {
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    const Val* in = local.inputs()[i];
    if (!in->isTensor()) {
      continue;
    }
    const Tensor& t = std::get<Tensor>(inputs[i]);
    const auto expected =
        mapped(in->asTensor()->shape(), [&](const IntExpr& e) { return e.evaluate(valuesIn(values)); });
    const auto differs = std::ranges::mismatch(expected, t.sizes()).in1;
    check(differs == expected.end(),
          "[run] {} has local sizes [{}] on this rank, got [{}], which differ in dim {}; pass this rank's "
          "shard of a sharded input, or an empty tensor if the rank is outside its mesh, see shardTensor",
          InputText{local, i}, fmt::join(expected, ", "), fmt::join(t.sizes(), ", "), differs - expected.begin());
  }
}

namespace {

std::optional<int64_t> firstTensor(std::span<const Argument> inputs) {
  const auto isTensor = [&](int64_t i) {
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    return t != nullptr && t->defined();
  };
  const auto found = std::ranges::find_if(indices(inputs), isTensor);
  return found == indices(inputs).end() ? std::nullopt : std::optional(*found);
}

}  // namespace

DeviceId deviceOf(std::span<const Argument> inputs) {
  const std::optional<int64_t> first = firstTensor(inputs);
  return first ? std::get<Tensor>(inputs[*first]).device() : defaultDevice();
}

void checkDevice(const Fusion& fusion, std::span<const Argument> inputs) {
  const std::optional<int64_t> first = firstTensor(inputs);
  if (!first) {
    return;
  }
  const DeviceId expected = deviceOf(inputs);
  for (const int64_t i : indices(inputs)) {
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    check(t == nullptr || !t->defined() || t->device() == expected,
          "[run] {} is on {}, {} is on {}; a fusion runs on the device of all its tensors: copy one of them "
          "with to()",
          inputText(fusion, *first), expected.toString(), inputText(fusion, i),
          t == nullptr ? "" : t->device().toString());
  }
}

void checkBorrowedMemory(const Tensor& t, const std::function<std::string()>& name) {
  if (!isBorrowed(t) || t.numel() == 0) {
    return;
  }
  try {
    registeredDevice(t.device()).expectOwn(t.data());
  } catch (const UserError& e) {
    throwUserError(
        fmt::format("[run] the memory of {} has been freed: {}; free it after the call, or give Tensor::wrap an owner",
                    name(), e.what()));
  }
}

std::string freedMemoryOf(const Fusion& fusion, std::span<const Argument> inputs) {
  try {
    for (int64_t i = 0; i < std::min(std::ssize(inputs), std::ssize(fusion.inputs())); i++) {
      if (const Tensor* t = std::get_if<Tensor>(&inputs[i]); t != nullptr && isBorrowed(*t)) {
        checkBorrowedMemory(*t, [&] { return inputText(fusion, i); });
      }
    }
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

std::map<int64_t, Layout> inputLayouts(const Fusion& local, std::span<const Argument> inputs) {
  std::map<int64_t, Layout> layouts;
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    if (t != nullptr &&
        std::ranges::all_of(local.inputs()[i]->asTensor()->shape(), [](const IntExpr& e) { return e.isConst(); })) {
      Layout layout{{t->strides().begin(), t->strides().end()}, alignmentOf(t->data())};
      // a dim of extent 1 has no stride of its own
      for (int64_t d = std::ssize(layout.strides); d-- > 0;) {
        if (t->sizes()[d] == 1) {
          layout.strides[d] = d + 1 < std::ssize(layout.strides) ? layout.strides[d + 1] * t->sizes()[d + 1] : 1;
        }
      }
      layouts[local.inputs()[i]->id()] = std::move(layout);
    }
  }
  return layouts;
}

}  // namespace meshfuse
