// meshfuse blame: finds the first call in which ranks differ, from the flight records that they wrote at a failure.
#include <fmt/core.h>

#include "multidevice/transport/flight_recorder.h"
#include "tools/options.h"

namespace meshfuse {

int64_t blameRanks(const BlameOptions& options) {
  fmt::print("{}", blame(options.directory));
  return kSuccess;
}

}  // namespace meshfuse
