// Shards through reshapes, permutes, windows and indexing: communications and values.
#include <gtest/gtest.h>

#include "multidevice/sharding/relation.h"
#include "multidevice/sharding/shard_state.h"
#include "ops/contraction.h"
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "preseg_passes/sharded_program.h"

namespace meshfuse {
namespace {

class Views : public ::testing::Test {
 protected:
  TensorView* input(const std::vector<int64_t>& shape, const std::vector<DimAxis>& dims = {},
                    DataType dtype = DataType::Float) {
    TensorView* tv = makeContigConcreteTensor(fusion, shape, dtype);
    fusion.addInput(tv);
    shard(tv, mesh, dims);
    return tv;
  }
  std::string outputSharding(const ShardedRun& run, int k = 0) {
    std::string text = shardState(run.planned->outputs()[k]->asTensor()).toString();
    return text.substr(0, text.find(" on "));
  }

  Fusion fusion;
  DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
};

TEST_F(Views, InnerDigitOfAMergedDim) {
  TensorView* x = makeContigConcreteTensor(fusion, {2, 3 * 8}, DataType::Float);  // [B, H*D]
  fusion.addInput(x);
  x->setDeviceMesh(mesh);
  x->inner_split(1, 8)->outer_split(2, 4)->axis(2)->parallelize(ParallelType::DIDx);  // on D's outer digit
  fusion.addOutput(reshape(x, {2, 3, 8}));
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{});
  EXPECT_EQ(outputSharding(run), "R R S2(x)");
}

TEST_F(Views, PermuteAndMergeKeepTheOuterShard) {
  TensorView* x = input({2, 8, 3}, {{1, "x"}});  // [B, D, H]
  fusion.addOutput(reshape(x, {2, 24}));
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{});
  EXPECT_EQ(outputSharding(run), "R S1(x)");
}

TEST_F(Views, ReshapesWithSeveralSplitsAndMerges) {
  for (bool last : {false, true}) {
    const int64_t A = 2, B = 4, C = 3, D = 2, E = 5;
    Fusion f;
    TensorView* x = makeContigConcreteTensor(f, {A * B, C * D * E}, DataType::Float);
    f.addInput(x);
    x->setDeviceMesh(mesh);
    x->inner_split(0, B)->axis(1)->parallelize(ParallelType::DIDx);
    f.addOutput(reshape(x, last ? std::vector<int64_t>{A, B * C, D, E} : std::vector<int64_t>{A, B * C, D * E}));
    ShardedRun run = runSharded(f);
    EXPECT_EQ(run.communications, Steps{});
    EXPECT_EQ(outputSharding(run), last ? "R S1(x) R R" : "R S1(x) R");
  }
}

TEST_F(Views, AReshapeThatCutsShardsGathers) {
  TensorView* x = input({24}, {{0, "x"}});
  fusion.addOutput(reshape(x, {6, 4}));
  ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{"all_gather(x)"});
  EXPECT_EQ(outputSharding(run), "R R");
}

TEST_F(Views, GatedUnitKeepsBothHalvesSharded) {
  const int64_t T = 2, E = 4, F = 8;
  TensorView* x = input({T, E});
  TensorView* w = makeContigConcreteTensor(fusion, {2 * F, E}, DataType::Float);  // gate and up, one after the other
  fusion.addInput(w);
  w->setDeviceMesh(mesh);
  w->inner_split(0, F)->outer_split(1, 4)->axis(1)->parallelize(ParallelType::DIDx);
  TensorView* down = input({E, F}, {{1, "x"}});
  TensorView* h = linear(x, w);
  TensorView* gate = slice(h, {0, 0}, {T, F});
  TensorView* up = slice(h, {0, F}, {T, 2 * F});
  fusion.addOutput(linear(mul(sigmoid(gate), up), down));
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_reduce(x)"});
}

TEST_F(Views, StepsAndPadsOfAShardedDimGather) {
  TensorView* x = input({16, 3}, {{0, "x"}});
  fusion.addOutput(slice(x, {0, 0}, {16, 3}, {2, 1}));
  fusion.addOutput(pad(x, std::vector<int64_t>{0, 0, 1, 3}));
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_gather(x)"}) << "gathered once for both";
}

TEST_F(Views, WindowsOfOtherDimsAreAligned) {
  TensorView* x = input({16, 6}, {{0, "x"}});
  fusion.addOutput(cat({slice(x, {0, 2}, {16, 6}), pad(x, std::vector<int64_t>{1, 0})}, 1));
  EXPECT_EQ(runSharded(fusion).communications, Steps{});
}

TEST_F(Views, IndexingAShardedDimIsAPartialSum) {
  TensorView* table = input({16, 3}, {{0, "x"}});
  TensorView* rows = input({5}, {}, DataType::Int);
  TensorView* along = input({4, 3}, {}, DataType::Int);
  fusion.addOutput(index_select(table, 0, rows));
  fusion.addOutput(takeAlongAxis(table, along, 0));
  EXPECT_EQ(runSharded(fusion, {.high = 16}).communications, Steps{"all_reduce(x)"}) << "of both sums";
}

TEST_F(Views, IndexingBesideAShardedDimIsAligned) {
  TensorView* table = input({16, 8}, {{1, "x"}});
  TensorView* rows = input({5}, {}, DataType::Int);
  fusion.addOutput(index_select(table, 0, rows));
  ShardedRun run = runSharded(fusion, {.high = 16});
  EXPECT_EQ(run.communications, Steps{});
  EXPECT_EQ(outputSharding(run), "R S1(x)");
}

TEST_F(Views, AxesOfSizeOneVanish) {
  mesh = DeviceMesh::create({{"x", 1}});
  TensorView* x = input({8, 3}, {{0, "x"}});
  TensorView* y = sum(x, {0});
  fusion.addOutput(y);
  EXPECT_EQ(runSharded(fusion).communications, Steps{});
}

TEST_F(Views, OneGatherForTwoReaders) {
  TensorView* x = input({8, 8}, {{0, "x"}});
  TensorView* w1 = makeContigConcreteTensor(fusion, {8, 8}, DataType::Float);
  TensorView* w2 = makeContigConcreteTensor(fusion, {8, 8}, DataType::Float);
  for (TensorView* w : {w1, w2}) {
    fusion.addInput(w);
    shard(w, mesh, {{0, "x"}});
    fusion.addOutput(linear(x, w));
  }
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_gather(x)"});
}

}  // namespace
}  // namespace meshfuse
