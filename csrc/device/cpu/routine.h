// Routines of a CPU: matrix products by a library; scans, sorts and writes by index in code of our own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"

namespace meshfuse {

class ThreadPool;

class CpuRoutine : public Routine {
 public:
  // As Queue::call(). The pool has as many threads as the routine was made for.
  virtual void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const = 0;
};

// The number of lines, of `elements` each, in one range of the thread pool: together at least 8192 elements, so that starting the range
// costs little in comparison.
[[nodiscard]] int64_t linesPerRange(int64_t elements);

// The routine of an op for a pool of `threads`; InternalError if it has none.
[[nodiscard]] std::shared_ptr<const CpuRoutine> routineOf(const Expr& expr, const RoutineOptions& options,
                                                          int64_t threads);

// Parts of routineOf(), null for other ops: scan and argsort; scatter and index_put_accumulate.
[[nodiscard]] std::shared_ptr<const CpuRoutine> scanOrSort(const Expr& expr, const RoutineOptions& options,
                                                           int64_t threads);
[[nodiscard]] std::shared_ptr<const CpuRoutine> putByIndex(const Expr& expr, const RoutineOptions& options);

}  // namespace meshfuse
