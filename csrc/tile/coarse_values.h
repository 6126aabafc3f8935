// Values whose last digits nobody sees: all that reads them rounds the result to 16 bits.
//
//   %1 = sigmoid %0     coarse        An emitter may compute a coarse value less exactly, within the bound of the op that
//   %2 = mul %0, %1     coarse        interpret/bounds.h gives.
//   %3: bf16 = cast %2  not coarse
//   store y[m, n] = %3
#pragma once

#include <vector>

#include "tile/tile.h"

namespace meshfuse::tile {

// By value. Only values of Float are coarse. A value that is stored as Float is not, even if the kernel reads it again from scratch and
// rounds it then; nor one that selects, is an index or a mask, or is converted to another type.
[[nodiscard]] std::vector<bool> coarseValues(const Program& program);

}  // namespace meshfuse::tile
