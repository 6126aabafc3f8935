#include "device/cpu/routine.h"

#include <algorithm>
#include <cstdint>

#include "device/cpu/onednn/contraction.h"

namespace meshfuse {

namespace {

class ContractionRoutine : public CpuRoutine {
 public:
  ContractionRoutine(const Expr& expr, const std::map<int64_t, Layout>& layouts, int64_t threads)
      : contraction_(expr, layouts, threads) {}

  int64_t workspaceBytes() const override { return contraction_.workspaceBytes(); }
  void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const override {
    contraction_.run(pool, operands, out, workspace);
  }

 private:
  const Contraction contraction_;
};

}  // namespace

int64_t linesPerRange(int64_t elements) { return std::max<int64_t>(1, 8192 / std::max<int64_t>(elements, 1)); }

std::shared_ptr<const CpuRoutine> routineOf(const Expr& expr, const RoutineOptions& options, int64_t threads) {
  if (std::shared_ptr<const CpuRoutine> routine = scanOrSort(expr, options, threads)) {
    return routine;
  }
  if (std::shared_ptr<const CpuRoutine> routine = putByIndex(expr, options)) {
    return routine;
  }
  return std::make_shared<ContractionRoutine>(expr, options.layouts, threads);
}

}  // namespace meshfuse
