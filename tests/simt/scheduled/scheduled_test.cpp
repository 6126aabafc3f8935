// Fusions through the GPU schedulers and the emitter, under the emulator.
#include <gtest/gtest.h>

#include "simt/scheduled/fusions.h"

namespace meshfuse::simt {
namespace {

void expectRight(const ScheduledBatch& batch) {
  for (const ScheduledVerdict& v : runScheduled(batch.cases)) {
    EXPECT_TRUE(v.right()) << v.describe();
  }
}

TEST(ScheduledKernel, Pointwise) { expectRight(pointwiseFusions()); }
TEST(ScheduledKernel, Reduction) { expectRight(reductionFusions()); }
TEST(ScheduledKernel, Normalization) { expectRight(normalizationFusions()); }

}  // namespace
}  // namespace meshfuse::simt
