#include "host/routine.h"

#include "host/put_by_index.h"
#include "host/scan_sort.h"

namespace meshfuse {

std::shared_ptr<const Routine> routineOf(const Expr& expr, const RoutineOptions& options) {
  if (ScanOrSort::does(expr)) {
    return std::make_shared<ScanOrSort>(expr, options);
  }
  return putByIndex(expr, options);
}

}  // namespace meshfuse
