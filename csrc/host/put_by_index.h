// putByIndex: scatter and index_put_accumulate on a CPU.
//
// Scatter goes line by line along its dim, each line on one thread in the order of its index, so the last of several elements for one
// position is kept. index_put_accumulate first sorts the index by row, in a stable order; then one thread adds up each row, 16-bit types in
// Float, Float in Double, and rounded once. So the bits do not depend on the number of threads.
#pragma once

#include <memory>

#include "host/routine.h"

namespace meshfuse {

// Null for other ops.
[[nodiscard]] std::shared_ptr<const Routine> putByIndex(const Expr& expr, const RoutineOptions& options);

}  // namespace meshfuse
