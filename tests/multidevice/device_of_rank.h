// The device on which a rank of a test has its tensors: the CPU, or the one that MESHFUSE_TEST_DEVICE names.
//
//   cuda      a GPU for each rank of a host, see localDevice(); more loopback ranks than GPUs share them
//   cuda:1    this GPU for all ranks
#pragma once

#include <vector>

#include "tensor/argument.h"
#include "tensor/device_id.h"

namespace meshfuse {

class Communicator;
class Fusion;

// Whether MESHFUSE_TEST_DEVICE names another device than the CPU.
[[nodiscard]] bool ranksHaveGpus();
// Collective: all ranks call it.
[[nodiscard]] DeviceId deviceOfRank(Communicator& comm);
// The shards of this rank of the inputs of a fusion, on its device; numbers stay as they are. Collective.
[[nodiscard]] std::vector<Argument> shardsOfRank(const Fusion& fusion, const std::vector<Argument>& whole,
                                                 Communicator& comm);

}  // namespace meshfuse
