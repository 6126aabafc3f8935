#include "multidevice/sharding/load_sharded.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest_word.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_tensor.h"
#include "tensor/safetensors.h"

namespace meshfuse {

Tensor loadSharded(const SafetensorsFile& file, std::string_view name, const TensorView* tv, int64_t rank) {
  const Tensor whole = file.get(name);
  const std::vector<IntExpr> shape = tv->shape();
  bool fits = std::ssize(shape) == whole.dim();
  for (int64_t k = 0; fits && k < whole.dim(); k++) {
    fits = !shape[k].isConst() || shape[k].isConst(whole.size(k));
  }
  check(fits, "[loadSharded] {}: {} has the shape [{}], {} has [{}]; is it the tensor of this input?", file.path(),
        name, fmt::join(whole.sizes(), ", "), tv->toString(), joined(shape, ", ", &IntExpr::toString));
  check(whole.dtype() == tv->dtype(), "[loadSharded] {}: {} is of {}, {} of {}; make the input of {} and cast it there",
        file.path(), name, meshfuse::name(whole.dtype()), tv->toString(), meshfuse::name(tv->dtype()),
        meshfuse::name(whole.dtype()));
  const Tensor part = shardTensor(whole, tv, rank);
  return part.storage() == whole.storage() ? part.clone() : part;
}

NamedArguments loadSharded(const SafetensorsFile& file, const Fusion& fusion, int64_t rank,
                           const std::vector<std::string>& others) {
  const std::vector<std::string>& names = fusion.inputNames();
  for (const std::string& other : others) {
    check(!other.empty() && contains(names, other), "[loadSharded] the fusion has no input named {}{}", other,
          nearestWord(other, names));
  }
  NamedArguments arguments;
  for (int64_t i : indices(names)) {
    const Val* in = fusion.inputs()[i];
    if (in->isTensor() && !names[i].empty() && !contains(others, names[i])) {
      arguments.emplace_back(names[i], loadSharded(file, names[i], in->asTensor(), rank));
    }
  }
  return arguments;
}

}  // namespace meshfuse
