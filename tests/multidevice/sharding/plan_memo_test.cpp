// Plans are remembered by all that they depend on: states, mesh, sizes, options.
#include <gtest/gtest.h>

#include "multidevice/sharding/plan_memo.h"

namespace meshfuse {
namespace {

// Dim `dim` of a [rows, 16] cut in blocks over axis `axis`, -1: whole.
ShardState cut(const DeviceMesh& mesh, int64_t rows, int dim, int axis) {
  const std::vector<int64_t> extents{rows, 16};
  ShardState state{mesh, {}, {}};
  for (int k = 0; k < 2; k++) {
    std::vector<Digit> owned;
    if (k == dim) {
      const int64_t n = mesh.axisSize(axis).constValue();
      owned.push_back({k, extents[k] / n, n, Owner::device(axis)});
    }
    state.dims.push_back(fillLocal(k, extents[k], owned));
  }
  return state;
}

using Plan = const RedistributionPlan*;

class PlanMemoTest : public testing::Test {
 protected:
  Plan rowsToColumns(const DeviceMesh& mesh, int64_t rows, const PlanOptions& options = {}, int axis = 0) {
    return &plans.plan(cut(mesh, rows, 0, axis), cut(mesh, rows, 1, axis), options);
  }

  PlanMemo plans;
};

TEST_F(PlanMemoTest, TheSameArgumentsHaveTheSamePlan) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  const Plan first = rowsToColumns(mesh, 8);
  EXPECT_EQ(first->communications(), std::vector<std::string>{"all_to_all(x)"});
  EXPECT_EQ(first, rowsToColumns(DeviceMesh::create({{"x", 4}}), 8, PlanOptions{}));
  EXPECT_EQ(first->communications(), planRedistribution(cut(mesh, 8, 0, 0), cut(mesh, 8, 1, 0)).communications());
  EXPECT_EQ(plans.size(), 1);
}

TEST_F(PlanMemoTest, OtherStatesAndSizesHaveAnother) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  const Plan first = rowsToColumns(mesh, 8);
  const Plan larger = rowsToColumns(mesh, 16);
  EXPECT_NE(first, larger);
  EXPECT_EQ(larger->elements, 2 * first->elements);
  EXPECT_NE(first, &plans.plan(cut(mesh, 8, 1, 0), cut(mesh, 8, 0, 0), PlanOptions{}));
  EXPECT_NE(first, &plans.plan(cut(mesh, 8, 0, 0), cut(mesh, 8, -1, 0), PlanOptions{}));
  EXPECT_EQ(first, rowsToColumns(mesh, 8));
}

TEST_F(PlanMemoTest, OtherMeshesHaveAnother) {
  const Plan first = rowsToColumns(DeviceMesh::create({{"x", 4}}), 8);
  const Plan named = rowsToColumns(DeviceMesh::create({{"y", 4}}), 8);
  EXPECT_NE(first, named);
  EXPECT_EQ(named->communications(), std::vector<std::string>{"all_to_all(y)"});
  EXPECT_NE(first, rowsToColumns(DeviceMesh::create({{"x", 4}}, {0, 1, 3, 2}), 8));
  EXPECT_NE(first, rowsToColumns(DeviceMesh::create({{"x", 4}}, {4, 5, 6, 7}), 8));
  EXPECT_NE(first, rowsToColumns(DeviceMesh::create({{"x", 2}}), 8));
  const DeviceMesh grid = DeviceMesh::create({{"x", 4}, {"y", 4}});
  EXPECT_NE(rowsToColumns(grid, 8, {}, 0), rowsToColumns(grid, 8, {}, 1));
}

TEST_F(PlanMemoTest, OtherOptionsHaveAnother) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  const Plan first = rowsToColumns(mesh, 8);
  std::vector<PlanOptions> others(9);
  others[0].alpha = 7;
  others[1].alphaPeer = 7;
  others[2].beta = {{"x", 3}};
  others[3].betaBetween = 7;
  others[4].bound = 128;
  others[5].sums = PartialSums::Moved;
  others[6].forbid = {Collective::AllToAll};
  others[6].bound = 128;
  others[6].direct = DirectChoice::Fallback;
  others[7].direct = DirectChoice::Fallback;
  others[8].maxStates = 7;
  for (size_t k = 0; k < others.size(); k++) {
    const Plan other = rowsToColumns(mesh, 8, others[k]);
    EXPECT_NE(first, other) << k;
    EXPECT_EQ(other, rowsToColumns(mesh, 8, others[k])) << k;
  }
  EXPECT_EQ(rowsToColumns(mesh, 8, others[6])->communications(), std::vector<std::string>{"all_gather(x)"});
  EXPECT_EQ(first, rowsToColumns(mesh, 8));
}

}  // namespace
}  // namespace meshfuse
