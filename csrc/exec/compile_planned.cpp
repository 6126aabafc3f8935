#include "exec/compile_planned.h"

#include <utility>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "device/device.h"
#include "exec/abstract_inputs.h"
#include "exec/arguments.h"
#include "exec/assumed_ranks.h"
#include "exec/check_routines.h"
#include "exec/compile.h"
#include "exec/host_options.h"
#include "exec/local_stages.h"
#include "host/build.h"
#include "ir/fusion.h"
#include "preseg_passes/table.h"
#include "segment/table.h"

namespace meshfuse {

std::shared_ptr<const PlannedProgram> planPropagated(std::shared_ptr<Fusion> propagated, PassContext& context) {
  runPassesAfterPropagation(*propagated, context);
  PlannedProgram result{.agreed = {.communicates = communicates(*propagated)},
                        .remarks = context.remarks(),
                        .reasons = context.reasons()};
  result.planned = std::move(propagated);
  return std::make_shared<const PlannedProgram>(std::move(result));
}

// As compileToSegments() and compile(), where nothing is planned or compared.
CompiledProgram compilePlanned(const std::shared_ptr<const PlannedProgram>& planned, int64_t rank, int64_t ranks,
                               const std::shared_ptr<Device>& device) {
  checkMeshes(*planned->planned, ranks);
  const PassSettings passes{.verify = false};
  const auto shapes = mapped(planned->planned->inputs(), [](const Val* in) {
    return in->isTensor() ? in->asTensor()->constantShape() : std::vector<int64_t>();
  });
  const std::vector<Argument> inputs = abstractInputs(*planned->planned, shapes, rank);
  SegmentedProgram result;
  static_cast<PlannedProgram&>(result) = *planned;
  result.agreedOn = planned;
  const std::shared_ptr<Fusion> local = localProgram(result, *planned->planned, rank, device->info(), passes, nullptr);
  LocalContext context = localContext(result, *local, inputs, rank, device->info(), passes, nullptr);
  runLocalPasses(*local, context);
  result.local = local;
  result.segments = segment(*local, context);
  writeSteps(result.segments);
  result.layouts = std::move(context.layouts);
  checkRoutines(result, *device);
  const AssumedRanks assumed(ranks, rank);
  std::shared_ptr<const HostProgram> host =
      buildHostProgram(result.local, result.segments, hostOptions(result, assumed, device));
  return {.program = std::move(result), .host = std::move(host)};
}

}  // namespace meshfuse
