// The table of collectives: which may be a step of a plan, and the names of calls.
#include "multidevice/mesh/collective.h"

#include <gtest/gtest.h>

#include "digits/int_expr.h"

namespace meshfuse {
namespace {

TEST(Collectives, SayWhereTheyMayOccur) {
  EXPECT_EQ(identifiersOf(&CollectiveTraits::inPlans), "transfer, all_to_all, all_gather, reduce_scatter, all_reduce");
  EXPECT_EQ(identifiersOf(&CollectiveTraits::inHaloExchanges), "transfer, broadcast");
}

TEST(Collectives, HaveOneAmountForNumbersAndExpressions) {
  const IntExpr n = IntExpr::symbol("n", {.lower = 1});
  for (const Collective kind : {Collective::AllGather, Collective::ReduceScatter, Collective::AllReduce,
                                Collective::AllToAll, Collective::Broadcast, Collective::Scatter}) {
    const IntExpr symbolic = amountReceived<IntExpr>(kind, n * 10, n * 6, n);
    for (const int64_t ranks : {1, 2, 3, 8}) {
      const int64_t exact = amountReceived<int64_t>(kind, ranks * 10, ranks * 6, ranks);
      EXPECT_EQ(symbolic.evaluate([&](std::string_view) { return ranks; }), exact) << name(kind);
      EXPECT_EQ(amountReceived<double>(kind, ranks * 10.0, ranks * 6.0, static_cast<double>(ranks)), exact)
          << name(kind);
    }
  }
  EXPECT_EQ(amountReceived<IntExpr>(Collective::AllReduce, n * 10, n * 10, n), n * 20 - 20);
  EXPECT_EQ(amountReceived<int64_t>(Collective::AllReduce, 7, 7, 2), 7);
  EXPECT_EQ(amountReceived<int64_t>(Collective::Broadcast, 7, 7, 2), 3) << "rounded down";
  constexpr int64_t kLargest = int64_t{1} << 50;
  EXPECT_EQ(amountReceived<int64_t>(Collective::AllReduce, kLargest, kLargest, 1 << 20), 2 * kLargest - (1LL << 31));
}

TEST(Collectives, OfAllReducesReceiveTheirPartFromAllAndTheRest) {
  EXPECT_EQ(receivedInAllReduce(8, 2, 4), 12);
  EXPECT_EQ(receivedInAllReduce(8, 8, 4), 24) << "one rank combines all";
  EXPECT_EQ(receivedInAllReduce(8, 2, 4), amountReceived<int64_t>(Collective::AllReduce, 8, 8, 4)) << "equal parts";
}

TEST(Collectives, NameTheFormOfACall) {
  EXPECT_EQ(callName(Collective::AllGather, BlockForm::Equal), "all-gather");
  EXPECT_EQ(callName(Collective::AllGather, BlockForm::Counted), "all-gather-v");
  EXPECT_EQ(callName(Collective::Transfer, BlockForm::Permutation), "permute");
}

}  // namespace
}  // namespace meshfuse
