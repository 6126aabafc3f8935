// The device of each rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/device_id.h"

namespace meshfuse {

class Communicator;

// name: cpu, a GPU such as cuda:1, or cuda; the same on all ranks. For `cuda`, the ranks of a host take its GPUs in the order of their numbers;
// a rank in whose environment MESHFUSE_DEVICE is such as cuda:1 takes that one, and shares it with others that do. Ranks of loopback share
// the GPUs of their process. Collective for `cuda`. On all ranks: UserError if the name is wrong, or a host has fewer GPUs than ranks;
// DeviceError if a host has none.
[[nodiscard]] DeviceId localDevice(std::string_view name, Communicator& communicator);

// What a rank says of the GPUs that it can take.
struct GpusOfRank {
  std::string host;  // the same for ranks that have the same GPUs
  int64_t count = 0;
  std::string missing;  // why there is none
  std::string chosen;   // MESHFUSE_DEVICE; empty: not set
};
// By rank. `share`: a rank takes a GPU that others have if there are no more. Errors as above.
[[nodiscard]] std::vector<DeviceId> assignGpus(std::span<const GpusOfRank> ranks, bool share);

}  // namespace meshfuse
