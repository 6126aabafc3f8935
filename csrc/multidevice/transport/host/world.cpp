#include "multidevice/transport/host/world.h"

#include <algorithm>
#include <fstream>

#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/host_communicator.h"
#include "multidevice/transport/host/network_communicator.h"

namespace meshfuse {

namespace {

// The same for all processes of a machine since it was started.
std::string hostIdentity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

std::unique_ptr<Communicator> openAmong(std::unique_ptr<Bootstrap> bootstrap, const TransportOptions& options) {
  if (bootstrap->size() == 1) {
    return makeSelfCommunicator();
  }
  const std::string identity = hostIdentity();
  const std::vector<std::string> all = bootstrap->allGather(identity);
  const bool oneHost = std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == identity; });
  if (oneHost && !options.messagesOnly) {
    return std::make_unique<HostCommunicator>(std::move(bootstrap), options);
  }
  return std::make_unique<NetworkCommunicator>(std::move(bootstrap), options);
}

}  // namespace

bool startedByLauncher() { return pmixOffered() || starOffered(); }

std::unique_ptr<Communicator> openWorld(const TransportOptions& options) {
  if (!startedByLauncher()) {
    return makeSelfCommunicator();
  }
  return openAmong(pmixOffered() ? connectPmix(options.deadline) : connectStar(options.deadline), options);
}

Communicator::Survivors openSurvivors(const TransportOptions& options) {
  if (!startedByLauncher()) {
    return {makeSelfCommunicator(), {0}};
  }
  const RankOfLauncher place = pmixOffered() ? pmixPlace() : starPlace();
  Communicator::Survivors survivors;
  std::unique_ptr<Bootstrap> bootstrap = meetSurvivors(place.rank, place.size, options.deadline, survivors.oldRanks);
  survivors.world = openAmong(std::move(bootstrap), options);
  return survivors;
}

}  // namespace meshfuse
