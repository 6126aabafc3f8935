// propagate_shardings: which of several suggestions a tensor takes and why, and that it does not matter when the pass runs.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>

#include "analysis/pass_context.h"
#include "ir/text.h"
#include "multidevice/sharding/shard_state.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/propagate_shardings.h"
#include "preseg_passes/random_program.h"
#include "preseg_passes/sharded_program.h"
#include "preseg_passes/table.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

struct Propagated {
  std::unique_ptr<Fusion> fusion;
  std::vector<std::string> remarks;
  std::map<int64_t, std::string> reasons;

  std::string stateOf(int64_t id) const { return shardState(fusion->val(id)->asTensor()).toString(); }
};

Propagated propagate(const std::string& body) {
  Propagated result{parseFusion("fusion {\n" + body + "}\n"), {}, {}};
  PassContext context(*result.fusion);
  propagateShardings(*result.fusion, context);
  result.remarks = context.remarks();
  result.reasons = context.reasons();
  return result;
}

constexpr const char* kGrid = "  mesh M0 {x: 2, y: 4} [0, 1, 2, 3, 4, 5, 6, 7]\n";

// A rank with a half lacks nothing of a quarter of that half; with a quarter it lacks half of the half.
TEST(Propagation, OfReadersTheCheaperOneIsFollowed) {
  const std::string quarters = "  T2 = exp(T1) : Float[16] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n";
  const std::string halves = "  T3 = neg(T1) : Float[16] mesh M0 outer_split(0, 2) parallelize(0, DIDy)\n";
  for (const std::string& readers : {quarters + halves, halves + quarters}) {
    const Propagated p = propagate(std::string(kGrid) + "  T0 = input() : Float[16] contiguity[t]\n" +
                                   "  T1 = sin(T0) : Float[16]\n" + readers + "  output T2\n  output T3\n");
    EXPECT_EQ(p.stateOf(1).substr(0, 5), "S0(x)");
    ASSERT_EQ(p.remarks.size(), 1U);
    EXPECT_NE(p.remarks[0].find("for which its neighbours receive"), std::string::npos) << p.remarks[0];
  }
}

// The order in which two readers stand in the text changes neither the plan nor its bytes.
TEST(Propagation, TheOrderOfReadersDoesNotMatter) {
  const std::string rows =
      "  T2 = reduce(T1, op=max) : Float[8, 8, r{64}] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n";
  const std::string columns = "  T3 = neg(T1) : Float[8, 8, 64] mesh M0 outer_split(1, 4) parallelize(1, DIDx)\n";
  std::set<std::string> states;
  for (const std::string& readers : {rows + columns, columns + rows}) {
    const Propagated p = propagate(
        "  mesh M0 {x: 4} [0, 1, 2, 3]\n"
        "  T0 = input() : Float[8, 8, 64] contiguity[t, t, t] mesh M0 outer_split(2, 4) parallelize(2, DIDx)\n"
        "  T1 = scan(T0, op=sum, dim=2) : Float[8, 8, 64]\n" +
        readers + "  output T2\n  output T3\n");
    states.insert(p.stateOf(1));
  }
  EXPECT_EQ(states.size(), 1U) << *states.begin();
}

// Of suggestions that cost the same: what passes elements through before what adds them up, and that before what stretches them.
TEST(Propagation, ReadersThatPassElementsThroughComeFirst) {
  const std::string mesh = "  mesh M0 {x: 2, y: 2} [0, 1, 2, 3]\n";
  const std::string start = mesh + "  T0 = input() : Float[8] contiguity[t]\n  T1 = sin(T0) : Float[8]\n";
  const std::string stretched =
      "  T2 = broadcast(T1, flags=[f, t]) : Float[8, b{1}] mesh M0 outer_split(0, 2) parallelize(0, DIDy)\n";
  const std::string passed = "  T3 = exp(T1) : Float[8] mesh M0 outer_split(0, 2) parallelize(0, DIDx)\n";
  for (const std::string& readers : {stretched + passed, passed + stretched}) {
    EXPECT_EQ(propagate(start + readers + "  output T2\n  output T3\n").stateOf(1).substr(0, 5), "S0(y)");
  }
}

TEST(Propagation, EveryTensorSaysWhereItsAxesComeFrom) {
  const Propagated p =
      propagate(std::string(kGrid) +
                "  T0 = input() : Float[8, 16] contiguity[t, t] mesh M0 outer_split(0, 2) parallelize(0, DIDy)\n"
                "  T1 = input() : Float[32, 16] contiguity[t, t] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
                "  T2 = sin(T0) : Float[8, 16]\n"
                "  T3 = linear(T2, T1) : Float[8, 32, r{16}]\n"
                "  T4 = full(1.0) : Float[8, 32]\n"
                "  T5 = mul(T3, T4) : Float[8, 32]\n"
                "  T6 = full(2.0) : Float[3]\n"
                "  T7 = exp(T6) : Float[3]\n"
                "  output T5\n"
                "  output T7\n");
  EXPECT_EQ(p.reasons,
            (std::map<int64_t, std::string>{{2, "from T0"}, {3, "from T1 and T2"}, {4, "for T5"}, {5, "from T3"}}));
}

