// Reasons of the edge relation, and states written and read back.
#include "multidevice/sharding/relation.h"

#include <gtest/gtest.h>

#include <random>

#include "ir/fusion.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/random_edge.h"
#include "multidevice/sharding/random_state.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

TEST(Relation, ReasonsNameTheDigit) {
  Fusion fusion;
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}});
  TensorView* a = makeContigConcreteTensor(fusion, {8}, DataType::Float);
  fusion.addInput(a);
  TensorView* b = set(a);
  fusion.addOutput(b);
  a->setDeviceMesh(mesh);
  a->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDx);
  b->setDeviceMesh(mesh);
  const Edge edge = edgeRelation(b->definition(), 0, b);
  EXPECT_EQ(edge.relation, EdgeRelation::Comm);
  EXPECT_NE(edge.reason.find("dim 0 is held as S0(x), needed whole"), std::string::npos) << edge.reason;
  EXPECT_TRUE(isResharding(b->definition()));
  EXPECT_TRUE(haveDifferentShardings(a, b));
  EXPECT_EQ(getTvsWithDifferentSharding(a, {a, b}), std::vector<TensorView*>{b});
  b->inner_split(0, 2)->axis(1)->parallelize(ParallelType::DIDx);
  EXPECT_TRUE(isResharding(b->definition())) << "block and cyclic have equal local shapes and differ";
}

TEST(Relation, RankOrderMatters) {
  Fusion fusion;
  TensorView* a = makeContigConcreteTensor(fusion, {8}, DataType::Float);
  fusion.addInput(a);
  TensorView* b = set(a);
  fusion.addOutput(b);
  for (auto [tv, mesh] : {std::pair(a, DeviceMesh({0, 1})), std::pair(b, DeviceMesh({1, 0}))}) {
    tv->setDeviceMesh(mesh);
    tv->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDx);
  }
  EXPECT_TRUE(isResharding(b->definition()));
}

// An operand of an elementwise op in the shape and the state of the result is aligned without a comparison of digits.
TEST(Relation, OfKeptStatesIsTheSame) {
  std::mt19937 rng(5);
  const std::vector<DeviceMesh> meshes = {DeviceMesh::create({{"x", 2}, {"y", 4}}), DeviceMesh({1, 0, 3, 2})};
  ShardStateMemo memo;
  int64_t aligned = 0;
  for (int round = 0; round < 3000; round++) {
    const bool uneven = rng() % 2 == 0;
    const std::vector<int64_t> extents = uneven ? std::vector<int64_t>{7, 1, 10} : std::vector<int64_t>{8, 16};
    Fusion fusion;
    TensorView* a = makeContigConcreteTensor(fusion, extents, DataType::Float);
    TensorView* narrow = makeContigConcreteTensor(fusion, {1}, DataType::Float);
    fusion.addInput(a);
    fusion.addInput(narrow);
    TensorView* result = rng() % 2 == 0 ? add(a, narrow) : mul(exp(a), 2.0);
    fusion.addOutput(result);
    const DeviceMesh& mesh = meshes[rng() % 2];
    const StateChoice options{.uneven = uneven};
    const ShardState first = randomState(rng, mesh, extents, options);
    for (TensorView* tv : fusion.tensors()) {
      if (tv != narrow && rng() % 8 != 0) {
        setShardState(tv, rng() % 3 == 0 ? randomState(rng, meshes[rng() % 2], extents, options) : first);
      }
    }
    for (const Expr* e : fusion.exprs()) {
      for (const int64_t operand : e->tensorPositions()) {
        const Edge kept = edgeRelation(e, operand, e->tensorOutput(), memo);
        const Edge read = edgeRelation(e, operand, e->tensorOutput());
        ASSERT_EQ(kept.relation, read.relation) << fusion.toString();
        ASSERT_EQ(kept.reason, read.reason) << fusion.toString();
        ASSERT_EQ(kept.held.toString(), read.held.toString()) << fusion.toString();
        ASSERT_EQ(kept.needed.has_value(), read.needed.has_value()) << fusion.toString();
        if (kept.needed) {
          ASSERT_EQ(kept.needed->toString(), read.needed->toString()) << fusion.toString();
          ASSERT_TRUE(provenEqual(*kept.needed, *read.needed)) << fusion.toString();
        }
        aligned += kept.relation == EdgeRelation::Aligned && kept.held.isSharded() ? 1 : 0;
      }
    }
  }
  EXPECT_GT(aligned, 500);
}

TEST(ShardState, WhatIsWrittenIsRead) {
  std::mt19937 rng(3);
  const std::vector<DeviceMesh> meshes = {DeviceMesh::create({{"x", 2}, {"y", 4}}),
                                          DeviceMesh::create({{"x", 2}, {"y", 3}, {"z", 2}})};
  for (int round = 0; round < 2000; round++) {
    const DeviceMesh& mesh = meshes[rng() % 2];
    const bool uneven = rng() % 2 == 0;
    const std::vector<int64_t> extents = uneven           ? std::vector<int64_t>{7, 1, 10}
                                         : rng() % 2 == 0 ? std::vector<int64_t>{24, 12}
                                                          : std::vector<int64_t>{8, 24, 6};
    Fusion fusion;
    TensorView* tv = makeContigConcreteTensor(fusion, extents, DataType::Float);
    const ShardState state = randomState(rng, mesh, extents, {true, false, uneven, false, uneven && round % 4 < 2});
    setShardState(tv, state);
    ASSERT_TRUE(provenEqual(shardState(tv), state)) << state.toString() << "\n" << shardState(tv).toString();
    for (int64_t device = 0; round % 20 == 0 && device < mesh.numDevices(); device++) {
      const std::vector<int64_t> held = heldElements(state, extents, device);
      ASSERT_EQ(heldBy(tv, device), FlatIndices(held.begin(), held.end())) << state.toString();
      const Part part = heldPart(state, mesh.devices()[device]);
      FlatIndices listed{0};
      for (size_t k = 0; k < part.dims.size(); k++) {
        FlatIndices next;
        for (int64_t prefix : listed) {
          for (const IndexRun& r : part.dims[k]) {
            for (int64_t i = 0; i < r.count; i++) {
              next.insert(prefix * extents[k] + r.start + i * r.step);
            }
          }
        }
        listed = std::move(next);
      }
      ASSERT_EQ(listed, FlatIndices(held.begin(), held.end())) << state.toString();
    }
  }
}

TEST(ShardState, AnAxisMayOwnDigitsOfTwoDims) {
  Fusion fusion;
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  TensorView* tv = makeContigConcreteTensor(fusion, {2, 6}, DataType::Float);
  tv->setDeviceMesh(mesh);
  tv->merge(0)->outer_split(0, 4)->axis(0)->parallelize(ParallelType::DIDx);
  const ShardState state = shardState(tv);
  EXPECT_EQ(heldPart(state, 0).sizes(), (std::vector<int64_t>{1, 3}));
  setShardState(tv, state);
  EXPECT_TRUE(provenEqual(shardState(tv), state)) << shardState(tv).toString();
}

}  // namespace
}  // namespace meshfuse
