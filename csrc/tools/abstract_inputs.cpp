#include "tools/abstract_inputs.h"

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/held_part.h"
#include "preseg_passes/check_annotations.h"
#include "preseg_passes/concretize.h"
#include "tools/program.h"

namespace meshfuse {

std::vector<Argument> abstractInputs(const Fusion& fusion, const ProgramOptions& options, int64_t rank) {
  // compiling reads the address only
  alignas(64) static char placeholder[64] = {};
  const std::vector<std::vector<int64_t>> shapes = inputShapes(fusion, options);
  std::unique_ptr<Fusion> sized = concretize(fusion, shapes);
  PassContext context(*sized);
  checkAnnotations(*sized, context);
  return mapped(indices(sized->inputs()), [&](int64_t i) -> Argument {
    const Val* in = sized->inputs()[i];
    if (!in->isTensor()) {
      return in->dtype() == DataType::Bool ? Argument(false)
             : !isIntegral(in->dtype())    ? Argument(0.0)
                                           : Argument(shapes[i].empty() ? int64_t{0} : shapes[i][0]);
    }
    const ShardState state = shardState(in->asTensor());
    const std::vector<int64_t> sizes = heldPart(state, rank).sizes();
    const Tensor shard = Tensor::wrap(placeholder, sizes, contiguousStrides(sizes), in->dtype());
    return isRagged(state) ? shard.withGlobalShape(shapes[i]) : shard;
  });
}

}  // namespace meshfuse
