#include "multidevice/transport/host/world.h"

#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/host_communicator.h"

namespace meshfuse {

bool startedByLauncher() { return pmixOffered() || starOffered(); }

std::unique_ptr<Communicator> openWorld(const TransportOptions& options) {
  if (!startedByLauncher()) {
    return makeSelfCommunicator();
  }
  std::unique_ptr<Bootstrap> bootstrap = pmixOffered() ? connectPmix(options.deadline) : connectStar(options.deadline);
  if (bootstrap->size() == 1) {
    return makeSelfCommunicator();
  }
  return std::make_unique<HostCommunicator>(std::move(bootstrap), options);
}

}  // namespace meshfuse
