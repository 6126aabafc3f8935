// A state that is kept equals the state that is read from the tensor, whatever has changed since.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/fusion.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

class ShardStateMemoTest : public testing::Test {
 protected:
  TensorView* tensor(const std::vector<int64_t>& shape) {
    TensorView* tv = makeContigConcreteTensor(fusion, shape, DataType::Float);
    tv->setDeviceMesh(mesh);
    return tv;
  }

  std::string kept(const TensorView* tv) {
    const ShardState state = memo.state(tv);
    const ShardState read = shardState(tv);
    EXPECT_EQ(state.toString(), read.toString());
    EXPECT_EQ(state.partial, read.partial);
    EXPECT_TRUE(read.hasOpaqueDim() || provenEqual(state, read)) << read.toString();
    return state.toString();
  }

  Fusion fusion;
  const DeviceMesh mesh = DeviceMesh::create({{"y", 2}, {"x", 4}});
  ShardStateMemo memo;
};

TEST_F(ShardStateMemoTest, FollowsEachChangeOfATensor) {
  TensorView* tv = tensor({16, 8});
  const std::string whole = kept(tv);
  tv->outer_split(0, 4);
  EXPECT_EQ(kept(tv), whole);  // bound to no axis
  tv->axis(0)->parallelize(mesh.axis("x"));
  const std::string blocks = kept(tv);
  EXPECT_NE(blocks, whole);
  tv->resetLoop();
  EXPECT_EQ(kept(tv), whole);
  tv->inner_split(0, 4);
  tv->axis(1)->parallelize(mesh.axis("x"));
  const std::string cyclic = kept(tv);
  EXPECT_NE(cyclic, blocks);
  tv->resetLoop();
  tv->outer_split(0, 4);
  tv->axis(0)->parallelize(mesh.axis("x"));
  EXPECT_EQ(kept(tv), blocks);
  tv->setDeviceMesh(DeviceMesh::create({{"x", 4}, {"y", 4}}));
  EXPECT_NE(kept(tv), blocks);
}

TEST_F(ShardStateMemoTest, WhatStatesDependOnTellsThemApart) {
  const auto bound = [&](std::vector<int64_t> shape, int dim, ParallelType type, int64_t parts) {
    TensorView* tv = tensor(shape);
    tv->outer_split(dim, parts);
    tv->axis(dim)->parallelize(type);
    return tv;
  };
  std::vector<TensorView*> all{
      bound({8, 8}, 0, mesh.axis("x"), 4),       bound({8, 8}, 1, mesh.axis("x"), 4),
      bound({8, 8}, 0, mesh.axis("y"), 2),       bound({8, 8}, 0, mesh.axis("x", 1, 2), 2),
      bound({8, 8}, 0, mesh.axis("x", 2, 2), 2), bound({9, 8}, 0, mesh.axis("x"), 4),
      bound({8, 8, 8}, 0, mesh.axis("x"), 4),    tensor({14})->partition(0, {2, 3, 4, 5}),
      tensor({14})->partition(0, {5, 4, 3, 2}),
  };
  all[7]->axis(0)->parallelize(mesh.axis("x"));
  all[8]->axis(0)->parallelize(mesh.axis("x"));
  for (int round = 0; round < 2; round++) {
    for (const TensorView* tv : all) {
      kept(tv);
    }
    EXPECT_EQ(memo.size(), std::ssize(all));
  }
}

TEST_F(ShardStateMemoTest, ReducedAndPartialDimsTellStatesApart) {
  const auto withDim = [&](const Dim& first) {
    TensorView* tv = fusion.tensor(DataType::Float, {first, {8}});
    tv->setDeviceMesh(mesh);
    tv->axis(0)->parallelize(mesh.axis("x"));
    return tv;
  };
  EXPECT_EQ(memo.state(withDim({4})).dims.size(), 2);
  EXPECT_EQ(memo.state(withDim({4, IterType::Reduction})).dims.size(), 1);
  const ShardState sums = memo.state(withDim({4, IterType::Partial}));
  EXPECT_EQ(sums.dims.size(), 1);
  EXPECT_EQ(sums.partial, std::vector<int64_t>{1});
  EXPECT_EQ(memo.size(), 3);
}

TEST_F(ShardStateMemoTest, TensorsThatAreAlikeShareOne) {
  for (int k = 0; k < 3; k++) {
    TensorView* tv = tensor({16, 8});
    tv->outer_split(1, 2);
    tv->axis(1)->parallelize(mesh.axis("y"));
    kept(tv);
  }
  EXPECT_EQ(memo.size(), 1);
}

TEST_F(ShardStateMemoTest, SymbolicSizesAreNotKept) {
  TensorView* rows = makeContigTensor(fusion, 2, DataType::Float);
  rows->setDeviceMesh(mesh);
  kept(rows);
  TensorView* grid = tensor({16, 8});
  grid->setDeviceMesh(DeviceMesh::create({{"x"}}));
  kept(grid);
  EXPECT_EQ(memo.size(), 0);
}

}  // namespace
}  // namespace meshfuse
