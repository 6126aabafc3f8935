#include "tools/abstract_inputs.h"

#include "analysis/pass_context.h"
#include "ir/fusion.h"
#include "multidevice/sharding/held_part.h"
#include "preseg_passes/check_annotations.h"
#include "preseg_passes/concretize.h"
#include "tools/program.h"

namespace meshfuse {

std::vector<Argument> abstractInputs(const Fusion& fusion, const ProgramOptions& options, int rank) {
  // compiling reads the address only
  alignas(64) static char placeholder[64] = {};
  const std::vector<std::vector<int64_t>> shapes = inputShapes(fusion, options);
  std::unique_ptr<Fusion> sized = concretize(fusion, shapes);
  PassContext context(*sized);
  checkAnnotations(*sized, context);
  std::vector<Argument> arguments;
  for (size_t i = 0; i < sized->inputs().size(); i++) {
    const Val* in = sized->inputs()[i];
    if (in->isTensor()) {
      const ShardState state = shardState(in->asTensor());
      std::vector<int64_t> sizes = heldPart(state, rank).sizes();
      std::vector<int64_t> strides = contiguousStrides(sizes);
      const Tensor shard = Tensor::wrap(placeholder, std::move(sizes), std::move(strides), in->dtype());
      arguments.emplace_back(isRagged(state) ? shard.withGlobalShape(shapes[i]) : shard);
    } else if (in->dtype() == DataType::Bool) {
      arguments.emplace_back(false);
    } else if (isIntegral(in->dtype())) {
      arguments.emplace_back(shapes[i].empty() ? int64_t{0} : shapes[i][0]);
    } else {
      arguments.emplace_back(0.0);
    }
  }
  return arguments;
}

}  // namespace meshfuse
