// Partial sums, aliases and conflicts as users write them: their values on all ranks and what they communicate.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/text.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/tensors.h"
#include "preseg_passes/sharded_program.h"

namespace meshfuse {
namespace {

ShardedRun run(const std::string& body) { return runSharded(*parseFusion("fusion {\n" + body + "}\n")); }

std::string partialSum(const std::string& rest, const std::string& dim = "p{2}") {
  return "  mesh M0 {x: 2} [0, 1]\n"
         "  T0 = input() : Float[8, 16] contiguity[t, t] mesh M0\n"
         "  T1 = reduce(T0, op=sum) : Float[" +
         dim + ", r{4}, 16] root[r{8}, 16; outer_split(0, 2)] mesh M0 parallelize(0, DIDx)\n" + rest;
}

TEST(UserShardings, ReductionOfAPartialSumCombinesIt) {
  EXPECT_EQ(run(partialSum("  T2 = reduce(T1, op=sum) : Float[r{2}, 16]\n  output T2\n")).communications,
            Steps{"all_reduce(x)"});
}

TEST(UserShardings, ReductionOfAPartialSumToShardsScattersIt) {
  EXPECT_EQ(
      run(partialSum("  T2 = reduce(T1, op=sum) : Float[r{2}, 16] mesh M0 outer_split(1, 2) parallelize(1, DIDx)\n"
                     "  T3 = neg(T2) : Float[16]\n  output T3\n"))
          .communications,
      Steps{"reduce_scatter(x)"});
}

TEST(UserShardings, LargestOfPartialSumsIsWhatTheTextSays) {
  EXPECT_EQ(run(partialSum("  T2 = reduce(T1, op=max) : Float[r{2}, 16]\n  output T2\n", "p{2, max}")).communications,
            Steps{"all_reduce(x)"});
}

TEST(UserShardings, UnfinishedPartialSumIsRefused) {
  try {
    (void)run(partialSum("  T2 = neg(T1) : Float[2, 16]\n  output T2\n"));
    FAIL() << "no error";
  } catch (const UserError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("T1[pDIDx{2}, r{4}, 16] is a partial sum over x"), std::string::npos) << what;
    EXPECT_NE(what.find("neg reads it for T2"), std::string::npos) << what;
    EXPECT_NE(what.find("expected a reduction of dim 0 alone"), std::string::npos) << what;
  }
}

TEST(UserShardings, OutputInAnInputsMemoryTakesItsSharding) {
  const ShardedRun r =
      run("  mesh M0 {x: 4} [0, 1, 2, 3]\n"
          "  T0 = input() : Float[8, 4] contiguity[t, t] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
          "  T1 = input() : Float[8, 4] contiguity[t, t] mesh M0 outer_split(1, 4) parallelize(1, DIDx)\n"
          "  T2 = add(T0, T1) : Float[8, 4]\n"
          "  output T2\n"
          "  alias T2 -> T1\n");
  EXPECT_EQ(r.communications, Steps{"all_to_all(x)"});
  ASSERT_EQ(r.local->aliases().size(), 1u);
}

TEST(UserShardings, OutputInTheMemoryOfAnInputOnAllRanksIsWhole) {
  const ShardedRun r =
      run("  mesh M0 {x: 4} [0, 1, 2, 3]\n"
          "  T0 = input() : Float[8, 4] contiguity[t, t] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
          "  T1 = input() : Float[8, 4] contiguity[t, t]\n"
          "  T2 = add(T0, T1) : Float[8, 4]\n"
          "  output T2\n"
          "  alias T2 -> T1\n");
  EXPECT_EQ(r.communications, Steps{"all_gather(x)"});
  ASSERT_EQ(r.local->aliases().size(), 1u);
}

// The reduced dim of a result may be bound, whether or not the operand is cut there: the sum is whole.
TEST(UserShardings, ReducedDimsMayBeBound) {
  for (bool cut : {false, true}) {
    Fusion fusion;
    const DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
    TensorView* x = makeContigConcreteTensor(fusion, {8, 4}, DataType::Float);
    fusion.addInput(x);
    shard(x, mesh, cut ? std::vector<DimAxis>{{0, "x"}} : std::vector<DimAxis>{});
    TensorView* y = sum(x, {0});
    fusion.addOutput(y);
    shard(y, mesh, {{0, "x"}});
    ASSERT_TRUE(y->axis(0)->isReduction());
    EXPECT_EQ(runSharded(fusion).communications, cut ? Steps{"all_reduce(x)"} : Steps{});
  }
}

// The inner part of an axis is another placement than the whole axis, though both are one split of the dim.
TEST(UserShardings, APartOfAnAxisIsNotTheAxis) {
  const std::string mesh = "  mesh M0 {x: 4} [0, 1, 2, 3]\n";
  const std::string part = "  T1 = exp(T0) : Float[8, 4] mesh M0 outer_split(0, 2) parallelize(0, DIDx:2:2)\n";
  const std::string whole = "  T2 = neg(T0) : Float[8, 4] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n";
  for (const char* placed : {" outer_split(1, 4) parallelize(1, DIDx)", ""}) {
    const std::string input = mesh + "  T0 = input() : Float[8, 4] contiguity[t, t] mesh M0" + placed + "\n";
    (void)run(input + part + whole + "  output T1\n  output T2\n");
    (void)run(input + whole + part + "  output T1\n  output T2\n");
  }
}

// Of two windows that share an exchange one has no rows on the last rank.
TEST(UserShardings, WindowsThatShareAnExchangeMayBeEmptySomewhere) {
  (void)run(
      "  mesh M0 {x: 4} [0, 1, 2, 3]\n"
      "  T0 = input() : Float[12, 8] contiguity[t, t] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T1 = slice(T0, starts=[1, 4], stops=[12, 8], steps=[1, 1]) : Float[11, 4] mesh M0 outer_split(0, 4) "
      "parallelize(0, DIDx)\n"
      "  T2 = slice(T0, starts=[1, 0], stops=[10, 4], steps=[1, 1]) : Float[9, 4] mesh M0 outer_split(0, 4) "
      "parallelize(0, DIDx)\n"
      "  output T1\n"
      "  output T2\n");
}

// The cat waits for a collective that is packed with a later one, and stands after the slice with which it shares an exchange.
TEST(UserShardings, WindowsThatShareAnExchangeMayStandInAnotherOrder) {
  (void)run(
      "  mesh M0 {x: 4} [0, 1, 2, 3]\n"
      "  T0 = input() : Float[4, 4] contiguity[t, t] mesh M0 outer_split(1, 4) parallelize(1, DIDx)\n"
      "  T1 = input() : Float[12, 4] contiguity[t, t] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T2 = input() : Float[8, 4] contiguity[t, t] mesh M0 outer_split(1, 4) parallelize(1, DIDx)\n"
      "  T3 = redistribute(T0) : Float[4, 4] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T4 = cat(T3, T1, dim=0) : Float[16, 4] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T5 = slice(T1, starts=[1, 0], stops=[9, 4], steps=[1, 1]) : Float[8, 4] mesh M0 outer_split(0, 4) "
      "parallelize(0, DIDx)\n"
      "  T6 = redistribute(T2) : Float[8, 4] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  output T4\n"
      "  output T5\n"
      "  output T6\n");
}

TEST(UserShardings, TwoKindsOfSumsInOneTree) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  const DeviceMesh mesh = DeviceMesh::create({{"y", 2}, {"x", 2}});
  std::vector<TensorView*> sums;
  for (const char* axis : {"x", "y", "y", "x"}) {
    TensorView* in = makeContigConcreteTensor({8, 4});
    fusion.addInput(in);
    shard(in, mesh, {{0, axis}});
    sums.push_back(sum(in, {0}));
  }
  fusion.addOutput(add(add(sums[0], add(sums[1], sums[2])), sums[3]));
  EXPECT_EQ(runSharded(fusion).communications, (Steps{"all_reduce(x)", "all_reduce(y)"}));
}

