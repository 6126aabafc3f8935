// Parts of tensors, and what explain says of them.
#include "multidevice/sharding/shard_tensor.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/fusion.h"
#include "multidevice/sharding/random_state.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

Tensor counted(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) {
    n *= s;
  }
  std::vector<double> values;
  for (int64_t i = 0; i < n; i++) {
    values.push_back(static_cast<double>(i));
  }
  return Tensor::of(values, sizes);
}

TEST(ShardTensor, BlocksOverTheLastAxis) {
  const DeviceMesh mesh = DeviceMesh::createForShape({2, 2});
  const Tensor t = counted({2, 4});
  EXPECT_EQ(shardTensor(t, 1, mesh, 1).toVector(), (std::vector<double>{2, 3, 6, 7}));
  EXPECT_EQ(shardTensor(t, -1, mesh, 2).toVector(), (std::vector<double>{0, 1, 4, 5}));
  EXPECT_THROW((void)shardTensor(t, 1, mesh, 4), UserError);
  EXPECT_EQ(shardTensor(counted({2, 3}), 1, mesh, 0).toVector(), (std::vector<double>{0, 1, 3, 4}));
  EXPECT_EQ(shardTensor(counted({2, 3}), 1, mesh, 1).toVector(), (std::vector<double>{2, 5}));
  EXPECT_EQ(shardTensor(counted({2, 1}), 1, mesh, 1).numel(), 0);
}

TEST(ShardTensor, CopiesOnlyWhatIsNotContiguous) {
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
  const Tensor t = counted({2, 4});
  EXPECT_EQ(shardTensor(t, 0, mesh, 1).storage(), t.storage());
  EXPECT_NE(shardTensor(t, 1, mesh, 1).storage(), t.storage());
}

TEST(ShardTensor, PartsOfRandomStatesMakeTheWhole) {
  std::mt19937 rng(11);
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 4}});
  for (int round = 0; round < 400; round++) {
    const bool uneven = round % 2 == 1;
    const std::vector<int64_t> sizes = uneven ? std::vector<int64_t>{7, 10, 1} : std::vector<int64_t>{8, 16, 3};
    const Tensor t = counted(sizes);
    Fusion fusion;
    TensorView* tv = makeContigConcreteTensor(fusion, sizes, DataType::Float);
    const ShardState state = randomState(rng, mesh, sizes, {true, false, uneven, false, round % 4 == 3});
    setShardState(tv, state);
    std::vector<Tensor> parts;
    for (int64_t rank = 0; rank < mesh.numDevices(); rank++) {
      parts.push_back(shardTensor(t, tv, rank));
      const std::vector<int64_t> held = heldElements(state, sizes, rank);
      ASSERT_EQ(parts.back().toVector(), std::vector<double>(held.begin(), held.end())) << state.toString();
    }
    ASSERT_EQ(unshardTensor(parts, tv).toVector(), t.toVector());
  }
}

// Also where the elements would fit in number, and dims are missing or too many.
TEST(ShardTensor, PartsOfOtherShapesAreRefused) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}});
  Fusion fusion;
  auto rowsOf = [&](int64_t rows) {
    TensorView* tv = TensorViewBuilder().shape({rows, 4}).build(fusion);
    tv->setDeviceMesh(mesh);
    tv->outer_split(0, 2);
    tv->axis(0)->parallelize(ParallelType::DIDx);
    return tv;
  };
  const Tensor even = counted({2, 4});
  const TensorView* four = rowsOf(4);
  EXPECT_EQ(unshardTensor(std::vector{even, even}, four).numel(), 16);
  for (const Tensor& other : {counted({2, 4, 1}), counted({8}), counted({4, 2}), counted({2, 8}), counted({1, 4})}) {
    EXPECT_THROW((void)unshardTensor(std::vector{even, other}, four), UserError) << other.toString();
    EXPECT_THROW((void)unshardTensor(std::vector{other, even}, four), UserError) << other.toString();
  }
  const TensorView* three = rowsOf(3);
  const Tensor last = counted({1, 4});
  EXPECT_EQ(unshardTensor(std::vector{even, last}, three).numel(), 12);
  for (const Tensor& other : {counted({1, 4, 1}), counted({4}), counted({4, 1}), counted({1, 8})}) {
    EXPECT_THROW((void)unshardTensor(std::vector{even, other}, three), UserError) << other.toString();
  }
}

TEST(ShardTensor, SymbolicExtentsTakeTheSizesAtHand) {
  Fusion fusion;
  TensorView* tv = makeContigTensor(fusion, 2, DataType::Float);
  tv->setDeviceMesh(DeviceMesh::createForNumDevices(2));
  tv->outer_split(1, 2)->axis(1)->parallelize(ParallelType::DIDx);
  const Tensor part = shardTensor(counted({3, 4}), tv, 1);
  EXPECT_EQ(part.toVector(), (std::vector<double>{2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(globalShape(tv, part.sizes()), (std::vector<int64_t>{3, 4}));
}

}  // namespace
}  // namespace meshfuse
