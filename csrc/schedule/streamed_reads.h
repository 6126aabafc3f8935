// Reads of a GPU kernel that need not stay in its caches.
#pragma once

#include <cstdint>

#include "tile/tile.h"

namespace meshfuse {

// Marks loads as `once` where the launch reads no element of the tensor again: it is the tensor's only load, and its index runs over all axes of
// its space. Tensors of up to `bytes` stay, because a later kernel may find them in the last cache.
//
//   x Float[131072, 1024], bias Float[1024]: load x[m, n] -> load x[m, n] once;  load bias[n] stays
void streamReads(tile::Program& program, int64_t bytes);

}  // namespace meshfuse
