#include "interpret/interpret.h"

#include <gtest/gtest.h>

#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

TEST(Interpret, AddsAndSums) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(2);
  fusion.addInput(x);
  fusion.addOutput(sum(add(x, 1.0), {1}));
  std::vector<Tensor> out = interpret(fusion, {Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3})});
  EXPECT_EQ(out.at(0).toVector(), (std::vector<double>{9, 18}));
}

}  // namespace
}  // namespace meshfuse
