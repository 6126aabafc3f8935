// Reads of a GPU kernel that need not stay in its caches.
#pragma once

#include <cstdint>

#include "tile/tile.h"

namespace meshfuse {

// Marks loads as `once` where the launch reads no element of the tensor again: it is the tensor's only load, and the offset of
// the element is a sum of all axes of its space and all other dims of the grid, each with a factor of its own. Tensors of up to `bytes` stay,
// because a later kernel may find them in the last cache.
//
//   x Float[131072, 1024], bias Float[1024]: load x[m, n] -> load x[m, n] once;  load bias[n] and load x[floorDiv(m, 2), n] stay
void streamReads(tile::Program& program, int64_t bytes);

}  // namespace meshfuse
