// Programs on meshes: the exact communications they take, and their values on all ranks.
#include <gtest/gtest.h>

#include "base/error.h"
#include "multidevice/sharding/shard_state.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "preseg_passes/sharded_program.h"

namespace meshfuse {
namespace {

class Communication : public ::testing::Test {
 protected:
  TensorView* input(const std::vector<int64_t>& shape, const std::vector<DimAxis>& dims = {},
                    DataType dtype = DataType::Float) {
    TensorView* tv = makeContigConcreteTensor(fusion, shape, dtype);
    fusion.addInput(tv);
    shard(tv, mesh, dims);
    return tv;
  }
  TensorView* output(TensorView* tv, const std::vector<DimAxis>& dims) {
    fusion.addOutput(tv);
    shard(tv, mesh, dims);
    return tv;
  }

  Fusion fusion;
  DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
};

TEST_F(Communication, PointwiseOnShardsIsAligned) {
  TensorView* x = input({8, 3}, {{0, "x"}});
  output(add(x, 1.0), {{0, "x"}});
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{});
  EXPECT_EQ(run.computations(), std::vector<std::string>{"add"});
}

TEST_F(Communication, ReplicatedToShardedIsASlice) {
  TensorView* x = input({4, 8});
  output(set(x), {{1, "x"}});
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{});
}

TEST_F(Communication, OutermostGatherNeedsNoKernel) {
  TensorView* x = input({8, 3}, {{0, "x"}});
  output(set(x), {});
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{"all_gather(x)"});
  EXPECT_EQ(run.computations(), std::vector<std::string>{});
}

TEST_F(Communication, InnerGatherIsUnpackedByOneKernel) {
  TensorView* x = input({3, 8}, {{1, "x"}});
  output(set(x), {});
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{"all_gather(x)"});
  EXPECT_EQ(run.computations(), std::vector<std::string>{"permute"});
}

TEST_F(Communication, ShardsMoveByAllToAll) {
  TensorView* x = input({8, 8}, {{0, "x"}});
  output(set(x), {{1, "x"}});
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_to_all(x)"});
}

TEST_F(Communication, SumOverShardsIsAnAllReduce) {
  TensorView* x = input({8, 3}, {{0, "x"}});
  output(sum(add(x, 1.0), {0}), {});
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{"all_reduce(x)"});
  EXPECT_EQ(run.computations(), (std::vector<std::string>{"add", "reduce"}));
}

TEST_F(Communication, OtherReductionsAreAllReducesToo) {
  for (ReduceOp op : {ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max}) {
    Fusion f;
    TensorView* x = makeContigConcreteTensor(f, {8, 3}, DataType::Float);
    f.addInput(x);
    shard(x, mesh, {{0, "x"}});
    TensorView* y = reductionOp(op, x, {0});
    f.addOutput(y);
    shard(y, mesh);
    EXPECT_EQ(runSharded(f, {.low = -3, .high = -1}).communications, Steps{"all_reduce(x)"});
  }
  for (ReduceOp op : {ReduceOp::And, ReduceOp::Or, ReduceOp::Xor}) {
    Fusion f;
    TensorView* x = makeContigConcreteTensor(f, {8, 3}, DataType::Int);
    f.addInput(x);
    shard(x, mesh, {{0, "x"}});
    TensorView* y = reductionOp(op, x, {0});
    f.addOutput(y);
    shard(y, mesh);
    EXPECT_EQ(runSharded(f, {.high = 100}).communications, Steps{"all_reduce(x)"});
  }
}

TEST_F(Communication, SumToShardsIsAReduceScatter) {
  for (DataType dtype : {DataType::Float, DataType::BFloat16}) {
    Fusion f;
    TensorView* x = makeContigConcreteTensor(f, {8, 16}, dtype);
    f.addInput(x);
    shard(x, mesh, {{0, "x"}});
    TensorView* y = sum(x, {0});
    f.addOutput(y);
    y->setDeviceMesh(mesh);
    y->outer_split(1, 4);
    y->axis(1)->parallelize(ParallelType::DIDx);
    EXPECT_EQ(runSharded(f).communications, Steps{"reduce_scatter(x)"});
  }
}

