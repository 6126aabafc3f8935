#include <cstdlib>

#include "base/error.h"
#include "multidevice/transport/host/bootstrap.h"

namespace meshfuse {

namespace {

[[noreturn]] void refuse() {
  throwDeviceError(
      "[host] the launcher offers PMIx, which this build does not support; start the ranks with RANK, WORLD_SIZE, "
      "MASTER_ADDR and MASTER_PORT, or build with libpmix-dev");
}

}  // namespace

// Without this error each of several ranks would run alone, with wrong results.
bool pmixOffered() {
  return std::getenv("PMIX_RANK") != nullptr && std::getenv("PMIX_NAMESPACE") != nullptr && !starOffered();
}

RankOfLauncher pmixPlace() { refuse(); }

bool launcherHasEnded() { return false; }

std::unique_ptr<Bootstrap> connectPmix(std::chrono::milliseconds) { refuse(); }

}  // namespace meshfuse
