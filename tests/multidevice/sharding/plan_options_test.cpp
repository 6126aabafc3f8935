// What a user asks of the planner, in the plans that a program gets.
#include "multidevice/sharding/plan_options.h"
#include "multidevice/sharding/plan_memo.h"

#include <gtest/gtest.h>

#include "ir/fusion.h"
#include "multidevice/sharding/plan_check.h"
#include "multidevice/sharding/random_state.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

using Steps = std::vector<std::string>;

Steps plannedWith(const PlannerSettings& settings, const ShardState& from, const ShardState& to) {
  Fusion fusion;
  fusion.setPlanner(settings);
  PlanMemo plans;
  const RedistributionPlan& plan = plans.plan(fusion, from, to);
  checkPlan(plan, from, to, plan.bound);
  return plan.communications();
}

class PlannerSettingsTest : public testing::Test {
 protected:
  const DeviceMesh line = DeviceMesh::create({{"x", 4}});
  const DeviceMesh grid = DeviceMesh::create({{"x", 2}, {"y", 2}});
  const std::vector<int64_t> square = {8, 8};
};

TEST_F(PlannerSettingsTest, ForbiddenMovesAreLeftOut) {
  const ShardState rows = blockState(line, square, {"x", ""});
  const ShardState columns = blockState(line, square, {"", "x"});
  EXPECT_EQ(plannedWith({}, rows, columns), Steps{"all_to_all(x)"});
  EXPECT_EQ(plannedWith({.forbid = {"all_to_all"}}, rows, columns), Steps{"transfer(x_2, x_1)"});
  EXPECT_EQ(plannedWith({.forbid = {"all_to_all", "transfer"}}, rows, columns), Steps{"all_gather(x)"})
      << "the only way";
}

// Uneven parts go by the calls with counts, which have the same name.
TEST_F(PlannerSettingsTest, ForbiddenMovesAreLeftOutOfUnevenParts) {
  const ShardState rows{line, {fillLocal(0, 6, {{0, 2, 4, Owner::device(0)}}), DigitList::whole(1, 8)}, {}};
  ASSERT_EQ(plannedWith({}, rows, blockState(line, {6, 8}, {"", "x"})), Steps{"all_to_all(x)"});
  EXPECT_EQ(plannedWith({.direct = DirectChoice::Fallback, .forbid = {"all_to_all"}}, rows,
                        blockState(line, {6, 8}, {"", "x"})),
            Steps{"transfer(x_2, x_1)"});
}

TEST_F(PlannerSettingsTest, ABoundAllowsLargerStates) {
  const ShardState rows = blockState(line, square, {"x", ""});
  const ShardState columns = blockState(line, square, {"", "x"});
  const PlannerSettings wide{.bound = 64, .direct = DirectChoice::Fallback, .forbid = {"all_to_all"}};
  EXPECT_EQ(plannedWith(wide, rows, columns), Steps{"all_gather(x)"});
  PlannerSettings narrow = wide;
  narrow.bound = 63;
  EXPECT_EQ(plannedWith(narrow, rows, columns), Steps{"transfer(x_2, x_1)"});
  narrow.bound = 1;  // both ends are larger, and are what they are
  EXPECT_EQ(plannedWith(narrow, rows, rows), Steps{});
}

TEST_F(PlannerSettingsTest, DirectTransfersOnlyWhereThereIsNoChain) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 3}});
  const ShardState from = blockState(mesh, {12}, {"x"});
  const ShardState to = blockState(mesh, {12}, {"y"});
  EXPECT_EQ(plannedWith({}, from, to), Steps{"transfer(x)"});
  const Steps chain = plannedWith({.direct = DirectChoice::Fallback}, from, to);
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_TRUE(chain[0].starts_with("permute")) << chain[0];
  EXPECT_TRUE(chain[1].starts_with("all_gather")) << chain[1];
}