TEST_F(Communication, BlockToCyclicIsAnAllToAll) {
  TensorView* x = input({16}, {{0, "x"}});
  TensorView* y = set(x);
  fusion.addOutput(y);
  shardCyclic(y, mesh, 0, "x");
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_to_all(x)"});
}

TEST_F(Communication, OuterProductOfShardsIsAligned) {
  mesh = DeviceMesh::create({{"x", 2}, {"y", 4}});
  TensorView* a = input({8, 1}, {{0, "x"}});
  TensorView* b = input({1, 8}, {{1, "y"}});
  output(mul(a, b), {{0, "x"}, {1, "y"}});
  EXPECT_EQ(runSharded(fusion).communications, Steps{});
}

TEST_F(Communication, SqueezeOfAReplicatedDimIsAligned) {
  TensorView* a = input({8, 1, 3}, {{0, "x"}});
  output(squeeze(a, 1), {{0, "x"}});
  EXPECT_EQ(runSharded(fusion).communications, Steps{});
}

TEST_F(Communication, GathersOnlyOverTheAxisThatGoes) {
  for (const std::string kept : {"x", "y"}) {
    Fusion f;
    mesh = DeviceMesh::create({{"x", 2}, {"y", 4}});
    TensorView* a = makeContigConcreteTensor(f, {8, 8}, DataType::Float);
    f.addInput(a);
    shard(a, mesh, {{0, "x"}, {1, "y"}});
    TensorView* y = set(a);
    f.addOutput(y);
    shard(y, mesh, {{kept == "x" ? 0 : 1, kept}});
    EXPECT_EQ(runSharded(f).communications, Steps{kept == "x" ? "all_gather(y)" : "all_gather(x)"});
  }
}

TEST_F(Communication, SumsOverTwoAxesAreOneCall) {
  mesh = DeviceMesh::create({{"x", 2}, {"y", 4}});
  TensorView* x = input({8, 16}, {{0, "x"}, {1, "y"}});
  output(sum(x, {0, 1}), {});
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_reduce(x, y)"});
}

TEST_F(Communication, SumOverOneOfTwoAxesKeepsTheOther) {
  mesh = DeviceMesh::create({{"x", 2}, {"y", 4}});
  TensorView* x = input({8, 16}, {{0, "x"}, {1, "y"}});
  TensorView* y = sum(x, {0});
  fusion.addOutput(y);
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_reduce(x)"});
}

TEST_F(Communication, SumsOverTwoAxesScatterInOneCall) {
  mesh = DeviceMesh::create({{"x", 2}, {"y", 2}});
  TensorView* x = input({4, 4, 8, 8}, {{0, "x"}, {1, "y"}});
  TensorView* y = sum(x, {0, 1});
  fusion.addOutput(y);
  y->setDeviceMesh(mesh);
  y->outer_split(2, 2)->axis(2)->parallelize(mesh.axis("x"));
  y->outer_split(4, 2)->axis(4)->parallelize(mesh.axis("y"));
  EXPECT_EQ(runSharded(fusion).communications, Steps{"reduce_scatter(x, y)"});
}

TEST_F(Communication, AxisSwapIsAPermutation) {
  mesh = DeviceMesh::create({{"x", 2}, {"y", 2}});
  TensorView* x = input({8, 8}, {{0, "x"}, {1, "y"}});
  output(set(x), {{0, "y"}, {1, "x"}});
  EXPECT_EQ(runSharded(fusion).communications, Steps{"permute(x, y)"});
}

