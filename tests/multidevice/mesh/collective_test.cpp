// The table of collectives: which may be a step of a plan, and the names of calls.
#include "multidevice/mesh/collective.h"

#include <gtest/gtest.h>

namespace meshfuse {
namespace {

TEST(Collectives, SayWhereTheyMayOccur) {
  EXPECT_EQ(identifiersOf(&CollectiveTraits::inPlans), "transfer, all_to_all, all_gather, reduce_scatter, all_reduce");
  EXPECT_EQ(identifiersOf(&CollectiveTraits::inHaloExchanges), "transfer, broadcast");
}

TEST(Collectives, NameTheFormOfACall) {
  EXPECT_EQ(callName(Collective::AllGather, BlockForm::Equal), "all-gather");
  EXPECT_EQ(callName(Collective::AllGather, BlockForm::Counted), "all-gather-v");
  EXPECT_EQ(callName(Collective::Transfer, BlockForm::Permutation), "permute");
}

}  // namespace
}  // namespace meshfuse
