#include "exec/abstract_inputs.h"

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "multidevice/sharding/held_part.h"
#include "preseg_passes/check_annotations.h"
#include "preseg_passes/concretize.h"

namespace meshfuse {

namespace {

// A fusion of the inputs alone.
std::unique_ptr<Fusion> inputsOf(const Fusion& fusion) {
  auto only = std::make_unique<Fusion>();
  FusionCloner cloner(fusion, *only, {}, FusionCloner::Numbers::Kept);
  for (const int64_t k : indices(fusion.inputs())) {
    only->addInput(cloner.clone(fusion.inputs()[k]), fusion.inputNames()[k]);
  }
  return only;
}

}  // namespace

std::vector<Argument> abstractInputs(const Fusion& fusion, std::span<const std::vector<int64_t>> sizes, int64_t rank) {
  // compiling reads the address only
  alignas(64) static char placeholder[64] = {};
  std::unique_ptr<Fusion> sized = concretize(*inputsOf(fusion), sizes);
  PassContext context(*sized);
  checkAnnotations(*sized, context);
  return mapped(indices(sized->inputs()), [&](int64_t i) -> Argument {
    const Val* in = sized->inputs()[i];
    if (!in->isTensor()) {
      return in->dtype() == DataType::Bool ? Argument(false)
             : !isIntegral(in->dtype())    ? Argument(0.0)
                                           : Argument(sizes[i].empty() ? int64_t{0} : sizes[i][0]);
    }
    const ShardState state = shardState(in->asTensor());
    const std::vector<int64_t> held = heldPart(state, rank).sizes();
    const Tensor shard = Tensor::wrap(placeholder, held, contiguousStrides(held), in->dtype());
    return isRagged(state) ? shard.withGlobalShape(sizes[i]) : shard;
  });
}

}  // namespace meshfuse
