#include "autoplan/program_steps.h"

#include <gtest/gtest.h>

#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {
namespace {

using Stored = std::set<int64_t>;

TEST(ProgramSteps, OpsBetweenProductsAreOneKernel) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  T0 = input() : Float[8, 8]\n"
      "  T1 = input() : Float[8, 8]\n"
      "  T2 = matmul(T0, T1) : Float[8, 8, r{8}]\n"
      "  T3 = exp(T2) : Float[8, 8]\n"
      "  T4 = add(T3, T2) : Float[8, 8]\n"
      "  T5 = matmul(T4, T1) : Float[8, 8, r{8}]\n"
      "  output T5\n"
      "}\n");
  const ProgramSteps steps = programSteps(*fusion);
  EXPECT_EQ(steps.count, 3);
  EXPECT_EQ(steps.stepOf, (std::map<int64_t, int64_t>{{2, 0}, {3, 1}, {4, 1}, {5, 2}}));
  EXPECT_EQ(steps.stored, (Stored{0, 1, 2, 4, 5}));
}

// The sum waits for the product, so it is no part of the first kernel, which writes T1 for it in 16 bits; T4 is a part of the second one.
TEST(ProgramSteps, AResidualIsInMemoryInItsNarrowType) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  T0 = input() : Float[8, 8]\n"
      "  T1 = cast(T0) : BFloat16[8, 8]\n"
      "  T2 = input() : BFloat16[8, 8]\n"
      "  T3 = matmul(T1, T2) : BFloat16[8, 8, r{8}]\n"
      "  T4 = cast(T1) : Float[8, 8]\n"
      "  T5 = cast(T3) : Float[8, 8]\n"
      "  T6 = add(T4, T5) : Float[8, 8]\n"
      "  output T6\n"
      "}\n");
  const ProgramSteps steps = programSteps(*fusion);
  EXPECT_EQ(steps.count, 3);
  EXPECT_EQ(steps.stored, (Stored{0, 1, 2, 3, 6}));
}

TEST(ProgramSteps, SumsOverOtherDimsAreOtherKernels) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  T0 = input() : Float[8, 8]\n"
      "  T1 = exp(T0) : Float[8, 8]\n"
      "  T2 = reduce(T1, op=sum) : Float[8, r{8}]\n"
      "  T3 = reduce(T1, op=sum) : Float[r{8}, 8]\n"
      "  output T2\n"
      "  output T3\n"
      "}\n");
  const ProgramSteps steps = programSteps(*fusion);
  EXPECT_EQ(steps.count, 2);
  EXPECT_EQ(steps.stored, (Stored{0, 1, 2, 3}));
}

TEST(ProgramSteps, ViewsShareMemoryAndTakeNoStep) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  T0 = input() : Float[8, 8]\n"
      "  T1 = input() : Float[8, 8]\n"
      "  T2 = matmul(T0, T1) : Float[8, 8, r{8}]\n"
      "  T3 = permute(T2, order=[1, 0]) : Float[8, 8]\n"
      "  T4 = matmul(T3, T1) : Float[8, 8, r{8}]\n"
      "  output T4\n"
      "}\n");
  const ProgramSteps steps = programSteps(*fusion);
  EXPECT_EQ(steps.count, 2);
  EXPECT_EQ(steps.ownerOf(3), 2);
  EXPECT_EQ(steps.stored, (Stored{0, 1, 2, 4}));
}

// The kernels of T3 and T5 become one before T7 and T8 are placed, and these are views of the product T4 all the same.
TEST(ProgramSteps, AViewOfAViewSharesTheMemoryOfItsFirstTensor) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  T0 = input() : Float[8, 8]\n"
      "  T1 = input() : Float[8, 8]\n"
      "  T3 = exp(T0) : Float[8, 8]\n"
      "  T4 = matmul(T0, T1) : Float[8, 8, r{8}]\n"
      "  T5 = exp(T4) : Float[8, 8]\n"
      "  T6 = add(T3, T5) : Float[8, 8]\n"
      "  T7 = set(T4) : Float[8, 8]\n"
      "  T8 = permute(T7, order=[1, 0]) : Float[8, 8]\n"
      "  T9 = matmul(T8, T6) : Float[8, 8, r{8}]\n"
      "  output T9\n"
      "}\n");
  const ProgramSteps steps = programSteps(*fusion);
  EXPECT_EQ(steps.count, 3);
  EXPECT_EQ(steps.owner, (std::map<int64_t, int64_t>{{7, 4}, {8, 4}}));
  EXPECT_EQ(steps.stored, (Stored{0, 1, 4, 6, 9}));
}

}  // namespace
}  // namespace meshfuse
