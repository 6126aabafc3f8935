// Shards that move between the axes of a grid, and between parts of an axis: one collective each, of as few elements as there can be.
#include <fmt/core.h>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/scenario.h"
#include "multidevice/sharding/random_state.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

namespace {

DeviceMesh grid(int64_t nx, int64_t ny) { return DeviceMesh::create({{"x", nx}, {"y", ny}}); }

// y = x from one placement to another.
Scenario moved(const std::vector<int64_t>& shape, const ShardState& from, const ShardState& to,
               std::vector<Expected> byRank, PassSettings passes = {}) {
  return {[=](Fusion& f) {
            TensorView* x = input(f, shape, from.mesh);
            setShardState(x, from);
            TensorView* y = set(x);
            f.addOutput(y);
            setShardState(y, to);
          },
          {random(shape, 1)},
          {},
          std::move(byRank),
          std::move(passes)};
}

int64_t shared(int64_t beginA, int64_t endA, int64_t beginB, int64_t endB) {
  return std::max<int64_t>(0, std::min(endA, endB) - std::max(beginA, beginB));
}

class Grids : public ScenarioTest {};

TEST_F(Grids, SwappingTheAxesOfTwoDimsIsAPermutation) {
  const DeviceMesh mesh = grid(2, 2);
  const Expected stays{{"permute/4"}, 0, 0};
  const Expected swaps{{"permute/4"}, 0, 6 * 4};
  runScenarioOn(4, moved({4, 6}, blockState(mesh, {4, 6}, {"x", "y"}), blockState(mesh, {4, 6}, {"y", "x"}),
                         {stays, swaps, swaps, stays}));
}

TEST_F(Grids, SwappingAxesOfOtherSizesIsOneUnevenExchange) {
  const DeviceMesh mesh = grid(2, 3);
  std::vector<Expected> ranks;
  for (int64_t x = 0; x < 2; x++) {
    for (int64_t y = 0; y < 3; y++) {
      const int64_t kept = shared(6 * x, 6 * x + 6, 4 * y, 4 * y + 4);
      ranks.push_back({{"all-to-all-v/6"}, 0, (24 - kept * kept) * 4});
    }
  }
  runScenarioOn(6,
                moved({12, 12}, blockState(mesh, {12, 12}, {"x", "y"}), blockState(mesh, {12, 12}, {"y", "x"}), ranks));
}

TEST_F(Grids, ReorderingTheAxesOfADimIsAPermutation) {
  const DeviceMesh mesh = grid(2, 4);
  std::vector<Expected> ranks;
  for (int64_t rank = 0; rank < 8; rank++) {
    const bool stays = rank == rank % 4 * 2 + rank / 4;
    ranks.push_back({{"permute/8"}, 0, stays ? 0 : 6 * 4});
  }
  runScenarioOn(8, moved({16, 3}, blockState(mesh, {16, 3}, {"xy", ""}), blockState(mesh, {16, 3}, {"yx", ""}), ranks));
}

// Rank (x, y) holds part ny x + y of the rows; before the gather of a pair over x it is to hold part 2 y + x.
Scenario withoutTheOuterAxis(int64_t ny) {
  const DeviceMesh mesh = grid(2, ny);
  std::vector<Expected> ranks;
  for (int64_t rank = 0; rank < 2 * ny; rank++) {
    const bool stays = rank == rank % ny * 2 + rank / ny;
    const int64_t part = 2 * 3 * 4;
    ranks.push_back({{fmt::format("permute/{}", 2 * ny), "all-gather/2"}, 0, (stays ? 0 : part) + part});
  }
  const std::vector<int64_t> shape{4 * ny, 3};
  return moved(shape, blockState(mesh, shape, {"xy", ""}), blockState(mesh, shape, {"y", ""}), ranks);
}

TEST_F(Grids, DroppingTheOuterAxisGathersOverItAlone) { runScenarioOn(8, withoutTheOuterAxis(4)); }

TEST_F(Grids, DroppingTheOuterAxisOfASquareGathersOverItAlone) { runScenarioOn(4, withoutTheOuterAxis(2)); }

// Halves over x to thirds over y: of its half each rank keeps sixth 3 x + y, gets sixth 2 y + x, and gathers a pair of them over x.
// What is planned by default (DirectTransfers.BetweenAxesThatDoNotNest) brings no rank more than the 4 rows that this brings the busiest.
TEST_F(Grids, AxesThatDoNotNestExchangeSixthsWithoutDirectTransfers) {
  const DeviceMesh mesh = grid(2, 3);
  std::vector<Expected> ranks;
  for (int64_t x = 0; x < 2; x++) {
    for (int64_t y = 0; y < 3; y++) {
      const int64_t moved = 3 * x + y == 2 * y + x ? 0 : 2;
      ranks.push_back({{"permute/6", "all-gather/2"}, -1, (moved + 2) * 4});
    }
  }
  runScenarioOn(6, moved({12}, blockState(mesh, {12}, {"x"}), blockState(mesh, {12}, {"y"}), ranks,
                         {.planner = PlannerSettings{.direct = DirectChoice::Fallback}}));
}

TEST_F(Grids, SumsOverBothAxesAreOneAllReduce) {
  runScenario([](int64_t n) {
    const int64_t nx = n % 2 == 0 ? 2 : 1;
    const DeviceMesh mesh = grid(nx, n / nx);
    const std::vector<int64_t> shape{4, 3 * n};
    return Scenario{[=](Fusion& f) {
                      TensorView* x = input(f, shape, mesh);
                      setShardState(x, blockState(mesh, shape, {"x", "y"}));
                      TensorView* y = sum(x, {0, 1});
                      f.addOutput(y);
                      y->setDeviceMesh(mesh);
                    },
                    {random(shape, 1)},
                    {among(n, "all-reduce"), 1, 2 * 4 * (n - 1) / n}};
  });
}

// Ten rows in blocks of 3, 3, 3 and 1, whichever axis is the outer one.
TEST_F(Grids, SumsOfUnevenBlocksOverBothAxesAreOneAllReduce) {
  for (const bool xOutside : {true, false}) {
    const Scenario scenario{[=](Fusion& f) {
                              const DeviceMesh mesh = grid(2, 2);
                              TensorView* x = input(f, {10, 4}, mesh);
                              x->outer_split(0, 4)->outer_split(0, 2);
                              x->parallelize(0, mesh.axis(xOutside ? "x" : "y"));
                              x->parallelize(1, mesh.axis(xOutside ? "y" : "x"));
                              TensorView* y = sum(x, {0});
                              f.addOutput(y);
                              y->setDeviceMesh(mesh);
                            },
                            {random({10, 4}, 1)},
                            {{"all-reduce/4"}, 1, 2 * 4 * 4 * 3 / 4}};
    runScenarioOn(4, scenario);
  }
}

TEST_F(Grids, ASumOverOneAxisKeepsTheOther) {
  const DeviceMesh mesh = grid(2, 2);
  const std::vector<Expected> ranks(4, Expected{{"all-reduce/2"}, 1, 3 * 4});
  runScenarioOn(4, {[=](Fusion& f) {
                      TensorView* x = input(f, {4, 6}, mesh);
                      setShardState(x, blockState(mesh, {4, 6}, {"x", "y"}));
                      TensorView* y = sum(x, {0});
                      f.addOutput(y);
                      setShardState(y, blockState(mesh, {6}, {"y"}));
                    },
                    {random({4, 6}, 1)},
                    {},
                    ranks});
}

TEST_F(Grids, SumsOverBothAxesToShardsAreOneReduceScatter) {
  const DeviceMesh mesh = grid(2, 2);
  for (const std::vector<std::string>& to : {std::vector<std::string>{"x", "y"}, {"xy", ""}}) {
    const std::vector<Expected> ranks(4, Expected{{"reduce-scatter/4"}, -1, 3 * 6 * 4});
    runScenarioOn(4, {[=](Fusion& f) {
                        TensorView* x = input(f, {4, 6, 4, 6}, mesh);
                        setShardState(x, blockState(mesh, {4, 6, 4, 6}, {"x", "y", "", ""}));
                        TensorView* y = sum(x, {0, 1});
                        f.addOutput(y);
                        setShardState(y, blockState(mesh, {4, 6}, to));
                      },
                      {random({4, 6, 4, 6}, 1)},
                      {},
                      ranks});
  }
}

// Of 8 rows over x, the outer half of the axis keeps the rows; the inner quarter takes the columns.
TEST_F(Grids, ToPartsOfOneAxisOnlyTheInnerPartExchanges) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 8}});
  ShardState from{mesh, {fillLocal(0, 8, {{0, 1, 8, Owner::device(0)}}), fillLocal(1, 8, {})}, {}};
  Digit outer{0, 4, 2, Owner::device(0)};
  outer.owner.below = 4;
  Digit inner{1, 2, 4, Owner::device(0)};
  ShardState to{mesh, {fillLocal(0, 8, {outer}), fillLocal(1, 8, {inner})}, {}};
  const std::vector<Expected> ranks(8, Expected{{"all-to-all/4"}, -1, 6 * 4});
  runScenarioOn(8, moved({8, 8}, from, to, ranks));
}

}  // namespace

}  // namespace meshfuse
