// Routine: one op on a CPU that no kernel computes: a matrix product of a library, or code of our own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "digits/int_expr.h"
#include "schedule/group.h"

namespace meshfuse {

class Expr;
class ThreadPool;

class Routine {
 public:
  virtual ~Routine() = default;
  virtual int64_t workspaceBytes() const { return 0; }
  // operands: the operands of the op, in order; out: contiguous; workspace: 64-byte aligned.
  virtual void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const = 0;
};

// The facts for which a routine is made.
struct RoutineOptions {
  const std::map<int64_t, Layout>& layouts;        // by Val id: of operands that are not row-major
  int64_t workers = 1;                             // of the pool of the runs
  std::function<int64_t(const IntExpr&)> valueOf;  // of an offset, on this rank
};

// The number of lines, of `elements` each, in one range of the thread pool: together at least 8192 elements, so that starting the range
// costs little in comparison.
[[nodiscard]] int64_t linesPerRange(int64_t elements);

// The routine of an op; InternalError if it has none. Extents must be constant.
[[nodiscard]] std::shared_ptr<const Routine> routineOf(const Expr& expr, const RoutineOptions& options);

// Parts of routineOf(), null for other ops: scan and argsort; scatter and index_put_accumulate.
[[nodiscard]] std::shared_ptr<const Routine> scanOrSort(const Expr& expr, const RoutineOptions& options);
[[nodiscard]] std::shared_ptr<const Routine> putByIndex(const Expr& expr, const RoutineOptions& options);

}  // namespace meshfuse
