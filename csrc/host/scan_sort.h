// scanOrSort: scan and argsort on a CPU, line by line along one dim.
//
// Lines run on the caller's pool, each by one thread in the order of its elements, so the bits do not depend on the number of threads.
// Sums and products of Float are kept in Double on the way. Equal elements stay in their order, and so do NaNs, which are the largest.
#pragma once

#include <memory>

#include "host/routine.h"

namespace meshfuse {

// Null for other ops.
[[nodiscard]] std::shared_ptr<const Routine> scanOrSort(const Expr& expr, const RoutineOptions& options);

}  // namespace meshfuse
