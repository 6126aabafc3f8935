// The parts of a measured description of machines on which ranks agree.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "autoplan/machine.h"

namespace meshfuse {

class Communicator;

struct MemoryOfRank {
  std::string place;  // the same for ranks that share the memory
  int64_t bytes = 0;
};
// The least that a rank has if the ranks of a place have equal parts: 40 of {{"a", 100}, {"b", 80}, {"b", 80}}.
[[nodiscard]] double leastShare(std::span<const MemoryOfRank> ranks);

// The description that rank 0 has. Collective.
[[nodiscard]] DistributedConfig ofFirstRank(Communicator& comm, const DistributedConfig& own);

}  // namespace meshfuse
