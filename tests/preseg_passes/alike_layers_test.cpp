// Layers that are alike have their states computed and their redistributions planned once.
#include <gtest/gtest.h>

#include "analysis/pass_context.h"
#include "multidevice/sharding/plan_memo.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "preseg_passes/table.h"
#include "programs/transformer.h"

namespace meshfuse {
namespace {

struct Kept {
  int64_t states = 0;
  int64_t plans = 0;
  friend bool operator==(const Kept&, const Kept&) = default;
};

Kept keptOf(int64_t layers) {
  Fusion fusion;
  const DeviceMesh mesh = DeviceMesh::create({{"dp", 2}, {"tp", 4}});
  fusion.addOutput(transformer(fusion, mesh, {.layers = layers}));
  PassContext context(fusion);
  for (const PassRow<Fusion, PassContext>& row : presegPasses()) {
    if (row.run(fusion, context)) {
      context.changed(row.keeps);
    }
  }
  return {context.memo<ShardStateMemo>().size(), context.memo<PlanMemo>().size()};
}

TEST(AlikeLayers, ShareTheirStatesAndPlans) {
  const Kept few = keptOf(3);
  EXPECT_GT(few.states, 0);
  EXPECT_GT(few.plans, 0);
  EXPECT_EQ(few, keptOf(6));
}

}  // namespace
}  // namespace meshfuse
