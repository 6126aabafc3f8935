// Fusions that the schedulers make one kernel of each, with inputs.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "simt/scheduled/scheduled.h"

namespace meshfuse::simt {

struct ScheduledBatch {
  using Build = std::function<TensorView*(const std::vector<TensorView*>&)>;

  // One fusion of contiguous inputs of these shapes, filled with random numbers in [-2, 2).
  void add(const std::vector<std::vector<int64_t>>& shapes, const Build& build, DataType type = DataType::Float);

  std::vector<std::unique_ptr<Fusion>> fusions;
  std::vector<ScheduledCase> cases;
};

[[nodiscard]] ScheduledBatch pointwiseFusions();
[[nodiscard]] ScheduledBatch transposeFusions();
[[nodiscard]] ScheduledBatch reductionFusions();
[[nodiscard]] ScheduledBatch scanFusions();
[[nodiscard]] ScheduledBatch normalizationFusions();

}  // namespace meshfuse::simt
