// Plans that stand in the text of a program: read, checked, and not made again.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "multidevice/sharding/plan_memo.h"
#include "preseg_passes/plan_redistributions.h"

namespace meshfuse {
namespace {

// T1 = T0 in columns, T2 = T0 on every rank, planned as given.
std::string program(std::string_view columns, std::string_view whole) {
  return fmt::format(
      "fusion {{\n"
      "  mesh M0 {{x: 2}} [0, 1]\n"
      "  T0 = input() : Float[8, 4] contiguity[t, t] mesh M0 outer_split(0, 2) parallelize(0, DIDx)\n"
      "  T1 = redistribute(T0{}) : Float[8, 4] mesh M0 outer_split(1, 2) parallelize(1, DIDx)\n"
      "  T2 = redistribute(T0{}) : Float[8, 4] mesh M0\n"
      "  output T1\n"
      "  output T2\n"
      "}}\n",
      columns, whole);
}

const std::string kExchange = ", plan=[all_to_all(x) on M0 [2:x 4, 4] -> [8, 2:x 2]]";
const std::string kGather = ", plan=[all_gather(x) on M0 [2:x 4, 4] -> [8, 4]]";
const std::string kDetour = ", plan=[all_gather(x) on M0 [2:x 4, 4] -> [8, 4], slice(x) on M0 [8, 4] -> [8, 2:x 2]]";

TEST(WrittenPlans, AreTakenAsTheyAre) {
  for (const std::string& columns : {kExchange, kDetour}) {
    const std::unique_ptr<Fusion> fusion = parseFusion(program(columns, kGather));
    EXPECT_NE(fusion->toString().find(columns), std::string::npos) << fusion->toString();
    PassContext context(*fusion);
    EXPECT_FALSE(planRedistributions(*fusion, context));
    EXPECT_EQ(context.memo<PlanMemo>().size(), 0);
    EXPECT_EQ(parseFusion(fusion->toString())->toString(), fusion->toString());
  }
}

TEST(WrittenPlans, EachDistinctRedistributionIsPlannedOnce) {
  const std::unique_ptr<Fusion> fusion = parseFusion(program("", ""));
  PassContext context(*fusion);
  EXPECT_TRUE(planRedistributions(*fusion, context));
  EXPECT_EQ(context.memo<PlanMemo>().size(), 2);
  EXPECT_NE(fusion->toString().find(kExchange), std::string::npos) << fusion->toString();
  EXPECT_NE(fusion->toString().find(kGather), std::string::npos) << fusion->toString();
}

struct Mistake {
  std::string columns;
  std::vector<std::string> phrases;
};

TEST(WrittenPlans, ThatDoNotFitTheirShardingsAreRefused) {
  const std::vector<Mistake> mistakes = {
      {", plan=[]", {"T1", "no step"}},
      {kGather, {"T1", "ends", "S1(x)"}},
      {", plan=[all_gather(x) on M0 [2:x 4, 4] -> [8, 2:x 2]]", {"T1", "all_gather(x)"}},
      {", plan=[slice(x) on M0 [2:x 4, 4] -> [8, 2:x 2]]", {"T1", "slice(x)", "does not hold"}},
      {", plan=[all_to_all() on M0 [2:x 4, 4] -> [8, 2:x 2]]", {"T1", "all_to_all()", "team"}},
      {", plan=[all_to_all(x) on M0 [8, 4] -> [8, 2:x 2]]",
       {"T1", "all_to_all(x)", "axes that this kind of step cannot assign"}},
      {", plan=[all_to_all(x) on M0 [2:x 8, 4] -> [8, 2:x 2]]", {"T1", "starts", "S0(x)"}},
      {", plan=[all_to_all(x) on M0 [2:x 2, 4] -> [8, 2:x 2]]", {"T1", "all_to_all(x)", "digits"}},
      {", plan=[all_to_all(x) on M0 [2:x 4] -> [8, 2:x 2]]", {"all_to_all(x)"}},
      {", plan=[all_to_all(x) on M0 [3:x 4, 4] -> [8, 2:x 2]]", {"digits as large as their axes"}},
      {", plan=[all_to_all(y) on M0 [2:x 4, 4] -> [8, 2:x 2]]", {"'y'"}},
      {", plan=[all_to_all(x) on M1 [2:x 4, 4] -> [8, 2:x 2]]", {"mesh that is defined"}},
      {", plan=[all_reduce(x) on M0 [2:x 4, 4] -> [8, 2:x 2]]", {"T1", "all_reduce(x)"}},
      {", plan=[permute(x) on M0 [2:x 4, 4] -> [8, 2:x 2] sources [1]]", {"T1", "permute(x)", "ranks"}},
      {", plan=[permute(x) on M0 [2:x 4, 4] -> [8, 2:x 2] sources [1, 7]]", {"T1", "permute(x)", "ranks"}},
      {", plan=[permute(x) on M0 [2:x 4, 4] -> [8, 2:x 2] sources [1, 0]]", {"T1", "permute(x)", "tile"}},
      {", plan=[to_partial(x) on M0 [2:x 4, 4] -> [8, 4] P(x)]", {"T1", "to_partial(x)", "combined"}},
      {", plan=[broadcast(x) on M0 [2:x 4, 4] -> [8, 2:x 2]]", {"all_gather"}},
      {", plan=[all_to_all(x)]", {"'on'"}},
  };
  for (const Mistake& m : mistakes) {
    try {
      const std::unique_ptr<Fusion> fusion = parseFusion(program(m.columns, kGather));
      PassContext context(*fusion);
      planRedistributions(*fusion, context);
      ADD_FAILURE() << m.columns << " was taken";
    } catch (const UserError& e) {
      for (const std::string& phrase : m.phrases) {
        EXPECT_NE(std::string_view(e.what()).find(phrase), std::string_view::npos) << phrase << " in " << e.what();
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