TEST_F(PlannerSettingsTest, CostsOfAxesByName) {
  const ShardState cut = blockState(grid, square, {"x", "y"});
  const ShardState whole = blockState(grid, square, {"", ""});
  EXPECT_EQ(plannedWith({}, cut, whole), (Steps{"all_gather(x, y)"}));
  // The expensive link first, while there is least to move.
  EXPECT_EQ(plannedWith({.beta = {{"x", 10}}}, cut, whole), (Steps{"all_gather(x)", "all_gather(y)"}));
  EXPECT_EQ(plannedWith({.beta = {{"y", 10}}}, cut, whole), (Steps{"all_gather(y)", "all_gather(x)"}));
  // Calls that cost more than the cheaper link saves.
  EXPECT_EQ(plannedWith({.alpha = {{"x", 1000}, {"y", 1000}}, .beta = {{"x", 10}}}, cut, whole),
            (Steps{"all_gather(x, y)"}));
  // A second call costs what its own axis asks for.
  EXPECT_EQ(plannedWith({.alpha = {{"x", 1000}}, .beta = {{"x", 10}}}, cut, whole),
            (Steps{"all_gather(x)", "all_gather(y)"}));
}

// Messages of a direct transfer along an axis cost what a call along it does.
TEST_F(PlannerSettingsTest, MessagesCostWhatTheirAxesAsk) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 3}});
  const ShardState from = blockState(mesh, {12}, {"x"});
  const ShardState to = blockState(mesh, {12}, {"y"});
  const Steps direct = plannedWith({}, from, to);
  ASSERT_EQ(direct, Steps{"transfer(x)"});
  Fusion plain;
  Fusion costly;
  costly.setPlanner({.alpha = {{"x", 100}, {"y", 100}}});
  PlanMemo plans;
  EXPECT_GE(plans.plan(costly, from, to).cost, 99 + plans.plan(plain, from, to).cost);
}

TEST_F(PlannerSettingsTest, BetweenTwoMeshes) {
  const DeviceMesh target = DeviceMesh::create({{"a", 4}}, {4, 5, 6, 7});
  const DeviceMesh source = DeviceMesh::create({{"x", 2}}, {0, 1});
  const ShardState from = blockState(source, {16}, {"x"});
  const ShardState to = blockState(target, {16}, {""});
  const std::string crossing = "transfer({x: 2}[0, 1] -> {a: 4}[4, 5, 6, 7])";
  EXPECT_EQ(plannedWith({.betaBetween = 10}, from, to), (Steps{crossing, "all_gather(a)"}));
  EXPECT_EQ(plannedWith({.beta = {{"a", 100}}, .betaBetween = 10}, from, to), Steps{crossing})
      << "links of the destination have the prices of their names";
  EXPECT_EQ(plannedWith({.forbid = {"transfer"}, .betaBetween = 10}, from, to), (Steps{crossing, "all_gather(a)"}))
      << "there is no other way";
}

TEST_F(PlannerSettingsTest, WhatThereIsNotIsNamedWithWhatThereIs) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({8});
  fusion.addInput(x);
  x->setDeviceMesh(grid);
  fusion.addOutput(set(x));
  EXPECT_EQ(wrongPlannerSettings(fusion), std::vector<std::string>{});
  fusion.setPlanner(
      {.bound = 5, .forbid = {"permute"}, .alpha = {{"x", 0}}, .beta = {{"y", 2.5}}, .betaBetween = 3, .memory = 1});
  EXPECT_EQ(wrongPlannerSettings(fusion), std::vector<std::string>{});
  fusion.setPlanner(
      {.bound = 0, .forbid = {"slice"}, .alpha = {{"z", 1}}, .beta = {{"y", -1}}, .betaBetween = -2, .memory = 0});
  EXPECT_EQ(wrongPlannerSettings(fusion),
            (std::vector<std::string>{
                "planner: it has no move 'slice' to forbid; it has all_gather, all_reduce, all_to_all, permute, "
                "reduce_scatter, transfer",
                "planner: the bound is 0; expected a number of elements, at least 1",
                "planner: the memory is 0; expected a number of bytes, at least 1",
                "planner: alpha is given for an axis 'z'; the meshes have x, y",
                "planner: beta y is -1; expected a cost in elements, at least 0",
                "planner: the cost between two meshes is -2; expected a cost in elements, at least 0"}));
}

}  // namespace
}  // namespace meshfuse
