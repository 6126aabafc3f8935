#include "exec/host_options.h"

#include "analysis/pass_settings.h"
#include "device/device.h"
#include "exec/compile.h"
#include "exec/overlap.h"
#include "multidevice/sharding/coordinates.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

BuildOptions hostOptions(const SegmentedProgram& program, const Communicator& communicator,
                         const std::shared_ptr<Device>& device, const PassSettings& passes) {
  return {.device = device,
          .layouts = program.layouts,
          .rank = communicator.rank(),
          .ranks = communicator.size(),
          .coordinates = CoordinateSymbols(*program.planned).valuesOn(communicator.rank()),
          .identity = program.agreed.identity,
          .communicates = program.agreed.communicates,
          .overlap = overlapOf(*program.agreedOn, passes.overlapCommunication, device->info())};
}

}  // namespace meshfuse
