#include "exec/host_options.h"

#include "exec/compile.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

BuildOptions hostOptions(const SegmentedProgram& program, const Communicator& communicator,
                         const std::shared_ptr<Device>& device) {
  return {.device = device,
          .layouts = program.layouts,
          .rank = communicator.rank(),
          .ranks = communicator.size(),
          .coordinates = program.ofRank.coordinates,
          .identity = program.agreed.identity,
          .communicates = program.agreed.communicates,
          .overlap = program.ofRank.overlap};
}

}  // namespace meshfuse
