#include "host/routine.h"

#include <algorithm>

#include "host/put_by_index.h"
#include "host/scan_sort.h"

namespace meshfuse {

int64_t linesPerRange(int64_t elements) { return std::max<int64_t>(1, 8192 / std::max<int64_t>(elements, 1)); }

std::shared_ptr<const Routine> routineOf(const Expr& expr, const RoutineOptions& options) {
  if (ScanOrSort::does(expr)) {
    return std::make_shared<ScanOrSort>(expr, options);
  }
  return putByIndex(expr, options);
}

}  // namespace meshfuse
