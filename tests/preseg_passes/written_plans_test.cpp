// Plans that stand in the text of a program: read, checked, and not made again.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "localize/localize.h"
#include "multidevice/sharding/plan_memo.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/plan_redistributions.h"
#include "preseg_passes/table.h"

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
  // T3 and T4 are as T0 and T1
  std::string text = program("", "");
  const std::string_view end = "  output T1\n";
  text.insert(text.find(end),
              "  T3 = input() : Float[8, 4] contiguity[t, t] mesh M0 outer_split(0, 2) parallelize(0, DIDx)\n"
              "  T4 = redistribute(T3) : Float[8, 4] mesh M0 outer_split(1, 2) parallelize(1, DIDx)\n"
              "  output T4\n");
  const std::unique_ptr<Fusion> fusion = parseFusion(text);
  PassContext context(*fusion);
  EXPECT_TRUE(planRedistributions(*fusion, context));
  EXPECT_EQ(context.memo<PlanMemo>().size(), 2);
  EXPECT_NE(fusion->toString().find("redistribute(T0" + kExchange), std::string::npos) << fusion->toString();
  EXPECT_NE(fusion->toString().find("redistribute(T3" + kExchange), std::string::npos) << fusion->toString();
  EXPECT_NE(fusion->toString().find(kGather), std::string::npos) << fusion->toString();
}

// A plan has the sizes for which it was made: it is taken for any size only if the devices divide it.
TEST(WrittenPlans, AreForSizesThatTheDevicesDivide) {
  const std::unique_ptr<Fusion> ofAnySize = parseFusion(
      "fusion {\n"
      "  mesh M0 {x: 2} [0, 1]\n"
      "  T0 = input() : Float[i0, 4] contiguity[t, t] mesh M0 outer_split(0, 2) parallelize(0, DIDx)\n"
      "  T1 = redistribute(T0" +
      kGather +
      ") : Float[i0, 4] mesh M0\n"
      "  output T1\n"
      "}\n");
  const auto refusal = [&](int64_t divisor, int64_t rows) -> std::string {
    const IntExpr size = IntExpr::symbol("i0", {.lower = 2, .divisor = divisor});
    const std::shared_ptr<Fusion> fusion = concretize(*ofAnySize, SymbolSizes{{"i0", size}});
    PassContext context(*fusion);
    context.memo<PlanMemo>().takeSizes({{"i0", rows}});
    try {
      EXPECT_FALSE(planRedistributions(*fusion, context));
      return "";
    } catch (const UserError& e) {
      return e.what();
    }
  };
  EXPECT_EQ(refusal(2, 8), "");
  EXPECT_NE(refusal(1, 8).find("the 2 devices do not divide dim 0 of i0 elements; give constant sizes"),
            std::string::npos)
      << refusal(1, 8);
  EXPECT_NE(refusal(2, 12).find("does not lead from"), std::string::npos) << refusal(2, 12);
}

struct Mistake {
  std::string plan;
  std::vector<std::string> phrases;
};

void expectRefused(const std::string& text, const std::vector<std::string>& phrases) {
  try {
    const std::unique_ptr<Fusion> fusion = parseFusion(text);
    PassContext context(*fusion);
    planRedistributions(*fusion, context);
    ADD_FAILURE() << text << " was taken";
  } catch (const UserError& e) {
    for (const std::string& phrase : phrases) {
      EXPECT_NE(std::string_view(e.what()).find(phrase), std::string_view::npos) << phrase << " in " << e.what();
    }
  }
}

TEST(WrittenPlans, ThatDoNotFitTheirShardingsAreRefused) {
  const std::vector<Mistake> mistakes = {
      {", plan=[]", {"T1", "the plan has no step, expected a first one that starts at S0(x) R on {x: 2}"}},
      {kGather, {"T1", "the last step, all_gather(x), ends at a different state than R S1(x) on {x: 2}"}},
      {", plan=[all_gather(x) on M0 [2:x 4, 4] -> [8, 2:x 2]]", {"T1", "all_gather(x)"}},
      {", plan=[slice(x) on M0 [2:x 4, 4] -> [8, 2:x 2]]", {"T1", "slice(x)", "does not hold"}},
      {", plan=[all_to_all() on M0 [2:x 4, 4] -> [8, 2:x 2]]", {"T1", "all_to_all()", "team"}},
      {", plan=[all_to_all(x) on M0 [8, 4] -> [8, 2:x 2]]",
       {"T1", "all_to_all(x)", "axes that this kind of step cannot assign"}},
      {", plan=[all_to_all(x) on M0 [2:x 8, 4] -> [8, 2:x 2]]",
       {"T1", "the first step, all_to_all(x), starts at a different state than S0(x) R on {x: 2}"}},
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
    expectRefused(program(m.plan, kGather), m.phrases);
  }
}

