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
#include "localize/localize.h"
#include "multidevice/sharding/coordinates.h"
#include "segment/local_context.h"
#include "segment/table.h"

namespace meshfuse {

SegmentedProgram compileToSegments(const Fusion& fusion, std::span<const Argument> inputs, const Agreement::Call& call,
                                   const DeviceInfo& device, const PassSettings& passes, const ProgramChoice& choice) {
  SegmentedProgram result;
  std::shared_ptr<PlannedProgram> made;
  std::shared_ptr<Fusion> local;
  PlanProposal proposal{fusion, inputs};
  call.beforeAgreement(proposal, choice, [&] {
    // the global program: static structure, every edge aligned, local or a planned communication
    checkDumpedPasses();
    checkArguments(fusion, inputs);
    proposal.sizes = globalSizes(fusion, inputs, call.communicator().rank(), &proposal.assumedSizes);
    checkDevice(fusion, inputs);
    std::shared_ptr<Fusion> constant =
        sayingSizes(proposal.assumedSizes, [&] { return concretize(fusion, proposal.sizes); });
    if (choice.program == nullptr) {
      made = planProgram(fusion, choice.sizes, constant, passes);
    }
    result.agreedOn = made == nullptr ? choice.program : made;
    result.globalSizes = proposal.sizes;
    static_cast<PlannedProgram&>(result) = programFor(*result.agreedOn, fusion, inputs, choice.sizes.values);
    local = localize(*result.planned, call.communicator().rank());
    checkLocalShapes(*local, inputs, result.sizes.values);
  });
  call.agree(proposal, made, device);
  result.agreed = agreedFor(*result.agreedOn, result.sizes.isConstant(), choice.sizes.values);
  call.afterPlanning(proposal, *result.agreedOn, [&] {
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
                        const std::shared_ptr<Device>& device, const PassSettings& passes,
                        const ProgramChoice& choice) {
  const Agreement::Busy busy(call);
  call.beforeAgreement({fusion, inputs}, choice, [&] { checkMeshes(fusion, call.communicator().size()); });
  CompiledProgram result{compileToSegments(fusion, inputs, call, device->info(), passes, choice), nullptr};
  const SegmentedProgram& program = result.program;
  call.afterPlanning({fusion, inputs, program.globalSizes}, *program.agreedOn, [&] {
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
                          .overlap = overlapOf(*program.agreedOn, passes.overlapCommunication, device->info())});
  });
  return result;
}

}  // namespace meshfuse