// Readers of a combined sum want different parts of it: what its contributions are is no question of places.
TEST(UserShardings, ReadersOfAWrittenSumWantDifferentParts) {
  (void)run(
      "  mesh M0 {x: 2} [0, 1]\n"
      "  T0 = input() : Float[8, 4, 4] contiguity[t, t, t] mesh M0 outer_split(0, 2) parallelize(0, DIDx)\n"
      "  T1 = reduce(T0, op=sum) : Float[p{2}, r{4}, 4, 4] root[r{8}, 4, 4; outer_split(0, 2)] mesh M0 parallelize(0, "
      "DIDx)\n"
      "  T2 = reduce(T1, op=sum) : Float[r{2}, 4, 4]\n"
      "  T3 = neg(T2) : Float[4, 4] mesh M0 outer_split(0, 2) parallelize(0, DIDx)\n"
      "  T4 = exp(T2) : Float[4, 4] mesh M0 outer_split(1, 2) parallelize(1, DIDx)\n"
      "  output T3\n"
      "  output T4\n");
}

TEST(UserShardings, TheCheaperOfTwoShardingsIsTaken) {
  // gathering the vector is 48 bytes a rank, moving the matrix 96
  const ShardedRun r =
      run("  mesh M0 {x: 4} [0, 1, 2, 3]\n"
          "  T0 = input() : Float[16] contiguity[t] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
          "  T1 = input() : Float[8, 16] contiguity[t, t] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
          "  T2 = broadcast(T0, flags=[t, f]) : Float[b{1}, 16]\n"
          "  T3 = add(T2, T1) : Float[8, 16]\n"
          "  output T3\n");
  EXPECT_EQ(r.communications, Steps{"all_gather(x)"});
}

}  // namespace
}  // namespace meshfuse
