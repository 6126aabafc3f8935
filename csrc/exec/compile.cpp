// The order of all stages.
#include "exec/compile.h"

#include "device/device.h"
#include "exec/arguments.h"
#include "exec/check_routines.h"
#include "exec/dumped_passes.h"
#include "exec/overlap.h"
#include "exec/planned_program.h"
#include "host/build.h"
#include "ir/fusion.h"
#include "multidevice/sharding/coordinates.h"
#include "segment/local_context.h"
#include "segment/table.h"

namespace meshfuse {

SegmentedProgram compileToSegments(const Fusion& fusion, std::span<const Argument> inputs, const Agreement::Call& call,
                                   const DeviceInfo& device, const PassSettings& passes, const ShapeClass& sizes,
                                   const CompiledProgram* ofClass) {
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
    std::shared_ptr<Fusion> constant =
        sayingSizes(proposal.assumedSizes, [&] { return concretize(fusion, proposal.sizes); });
    // and the program of this rank
    local = ofClass == nullptr ? planProgram(result, fusion, std::move(constant), rank, passes)
                               : programFor(result, ofClass->program, rank);
    checkLocalShapes(*local, inputs, result.sizes.values);
  });
  result.agreed = ofClass == nullptr ? call.agree(proposal, *result.planned, device)
                                     : call.forSizes(ofClass->program.agreed, proposal, sizes.values);
  call.afterAgreement(result.agreed, [&] {
    LocalContext context{.layouts = inputLayouts(*local, inputs), .device = device};
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
                        const std::shared_ptr<Device>& device, const PassSettings& passes, const ShapeClass& sizes,
                        const CompiledProgram* ofClass) {
  const Agreement::Busy busy(call);
  call.beforeAgreement({fusion, inputs}, [&] { checkMeshes(fusion, call.communicator().size()); });
  CompiledProgram result{compileToSegments(fusion, inputs, call, device->info(), passes, sizes, ofClass), nullptr};
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
                          .overlap = ofClass != nullptr ? ofClass->host->overlap
                                                        : overlapOf(*program.planned, program.sizes.values,
                                                                    passes.overlapCommunication, device->info())});
  });
  return result;
}

}  // namespace meshfuse
