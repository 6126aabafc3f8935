// Random programs over every kind of Expr, built straight from the IR, with random shardings. The same seed, the same program.
#pragma once

#include <cstdint>
#include <memory>

#include "ir/fusion.h"

namespace meshfuse {

struct RandomFusionOptions {
  int numExprs = 30;
  bool symbolic = true;    // some extents are symbols
  bool transforms = true;  // split, merge, reorder, bind
};

[[nodiscard]] std::unique_ptr<Fusion> randomFusion(uint64_t seed, const RandomFusionOptions& options = {});

}  // namespace meshfuse
