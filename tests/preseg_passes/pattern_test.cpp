// Model-parallel patterns: what they communicate, and their values.
#include <gtest/gtest.h>

#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "preseg_passes/sharded_program.h"

namespace meshfuse {
namespace {

class Patterns : public ::testing::Test {
 protected:
  TensorView* input(const std::vector<int64_t>& shape, const std::vector<DimAxis>& dims = {}) {
    TensorView* tv = makeContigConcreteTensor(fusion, shape, DataType::Float);
    fusion.addInput(tv);
    shard(tv, mesh, dims);
    return tv;
  }

  // [B, S, E] with heads on the output features of q, k and v.
  TensorView* attention(TensorView* x, int64_t heads, const std::string& axis) {
    const int64_t B = 4, S = 4, E = 8;
    auto project = [&] {
      TensorView* w = input({E, E}, {{0, axis}});
      return permute(reshape(linear(x, w), {B, S, heads, E / heads}), {0, 2, 1, 3});
    };
    TensorView* q = project();
    TensorView* k = project();
    TensorView* v = project();
    TensorView* scores = softmax(matmul(q, transpose(k, 2, 3)), -1);
    TensorView* mixed = reshape(permute(matmul(scores, v), {0, 2, 1, 3}), {B, S, E});
    return linear(mixed, input({E, E}, {{1, axis}}));
  }

  Fusion fusion;
  DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
};

TEST_F(Patterns, AttentionOverHeadsIsOneAllReduce) {
  TensorView* x = input({4, 4, 8});
  fusion.addOutput(attention(x, 4, "x"));
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_reduce(x)"});
}

TEST_F(Patterns, BlockOnTwoAxesReducesOverOne) {
  mesh = DeviceMesh::create({{"dp", 2}, {"tp", 2}});
  TensorView* x = input({4, 4, 8}, {{0, "dp"}});
  TensorView* h = add(x, attention(layerNormOver(x, 1, nullptr, nullptr, 1e-5).output, 4, "tp"));
  TensorView* w0 = input({32, 8}, {{0, "tp"}});
  TensorView* w1 = input({8, 32}, {{1, "tp"}});
  TensorView* n = layerNormOver(h, 1, nullptr, nullptr, 1e-5).output;
  fusion.addOutput(add(h, linear(tanh_gelu(linear(n, w0)), w1)));
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, (Steps{"all_reduce(tp)", "all_reduce(tp)"}));
}

TEST_F(Patterns, SequenceShardsAroundABlockGatherAndScatter) {
  const int64_t S = 16, E = 8;
  TensorView* x = input({S, E}, {{0, "x"}});
  TensorView* w0 = input({4 * E, E}, {{0, "x"}});
  TensorView* w1 = input({E, 4 * E}, {{1, "x"}});
  TensorView* n = layerNormOver(x, 1, nullptr, nullptr, 1e-5).output;
  TensorView* y = linear(relu(linear(n, w0)), w1);
  TensorView* z = add(x, y);
  fusion.addOutput(z);
  shard(y, mesh, {{0, "x"}});
  shard(z, mesh, {{0, "x"}});
  EXPECT_EQ(runSharded(fusion).communications, (Steps{"all_gather(x)", "reduce_scatter(x)"}));
}

TEST_F(Patterns, ShardedWeightsOfDataParallelRanksAreGathered) {
  TensorView* x = input({64, 8}, {{0, "x"}});
  TensorView* w0 = input({8, 8}, {{0, "x"}});
  TensorView* w1 = input({8, 8}, {{0, "x"}});
  fusion.addOutput(linear(relu(linear(x, w0)), w1));
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_gather(x)"}) << "both are small";
  EXPECT_EQ(runSharded(fusion, {}, {.bucketBytes = 0}).communications, (Steps{"all_gather(x)", "all_gather(x)"}));
}

TEST_F(Patterns, HeadsAndSequenceTradePlacesByAllToAll) {
  TensorView* q = input({2, 8, 4, 3}, {{1, "x"}});  // [B, S, H, D] with S sharded
  TensorView* heads = mul(q, 2.0);
  shard(heads, mesh, {{2, "x"}});
  fusion.addOutput(heads);
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_to_all(x)"});
}

// The terms of a sum of 16 bits become Float before they are added up; a maximum loses nothing.
TEST_F(Patterns, ReductionsInFloat) {
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max}) {
    Fusion half;
    TensorView* x = makeContigConcreteTensor(half, {8, 3}, DataType::BFloat16);
    half.addInput(x);
    shard(x, mesh, {{0, "x"}});
    TensorView* y = half.tensor(DataType::BFloat16, {{8, IterType::Reduction}, {3}});
    ExprAttributes attributes;
    attributes.reduce = op;
    half.addExpr(ExprKind::Reduce, {x}, {y}, attributes);
    half.addOutput(y);
    for (const bool inFloat : {false, true}) {
      const ShardedRun run = runSharded(half, {}, {.reduceInFloat = inFloat});
      EXPECT_EQ(run.communications, std::vector<std::string>{"all_reduce(x)"});
      for (const Expr* e : run.planned->exprs()) {
        if (e->kind() == ExprKind::Redistribute) {
          EXPECT_EQ(e->output()->dtype(), inFloat && op == ReduceOp::Sum ? DataType::Float : DataType::BFloat16);
        }
      }
    }
  }
}

// Partial sums of Float are twice the bytes: to move the operand takes fewer, 128 instead of 192, where of BFloat16 they are 96.
TEST_F(Patterns, OperandsMoveWhereSumsInFloatAreLarger) {
  Fusion half;
  TensorView* x = makeContigConcreteTensor(half, {8, 32}, DataType::BFloat16);
  TensorView* w = makeContigConcreteTensor(half, {6, 32}, DataType::BFloat16);
  half.addInput(x);
  half.addInput(w);
  shard(x, mesh, {{1, "x"}});
  shard(w, mesh, {});
  TensorView* y = linear(x, w);
  shard(y, mesh, {{0, "x"}});
  half.addOutput(y);
  EXPECT_EQ(runSharded(half).communications, Steps{"reduce_scatter(x)"});
  EXPECT_EQ(runSharded(half, {}, {.reduceInFloat = true}).communications, Steps{"all_to_all(x)"});
}

}  // namespace
}  // namespace meshfuse
