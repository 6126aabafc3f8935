// The order of all stages.
#include "exec/compile.h"

#include "analysis/pass_context.h"
#include "device/device.h"
#include "exec/arguments.h"
#include "exec/check_routines.h"
#include "exec/dumped_passes.h"
#include "exec/overlap.h"
#include "host/build.h"
#include "ir/fusion.h"
#include "localize/localize.h"
#include "multidevice/sharding/coordinates.h"
#include "preseg_passes/table.h"
#include "segment/local_context.h"
#include "segment/table.h"

namespace meshfuse {

SegmentedProgram compileToSegments(const Fusion& fusion, std::span<const Argument> inputs, const Agreement::Call& call,
                                   const DeviceInfo& device, const PassSettings& passes, const ShapeClass& sizes) {
  const int64_t rank = call.communicator().rank();
  SegmentedProgram result{.sizes = sizes};
  std::shared_ptr<Fusion> local;
  PlanProposal proposal{fusion, inputs};
  call.beforeAgreement(proposal, [&] {
    // the global program: static structure, every edge aligned, local or a planned communication
    checkDumpedPasses();
    checkArguments(fusion, inputs);
    proposal.sizes = globalSizes(fusion, inputs, rank, &proposal.assumedSizes);
    checkDevice(fusion, inputs);
    const std::shared_ptr<Fusion> global =
        sayingSizes(proposal.assumedSizes, [&] { return concretizeFor(sizes, fusion, proposal.sizes); });
    result.acceptsBetween = acceptsBetween(*global);
    PassContext context(*global, passes);
    runPresegPasses(*global, context);
    result.planned = global;
    result.remarks = context.remarks();
    result.reasons = context.reasons();
    // the program of this rank
    local = localize(*global, rank);
    checkLocalShapes(*local, inputs, sizes.values);
  });
  result.agreed = call.agree(proposal, *result.planned, device);
  call.afterAgreement(result.agreed, [&] {
    LocalContext context{.layouts = inputLayouts(*local, inputs), .device = device, .verify = passes.verify};
    runLocalPasses(*local, context);
    result.local = local;
    result.segments = segment(*local, context);
    writeSteps(result.segments);
    result.layouts = std::move(context.layouts);
    result.remarks.insert(result.remarks.end(), context.remarks.begin(), context.remarks.end());
  });
  return result;
}

CompiledProgram compile(const Fusion& fusion, std::span<const Argument> inputs, const Agreement::Call& call,
                        const std::shared_ptr<Device>& device, const PassSettings& passes, const ShapeClass& sizes) {
  const Agreement::Busy busy(call);
  call.beforeAgreement({fusion, inputs}, [&] { checkMeshes(fusion, call.communicator().size()); });
  CompiledProgram result{compileToSegments(fusion, inputs, call, device->info(), passes, sizes), nullptr};
  const SegmentedProgram& program = result.program;
  call.afterAgreement(program.agreed, [&] {
    checkRoutines(*program.planned, *device);
    result.host =
        buildHostProgram(program.local, program.segments,
                         {.device = device,
                          .layouts = program.layouts,
                          .rank = call.communicator().rank(),
                          .ranks = call.communicator().size(),
                          .coordinates = CoordinateSymbols(*program.planned).valuesOn(call.communicator().rank()),
                          .identity = program.agreed.identity,
                          .communicates = program.agreed.communicates,
                          .overlap = overlapOf(*program.planned, passes.overlapCommunication, device->info())});
  });
  return result;
}

}  // namespace meshfuse