TEST(Propagation, ASecondTimeChangesNothing) {
  std::map<std::string, int64_t> histogram;
  for (uint32_t seed = 0; seed < 600; seed++) {
    const RandomProgram program(seed, histogram,
                                {.uneven = seed % 3 == 1, .symbolic = seed % 3 == 2, .cleanUps = true});
    const std::unique_ptr<Fusion> fusion = program.fusion().clone();
    PassContext context(*fusion);
    propagateShardings(*fusion, context);
    const std::string once = fusion->toString();
    PassContext again(*fusion);
    ASSERT_FALSE(propagateShardings(*fusion, again)) << "seed " << seed << "\n" << once;
    ASSERT_EQ(fusion->toString(), once) << "seed " << seed;
  }
}

struct Planned {
  std::map<int64_t, std::string> shardings;  // of the program's own tensors, by id
  std::multiset<std::string> communication;
};

// All passes in the order of `names`.
Planned runInOrder(const Fusion& original, const std::vector<std::string>& names) {
  const std::unique_ptr<Fusion> fusion = concretize(original, SymbolValues{});
  PassContext context(*fusion);
  Planned planned;
  for (const std::string& name : names) {
    const auto row = std::ranges::find(presegPasses(), name, &PassRow<Fusion, PassContext>::name);
    if (row->run(*fusion, context)) {
      context.changed(row->keeps);
    }
  }
  for (const Expr* e : fusion->exprs()) {
    if (e->kind() == ExprKind::Redistribute) {
      planned.communication.insert(fmt::format("{} {} -> {}", name(e->tensorOutput()->dtype()),
                                               shardState(e->input(0)->asTensor()).toString(),
                                               shardState(e->tensorOutput()).toString()));
    }
  }
  for (const TensorView* tv : fusion->tensors()) {
    if (tv->id() < original.numVals()) {
      planned.shardings[tv->id()] = tv->hasDeviceMesh() ? shardState(tv).toString() : "on every rank";
    }
  }
  return planned;
}

// The passes that clean up may stand before propagation or after it; what they need of each other the table says.
TEST(Propagation, ItMayStandAnywhereAmongThePassesThatCleanUp) {
  const std::vector<std::string> before{"check-annotations"};
  const std::vector<std::string> after{"partialize-reductions", "decompose-reshardings", "optimize-reshards",
                                       "combine-variance",      "remove-unneeded-sets",  "plan-redistributions",
                                       "pack-redistributions"};
  std::vector<std::vector<std::string>> orders;
  std::vector<std::string> middle{"fold-windows", "insert-bounds-checks", "privatize-casts", "propagate-shardings",
                                  "remove-unneeded-sets"};
  do {
    // casts must be apart before shardings spread: each may take its own; and what lies between windows that are one must be gone
    const auto at = [&](const char* name) { return std::ranges::find(middle, name); };
    if (at("privatize-casts") < at("propagate-shardings") && at("fold-windows") < at("propagate-shardings")) {
      orders.push_back(before);
      orders.back().insert(orders.back().end(), middle.begin(), middle.end());
      orders.back().insert(orders.back().end(), after.begin(), after.end());
    }
  } while (std::ranges::next_permutation(middle).found);
  ASSERT_EQ(orders.size(), 40U);
  std::map<std::string, int64_t> histogram;
  int64_t communicate = 0;
  const uint32_t programs = kSanitized ? 50 : 300;
  for (uint32_t seed = 0; seed < programs; seed++) {
    const RandomProgram program(seed, histogram, {.uneven = seed % 2 == 1, .cleanUps = true});
    const Planned first = runInOrder(program.fusion(), orders[0]);
    communicate += first.communication.empty() ? 0 : 1;
    for (const std::vector<std::string>& order : orders) {
      const Planned other = runInOrder(program.fusion(), order);
      ASSERT_EQ(other.shardings, first.shardings) << "seed " << seed << "\n" << program.fusion().toString();
      ASSERT_EQ(other.communication, first.communication) << "seed " << seed;
    }
  }
  if (kSanitized) {
    return;
  }
  EXPECT_GT(communicate, 150);
  EXPECT_GT(histogram["set"], 50);
  EXPECT_GT(histogram["cast"], 50);
  EXPECT_GT(histogram["index"], 50);
  EXPECT_GT(histogram["slice of a pad"], 50);
}

}  // namespace
}  // namespace meshfuse
