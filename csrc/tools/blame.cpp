// meshfuse blame: what the records of failed ranks say about who parted first.
#include <fmt/core.h>

#include "multidevice/transport/flight_recorder.h"
#include "tools/options.h"

namespace meshfuse {

int blameRanks(const std::string& directory) {
  fmt::print("{}", blame(directory));
  return kSuccess;
}

}  // namespace meshfuse