// T3 and T4 take rows of T0 that other ranks hold, T5 rows of T1. T2 is T0 on every rank.
std::string windows(std::string_view first, std::string_view second, std::string_view other) {
  const std::string_view cut = "mesh M0 pinned outer_split(0, 4) parallelize(0, DIDx)";
  return fmt::format(
      "fusion {{\n"
      "  mesh M0 {{x: 4}} [0, 1, 2, 3]\n"
      "  T0 = input() : Float[16] contiguity[t] {0} loop[DIDx{{4}}, 4]\n"
      "  T1 = input() : Float[16] contiguity[t] {0} loop[DIDx{{4}}, 4]\n"
      "  T2 = redistribute(T0, plan=[all_gather(x) on M0 [4:x 4] -> [16]]) : Float[16] mesh M0 pinned\n"
      "  T3 = slice(T0, starts=[2], stops=[14], steps=[1]{1}) : Float[12] {0} loop[DIDx{{4}}, 3]\n"
      "  T4 = slice(T0, starts=[3], stops=[15], steps=[1]{2}) : Float[12] {0} loop[DIDx{{4}}, 3]\n"
      "  T5 = slice(T1, starts=[2], stops=[14], steps=[1]{3}) : Float[12] {0} loop[DIDx{{4}}, 3]\n"
      "  output T2\n"
      "  output T3\n"
      "  output T4\n"
      "  output T5\n"
      "}}\n",
      cut, first, second, other);
}

const std::string kAlone = ", plan=[transfer(x)]";
const std::string kShared = ", plan=[shared 0(x)]";

struct WrittenWindows {
  std::string first;
  std::string second;
  int64_t exchanges;  // of T0
};

// Neither the passes nor localize decide again: an exchange that the text does not share stays alone.
TEST(WrittenPlans, OfWindowsAreTakenAsTheyAre) {
  for (const auto& [first, second, exchanges] : {WrittenWindows{kShared, kShared, 1},
                                                 {kShared, kAlone, 2},
                                                 {kAlone, kAlone, 2},
                                                 {", plan=[shared 5(x)]", kShared, 2}}) {
    const std::string text = windows(first, second, kAlone);
    const std::unique_ptr<Fusion> fusion = parseFusion(text);
    PassContext context(*fusion);
    runPresegPasses(*fusion, context);
    EXPECT_EQ(fusion->toString(), parseFusion(text)->toString());
    EXPECT_EQ(context.memo<PlanMemo>().size(), 0);
    const std::unique_ptr<Fusion> local = localize(*fusion, 1);
    EXPECT_EQ(std::ranges::count(local->exprs(), ExprKind::Communicate, &Expr::kind), 1 + exchanges + 1) << text;
  }
}

TEST(WrittenPlans, OfSomeWindowsAreKeptWhileTheOthersArePlanned) {
  const std::unique_ptr<Fusion> fusion = parseFusion(windows(", plan=[]", ", plan=[]", kShared));
  PassContext context(*fusion);
  EXPECT_TRUE(planRedistributions(*fusion, context));
  EXPECT_EQ(fusion->toString(),
            parseFusion(windows(", plan=[shared 1(x)]", ", plan=[shared 1(x)]", kShared))->toString());
  EXPECT_FALSE(planRedistributions(*fusion, context));
}

TEST(WrittenPlans, OfWindowsThatDoNotFitAreRefused) {
  const std::vector<Mistake> mistakes = {
      {", plan=[broadcast(x)]", {"step 0 of the plan of T3[", "broadcast(x) of T0[", "expected transfer(x)"}},
      {", plan=[slice]", {"step 0 of the plan of T3[", "slice of T0[", "expected transfer(x)"}},
      {", plan=[shared 0]", {"step 0 of the plan of T3[", "shared 0 of T0[", "expected transfer(x)"}},
      {", plan=[shared(x)]", {"'shared(x)' is no step of a halo exchange", "shared 0"}},
      {", plan=[shared -1(x)]", {"'shared -1(x)' has a number out of range", "expected 0 to"}},
      {", plan=[transfer(x), slice]", {"the plan of T3[", "has 2 steps in the text, the last one slice; expected 1"}},
  };
  for (const Mistake& m : mistakes) {
    expectRefused(windows(m.plan, kAlone, kAlone), m.phrases);
  }
  expectRefused(windows(kAlone, kShared, kShared),
                {"step 0 of the plan of T5[", "shared 0(x) of T1[", "the number of an exchange of T0["});
}

}  // namespace
}  // namespace meshfuse
