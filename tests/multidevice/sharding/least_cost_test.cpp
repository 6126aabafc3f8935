// The lower bound that guides the search for plans, where links have several costs.
#include <gtest/gtest.h>

#include <random>

#include "base/ranges.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/planner.h"
#include "multidevice/sharding/random_pair.h"
#include "multidevice/sharding/search.h"

namespace meshfuse {
namespace {

double leastOf(const ShardState& from, const ShardState& to, const PlanOptions& options,
               const std::vector<int64_t>& extents) {
  const std::optional<AtomPair> pair = atomPair(from, to, AtomLevel::Axis);
  if (!pair) {
    return 0;
  }
  PlanSpace space(extents, pair->on.atoms.axisSizes(), pair->from, pair->to);
  MovePrices prices;
  for (const AtomOrigin& origin : pair->on.origins) {
    prices.alpha.byAtom.push_back(options.alpha);
    prices.beta.byAtom.push_back(costAlong(pair->on.mesh.axisName(origin.axis), options.beta));
  }
  return leastCost(space, prices, space.from(), PlanSpace::Ranks::All);
}

TEST(LeastCost, ElementsThatMustCrossASlowLinkCostWhatItAsks) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}, {"y", 2}});
  const std::vector<int64_t> extents{8, 8};
  const PlanOptions slow{.beta = {{"x", 10}}};
  const ShardState whole = blockState(mesh, extents, {"", ""});
  // A rank receives 56 elements, and the two ranks along y together 48 from others.
  EXPECT_EQ(leastOf(blockState(mesh, extents, {"x", "y"}), whole, slow, extents), 1 + 56 + 9 * 24);
  // All 32 elements are there, on the ranks along y.
  EXPECT_EQ(leastOf(blockState(mesh, extents, {"y", ""}), whole, slow, extents), 1 + 32);
  // Four groups sum 64 elements for each: 3 receipts to combine, and 3 for the copies.
  EXPECT_EQ(leastOf(blockState(mesh, extents, {"y", ""}, "x"), blockState(mesh, extents, {"y", ""}), slow, extents),
            1 + 48 + 9 * 48);
}

TEST(LeastCost, NoPlanCostsLess) {
  const std::vector<int64_t> extents{16, 24};
  int64_t several = 0;
  for (uint32_t seed = 0; seed < 600; seed++) {
    std::mt19937 rng(seed);
    const DeviceMesh mesh =
        seed % 2 == 0 ? DeviceMesh::create({{"x", 2}, {"y", 4}}) : DeviceMesh::create({{"x", 2}, {"y", 2}, {"z", 2}});
    PlanOptions options{.direct = DirectChoice::Fallback};
    for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
      options.beta[mesh.axisName(axis)] = static_cast<double>(1 + rng() % 3 * 5);
    }
    const ShardState from = randomPlacement(rng, mesh, extents, {.partial = seed % 3 == 0});
    const ShardState to = randomPlacement(rng, mesh, extents, {.partial = false});
    const RedistributionPlan plan = planRedistribution(from, to, options);
    if (!plan.note.empty()) {
      continue;
    }
    const double least = leastOf(from, to, options, extents);
    ASSERT_LE(least, plan.cost + 1e-9) << seed << " " << from.toString() << " to " << to.toString() << "\n"
                                       << testing::PrintToString(plan.communications());
    several += plan.communications().size() > 1 ? 1 : 0;
  }
  EXPECT_GE(several, 100);
}

}  // namespace
}  // namespace meshfuse
