// Which inputs of a program are its parameters.
#include "autoplan/roles.h"

#include <gtest/gtest.h>

#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

// Tokens choose rows of a table, and stretch over the features, as the bias and the row of the table of types do.
TEST(Roles, OfAnEncodersInputs) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* tokens = makeContigTensor(2, DataType::Int);
  TensorView* table = makeContigTensor(2);
  TensorView* weight = makeContigTensor(2);
  TensorView* bias = makeContigTensor(1);
  TensorView* types = makeContigTensor(2);
  for (TensorView* in : {tokens, table, weight, bias, types}) {
    fusion.addInput(in);
  }
  TensorView* mask = ne(broadcast(tokens, {false, false, true}), 0);
  TensorView* rows = linear(add(embedding_fwd(tokens, table), select(types, 0, 0)), weight);
  fusion.addOutput(where(mask, add(rows, broadcast(bias, {true, true, false})), 0.0));
  const Roles roles(fusion);
  EXPECT_FALSE(roles.isParameter(tokens));
  EXPECT_TRUE(roles.isParameter(table));
  EXPECT_TRUE(roles.isParameter(weight));
  EXPECT_TRUE(roles.isParameter(bias));
  EXPECT_TRUE(roles.isParameter(types));
}

// The rows of a batch are an operand of the gradient of a weight, as weights are of products.
TEST(Roles, OfATrainingStepsInputs) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigTensor(2);
  TensorView* dy = makeContigTensor(2);
  TensorView* weight = makeContigTensor(2);
  for (TensorView* in : {x, dy, weight}) {
    fusion.addInput(in);
  }
  fusion.addOutput(linear(x, weight));
  fusion.addOutput(matmul(dy, weight));
  fusion.addOutput(matmul(transpose(dy), x));
  const Roles roles(fusion);
  EXPECT_FALSE(roles.isParameter(x));
  EXPECT_FALSE(roles.isParameter(dy));
  EXPECT_TRUE(roles.isParameter(weight));
}

}  // namespace
}  // namespace meshfuse
