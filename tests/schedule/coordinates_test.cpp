// Positions of tensors in the iteration space, where a mistake would read one reduction's result for another.
#include <gtest/gtest.h>

#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"

namespace meshfuse {

namespace {

// The sums of y over its last dim, flattened twice and added to the sums of x: both times in row-major order, or once in
// column-major order, which asks for one result at two positions.
void addBothOrders(Fusion& fusion, bool same) {
  TensorView* x = makeContigConcreteTensor({36, 10});
  TensorView* y = makeContigConcreteTensor({6, 6, 10});
  TensorView* w = makeContigConcreteTensor({10});
  for (TensorView* in : {x, y, w}) {
    fusion.addInput(in);
  }
  TensorView* ofX = sum(add(x, w), {1});
  TensorView* ofY = sum(add(y, w), {2});
  TensorView* rows = reshape(ofY, {36});
  TensorView* columns = reshape(same ? neg(ofY) : permute(ofY, {1, 0}), {36});
  fusion.addOutput(add(rows, ofX));
  fusion.addOutput(add(columns, ofX));
}

TEST(Coordinates, OneResultAtTwoPositionsThroughReshapes) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  addBothOrders(fusion, false);
  EXPECT_NE(refusal(fusion, {}).find("two positions"), std::string::npos) << refusal(fusion, {});
}

TEST(Coordinates, OneResultAtOnePositionThroughReshapes) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  addBothOrders(fusion, true);
  KernelCheck c =
      checkKernel(fusion, {},
                  {randomTensor({36, 10}, DataType::Float, 1, -2, 2),
                   randomTensor({6, 6, 10}, DataType::Float, 2, -2, 2), randomTensor({10}, DataType::Float, 3, -2, 2)});
  EXPECT_EQ(c.difference, "");
}

}  // namespace

}  // namespace meshfuse
