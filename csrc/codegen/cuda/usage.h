// Decides where each value is evaluated: into registers of its own, or inside the loops of its consumers.
#pragma once

#include <vector>

#include "tile/tile.h"

namespace meshfuse::cuda {

struct Usage {
  std::vector<bool> stored;  // used, and evaluated once, at its place, into registers
  std::vector<bool> coarse;  // reaches memory only through a cast to 16 bits
};

[[nodiscard]] Usage analyseUsage(const tile::Program& program);

}  // namespace meshfuse::cuda
