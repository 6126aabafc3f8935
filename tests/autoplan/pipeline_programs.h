// Programs that a pipeline can run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/fusion.h"

namespace meshfuse {

struct DeepSizes {
  int64_t layers = 4;
  int64_t batch = 16;
  std::vector<int64_t> widths = {8};  // of the hidden layers, repeated in turn
  int64_t features = 8;
  DataType dtype = DataType::Float;
  bool addsUp = true;  // else the results are the output
};

// x = x + relu(x u^T) v^T for each layer, and the sum of the results or the results.
[[nodiscard]] std::unique_ptr<Fusion> deepForward(const DeepSizes& sizes);
// The same with the gradients of the weights by hand, which are updated in place.
[[nodiscard]] std::unique_ptr<Fusion> deepTraining(const DeepSizes& sizes);

}  // namespace meshfuse
