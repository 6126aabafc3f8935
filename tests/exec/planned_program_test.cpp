// A stage that fails for a class of sizes leaves the sizes of the call, and says why.
#include "exec/planned_program.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/not_constant.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

// neg of i0 elements, i0 from 2 on.
PlannedProgram ofClass() {
  auto fusion = std::make_shared<Fusion>();
  TensorView* x = makeContigTensor(*fusion, 1);
  fusion->addInput(x);
  {
    const FusionGuard guard(fusion.get());
    fusion->addOutput(neg(x));
  }
  PlannedProgram result{.sizes = {.sizes = {{"i0", IntExpr::symbol("i0", {.lower = 2})}}, .values = {{"i0", 5}}}};
  result.planned = concretize(*fusion, result.sizes.sizes);
  return result;
}

// Runs stages that throw while the sizes are symbols; what they compiled.
template <class Failure>
PlannedProgram afterFailure(const Failure& failure) {
  PlannedProgram program = ofClass();
  const auto stages = [&] {
    if (!program.sizes.isConstant()) {
      failure();
    }
  };
  EXPECT_FALSE(holdsForClass(program, {{"i0", 5}}, stages));
  EXPECT_TRUE(holdsForClass(program, {{"i0", 5}}, stages));
  EXPECT_EQ(program.planned->inputs()[0]->asTensor()->constantShape(), std::vector<int64_t>{5});
  return program;
}

TEST(PlannedProgram, SizesAreConstantsIfAStageFailsForTheirClass) {
  EXPECT_EQ(afterFailure([] { throwUserError("not for\nall sizes"); }).sizes.whyConstant, "not for");
  EXPECT_EQ(afterFailure([] { throw NotConstantError("i0 is no number"); }).sizes.whyConstant, "i0 is no number");
  const PlannedProgram program = afterFailure([] { throwInternalError("a bug\nand its reproducer"); });
  EXPECT_EQ(program.sizes.whyConstant, "an internal error: a bug");
  // as MESHFUSE_PRINT_MISSES and explain() print it
  const std::vector<std::string> lines = program.sizes.toLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("an internal error: a bug"), std::string::npos) << lines[0];
}

TEST(PlannedProgram, ErrorsForConstantSizesAreThrown) {
  PlannedProgram program = ofClass();
  program.sizes = {};
  const auto fails = [] { throwInternalError("a bug"); };
  EXPECT_THROW((void)holdsForClass(program, {}, fails), InternalError);
}

}  // namespace

}  // namespace meshfuse