TEST_F(Communication, ReshapesPropagateShards) {
  TensorView* x = input({3, 24}, {{1, "x"}});
  TensorView* y = reshape(x, {3, 8, 3});
  fusion.addOutput(y);
  TensorView* z = reshape(y, {3, 24});
  fusion.addOutput(z);
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{});
  EXPECT_EQ(shardState(run.planned->outputs()[0]->asTensor()).toString(), "R S1(x) R on " + mesh.toString());
  EXPECT_EQ(shardState(run.planned->outputs()[1]->asTensor()).toString(), "R S1(x) on " + mesh.toString());
}

TEST_F(Communication, ColumnThenRowParallelLinearIsOneAllReduce) {
  for (DataType dtype : {DataType::Float, DataType::Half, DataType::BFloat16}) {
    Fusion f;
    const int64_t B = 2, S = 3, E = 8;
    TensorView* x = makeContigConcreteTensor(f, {B, S, E}, dtype);
    TensorView* w0 = makeContigConcreteTensor(f, {4 * E, E}, dtype);
    TensorView* b0 = makeContigConcreteTensor(f, {4 * E}, dtype);
    TensorView* w1 = makeContigConcreteTensor(f, {E, 4 * E}, dtype);
    TensorView* b1 = makeContigConcreteTensor(f, {E}, dtype);
    for (TensorView* in : {x, w0, b0, w1, b1}) {
      f.addInput(in);
      in->setDeviceMesh(mesh);
    }
    shard(w0, mesh, {{0, "x"}});
    shard(b0, mesh, {{0, "x"}});
    shard(w1, mesh, {{1, "x"}});
    TensorView* h = linear(x, w0, b0);
    TensorView* a = castOp(dtype, tanh_gelu(h));
    f.addOutput(linear(a, w1, b1));
    ShardedRun run = runSharded(f);
    EXPECT_EQ(run.communications, Steps{"all_reduce(x)"});
  }
}

TEST_F(Communication, ResidualAroundAnAnnotatedBlock) {
  const int64_t S = 4, E = 8;
  TensorView* x = makeContigConcreteTensor(fusion, {S, E}, DataType::Float);
  fusion.addInput(x);
  TensorView* w0 = input({4 * E, E}, {{0, "x"}});
  TensorView* w1 = input({E, 4 * E}, {{1, "x"}});
  TensorView* r = mul(x, 2.0);
  TensorView* y = linear(relu(linear(r, w0)), w1);
  fusion.addOutput(add(r, y));
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_reduce(x)"});
}

TEST_F(Communication, RandomNumbersDoNotDependOnTheSharding) {
  TensorView* x = input({8, 4}, {{0, "x"}});
  TensorView* noise = rand_like(x);
  fusion.addOutput(where(gt(noise, 0.5), x, 0.0));
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{});
  EXPECT_EQ(shardState(run.planned->outputs()[0]->asTensor()).toString(), "S0(x) R on " + mesh.toString());
}

TEST_F(Communication, EmbeddingOfAShardedVocabulary) {
  TensorView* index = input({2, 4}, {}, DataType::Int);
  TensorView* table = input({16, 3}, {{0, "x"}});
  output(embedding_fwd(index, table), {});
  EXPECT_EQ(runSharded(fusion, {.high = 16}).communications, Steps{"all_reduce(x)"});
}

TEST_F(Communication, EmbeddingOfAShardedVocabularyToShardedTokens) {
  TensorView* index = input({2, 4}, {}, DataType::Int);
  TensorView* table = input({16, 3}, {{0, "x"}});
  output(embedding_fwd(index, table), {{1, "x"}});
  EXPECT_EQ(runSharded(fusion, {.high = 16}).communications, Steps{"reduce_scatter(x)"});
}

TEST_F(Communication, SizesThatDoNotDivideAreUnevenParts) {
  TensorView* x = input({6, 3}, {{0, "x"}});
  TensorView* y = add(x, 1.0);
  fusion.addOutput(y);
  output(sum(y, {0}), {});
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_reduce(x)"});
}

}  // namespace
}  // namespace meshfuse
