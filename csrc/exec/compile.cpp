// The order of everything.
#include "exec/compile.h"

#include "analysis/pass_context.h"
#include "base/error.h"
#include "exec/agreement.h"
#include "exec/arguments.h"
#include "exec/dumped_passes.h"
#include "exec/kernel_compiler.h"
#include "host/build.h"
#include "ir/fusion.h"
#include "library/cpu/contraction.h"
#include "multidevice/transport/communicator.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/localize_fusion.h"
#include "preseg_passes/table.h"
#include "schedule/registry.h"
#include "segment/local_context.h"
#include "segment/segment.h"
#include "segment/table.h"

namespace meshfuse {

namespace {

// Peers that wait for this rank know that it compiles.
class Busy {
 public:
  explicit Busy(Communicator& communicator) : communicator_(communicator) { communicator_.setBusy(true); }
  ~Busy() { communicator_.setBusy(false); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Communicator& communicator_;
};

std::optional<std::string> noLibrary(const Expr&, const std::map<int, Layout>&) {
  return "on this device there is none";
}

}  // namespace

SegmentedProgram compileToSegments(const Fusion& fusion, std::span<const Argument> inputs, Communicator& communicator,
                                   const DeviceInfo& device, int64_t call, bool agreed) {
  std::shared_ptr<Fusion> global;
  std::shared_ptr<Fusion> local;
  SegmentedProgram result;
  try {
    // global view: static structure, then every edge aligned, local or planned
    checkDumpedPasses();
    checkArguments(fusion, inputs);
    global = concretize(fusion, globalSizes(fusion, inputs));
    PassContext context(*global);
    runPresegPasses(*global, context);
    result.remarks = context.remarks();

    // the SPMD cut
    local = localize(*global);
    checkLocalShapes(*local, inputs);
  } catch (const Error& e) {
    if (!agreed) {
      sayNoPlan(communicator, e.what());
    }
    throw;
  }
  if (!agreed) {
    agreeOnPlan(communicator, *global, *local, call);
  }

  // local view: steps
  LocalContext context{
      .layouts = inputLayouts(*local, inputs),
      .refuseLibraryCall = device.target == tile::Target::Cpu ? Contraction::refuse : noLibrary,
  };
  runLocalPasses(*local, context);
  result.segments = segment(*local, context, device, kernelSchedulers());
  result.layouts = std::move(context.layouts);
  result.remarks.insert(result.remarks.end(), context.remarks.begin(), context.remarks.end());
  result.planned = global;
  result.local = local;
  return result;
}

CompiledProgram compile(const Fusion& fusion, std::span<const Argument> inputs, Communicator& communicator,
                        const CompileOptions& options) {
  Busy busy(communicator);
  DeviceInfo device = hostDevice();
  CompiledProgram result;
  try {
    checkMeshes(fusion, communicator.size());
  } catch (const Error& e) {
    sayNoPlan(communicator, e.what());
    throw;
  }
  result.program = compileToSegments(fusion, inputs, communicator, device, options.call, options.agreed);

  // kernels and memory
  try {
    result.host = buildHostProgram(result.program.local, result.program.segments, device,
                                   {.inputLayouts = result.program.layouts,
                                    .rank = communicator.rank(),
                                    .coordinates = coordinatesOf(*result.program.planned, communicator.rank()),
                                    .workers = options.threads,
                                    .compile = options.compile ? options.compile : compileKernels});
  } catch (const std::exception& e) {
    if (communicator.size() > 1) {
      communicator.abort(e.what());  // the peers have agreed to run and would wait
    }
    throw;
  }
  return result;
}

}  // namespace meshfuse
