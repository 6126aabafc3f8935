// Shardings by a plan, for the --auto of the programs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "meshfuse/meshfuse.h"

namespace planned {

using namespace meshfuse;

// Rough speeds of ranks on the cores of a host, and 2 GB for each rank. A GPU: the defaults of DistributedConfig. `memory`: the bytes of a rank
// instead.
inline DistributedConfig machinesOf(const Communicator& world, const DeviceId& device,
                                    std::optional<uint64_t> memory = std::nullopt) {
  DistributedConfig machines{.devicesPerMachine = world.size()};
  if (device == DeviceId::cpu()) {
    machines.within = {.bandwidth = 1e9, .latency = 50e-6};
    machines.memoryPerDevice = 2e9;
    machines.device = {.flops = 100e9, .flops16 = 50e9, .bandwidth = 20e9, .launch = 2e-6};
  }
  if (memory) {
    machines.memoryPerDevice = static_cast<double>(*memory);
  }
  return machines;
}

// The fusion that `plan` gives on rank 0. The other ranks do not plan, because searches that a time limit ends may differ.
inline std::unique_ptr<Fusion> byRankZero(Communicator& world, const std::function<std::unique_ptr<Fusion>()>& plan) {
  return parseFusion(world.exchange(world.rank() == 0 ? plan()->toString() : "")[0]);
}

}  // namespace planned
