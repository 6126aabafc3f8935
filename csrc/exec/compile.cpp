// The order of everything.
#include "exec/compile.h"

#include <algorithm>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/hash.h"
#include "exec/accounts.h"
#include "exec/agreement.h"
#include "exec/arguments.h"
#include "exec/dumped_passes.h"
#include "exec/kernel_compiler.h"
#include "host/build.h"
#include "ir/fusion.h"
#include "library/cpu/contraction.h"
#include "meshfuse_config.h"
#include "multidevice/sharding/coordinates.h"
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

bool isOnAllRanks(const Fusion& fusion, int ranks) {
  const std::vector<TensorView*> tensors = fusion.tensors();
  return std::ranges::all_of(tensors, [&](const TensorView* tv) {
    return !tv->hasDeviceMesh() || std::ssize(tv->getDeviceMesh().devices()) == ranks;
  });
}

// What a rank does once the ranks have agreed to run: if it fails, peers that wait for it are told.
template <class Fn>
void unlessItFails(Communicator& communicator, bool peersWait, Fn&& body) {
  try {
    body();
  } catch (const std::exception& e) {
    if (peersWait && communicator.size() > 1) {
      communicator.abort(e.what());
    }
    throw;
  }
}

// One line a dim of an input.
std::string textOfSizes(const Fusion& fusion, const std::vector<std::vector<int64_t>>& sizes) {
  std::string text;
  for (size_t i = 0; i < sizes.size(); i++) {
    const Val* in = fusion.inputs()[i];
    const size_t dims = in->isTensor() ? in->asTensor()->shape().size() : 0;
    for (size_t k = 0; k < sizes[i].size() && in->isTensor(); k++) {
      text += k < dims ? fmt::format("dim {} of input {} ({}) is {}\n", k, i, in->toString(), sizes[i][k])
                       : fmt::format("element {} of input {} ({}) is {}\n", k - dims, i, in->toString(), sizes[i][k]);
    }
  }
  return text;
}

std::shared_ptr<const PlanAccount> accountOfPlan(const Fusion& fusion, std::span<const Argument> inputs,
                                                 const std::vector<std::vector<int64_t>>& wholes, const Fusion& global,
                                                 const std::string& text) {
  constexpr int kMostStepsOfAnOp = 8;
  return std::make_shared<PlanAccount>(PlanAccount{.call = accountOf(fusion, inputs, wholes, text),
                                                   .identity = hashText(text).lo,
                                                   .communications = kMostStepsOfAnOp * global.numExprs()});
}

std::optional<std::string> noLibrary(const Expr&, const std::map<int, Layout>&) {
  return "on this device there is none";
}

}  // namespace

SegmentedProgram compileToSegments(const Fusion& fusion, std::span<const Argument> inputs, Communicator& communicator,
                                   const DeviceInfo& device, const Meeting& meeting, const PassSettings& passes) {
  std::shared_ptr<Fusion> global;
  std::shared_ptr<Fusion> local;
  SegmentedProgram result;
  std::string assumed;
  std::vector<std::vector<int64_t>> wholes;
  // Ranks that hold nothing of an input assume nothing of it, and where there are some those that do meet only to communicate.
  const auto assumes = [&] { return !assumed.empty() && isOnAllRanks(fusion, communicator.size()); };
  try {
    // global view: static structure, then every edge aligned, local or planned
    checkDumpedPasses();
    checkArguments(fusion, inputs);
    wholes = globalSizes(fusion, inputs, communicator.rank(), &assumed);
    global = concretize(fusion, wholes);
    PassContext context(*global, passes);
    runPresegPasses(*global, context);
    result.remarks = context.remarks();
    result.reasons = context.reasons();

    // the SPMD cut
    local = localize(*global, communicator.rank());
    checkLocalShapes(*local, inputs);
  } catch (const Error& e) {
    if (meeting.expected || assumes()) {
      refuseCall(communicator, e);
    }
    throw;
  }
  const std::string shared = global->toString();
  result.identity = hashText(shared).lo;
  result.communicates = communicates(*global);
  const std::shared_ptr<const PlanAccount> account =
      communicator.size() == 1 ? nullptr : accountOfPlan(fusion, inputs, wholes, *global, shared);
  // A rank whose part alone has another size assumes what the others do not: it meets nobody, and ends with the deadline.
  if (account != nullptr && !meeting.agreed && (meeting.expected || result.communicates || assumes())) {
    const std::string_view version =
        meeting.libraryVersion.empty() ? std::string_view(kVersion) : meeting.libraryVersion;
    agreeOnPlan(communicator,
                {platformText(version, device, meeting.maxPlans), shared, assumed, textOfSizes(fusion, wholes)},
                account->call, meeting.call);
  }
  if (account != nullptr && result.communicates) {
    PlanAccounts::add(communicator, account);
    result.account = account;
  }

  // local view: steps
  unlessItFails(communicator, result.communicates, [&] {
    LocalContext context{
        .layouts = inputLayouts(*local, inputs),
        .refuseLibraryCall = device.target == tile::Target::Cpu ? Contraction::refuse : noLibrary,
    };
    runLocalPasses(*local, context);
    result.segments = segment(*local, context, device, kernelSchedulers());
    result.layouts = std::move(context.layouts);
    result.remarks.insert(result.remarks.end(), context.remarks.begin(), context.remarks.end());
  });
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
    if (options.meeting.expected) {
      refuseCall(communicator, e);
    }
    throw;
  }
  result.program = compileToSegments(fusion, inputs, communicator, device, options.meeting, options.passes);

  // kernels and memory
  unlessItFails(communicator, result.program.communicates, [&] {
    result.host =
        buildHostProgram(result.program.local, result.program.segments, device,
                         {.layouts = result.program.layouts,
                          .rank = communicator.rank(),
                          .coordinates = CoordinateSymbols(*result.program.planned).valuesOn(communicator.rank()),
                          .workers = options.threads,
                          .identity = result.program.identity,
                          .communicates = result.program.communicates,
                          .compile = options.compile ? options.compile : compileKernels});
  });
  return result;
}

}  // namespace meshfuse
