// The order of all stages.
#include "exec/compile.h"

#include "base/disk_cache.h"
#include "device/device.h"
#include "exec/arguments.h"
#include "exec/check_routines.h"
#include "exec/dumped_passes.h"
#include "exec/host_options.h"
#include "exec/local_stages.h"
#include "exec/planned_program.h"
#include "host/build.h"
#include "ir/fusion.h"
#include "segment/table.h"

namespace meshfuse {

SegmentedProgram compileToSegments(const Fusion& fusion, std::span<const Argument> inputs, const Agreement::Call& call,
                                   const DeviceInfo& device, const PassSettings& passes, const ProgramChoice& choice,
                                   const std::function<void(const SegmentedProgram&)>& finish) {
  DiskCache* const disk = kernelDiskCache().get();
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
    if (const SizedFusion sized = call.sized(proposal); choice.program == nullptr) {
      made = planProgram(sized, choice.sizes, passes, disk);
    } else {
      (void)sized.constant();
    }
    result.agreedOn = made == nullptr ? choice.program : made;
    result.globalSizes = proposal.sizes;
    result.whyNotHere = choice.whyNotHere;
    static_cast<PlannedProgram&>(result) =
        programFor(*result.agreedOn, fusion, inputs, choice.sizes.values, choice.whyNotHere);
    local = localProgram(result, fusion, call.communicator().rank(), device, passes, disk);
    checkLocalShapes(*local, inputs, result.sizes.values);
  });
  call.agree(proposal, made, device);
  const auto compileLocally = [&] {
    result.agreed = agreedFor(*result.agreedOn, result.sizes.isConstant(), choice.sizes.values);
    LocalContext context = localContext(result, *local, inputs, call.communicator().rank(), device, passes, disk);
    runLocalPasses(*local, context);
    result.local = local;
    result.segments = segment(*local, context);
    writeSteps(result.segments);
    result.layouts = std::move(context.layouts);
    finish(result);
    result.remarks.insert(result.remarks.end(), context.remarks.begin(), context.remarks.end());
  };
  call.afterPlanning(proposal, *result.agreedOn, [&] {
    while (!holdsForClass(result, choice.sizes.values, compileLocally)) {
      result.whyNotHere = result.sizes.whyConstant;
      local = localProgram(result, fusion, call.communicator().rank(), device, passes, disk);
    }
  });
  return result;
}

CompiledProgram compile(const Fusion& fusion, std::span<const Argument> inputs, const Agreement::Call& call,
                        const std::shared_ptr<Device>& device, const PassSettings& passes,
                        const ProgramChoice& choice) {
  const Agreement::Busy busy(call);
  call.beforeAgreement({fusion, inputs}, choice, [&] { checkMeshes(fusion, call.communicator().size()); });
  std::shared_ptr<const HostProgram> host;
  const auto build = [&](const SegmentedProgram& p) {
    checkRoutines(p, *device);
    host = buildHostProgram(p.local, p.segments, hostOptions(p, call.communicator(), device));
  };
  return {.program = compileToSegments(fusion, inputs, call, device->info(), passes, choice, build), .host = host};
}

}  // namespace meshfuse
