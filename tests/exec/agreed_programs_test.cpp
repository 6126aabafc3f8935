// What a rank chooses after earlier calls. All ranks know how those ended.
#include "exec/agreed_programs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ranges.h"

namespace meshfuse {

namespace {

AgreedPrograms::Shapes shapesOfRows(int64_t n) { return {.sizes = {{n, 8}}}; }

SymbolValues rowValues(int64_t n) { return {{"i0", n}}; }

// Multiples of 16 are a class, 1 is a constant, other numbers are a class.
ShapeClass rowClass(int64_t n) {
  if (n == 1) {
    return {.sizes = {{"i0", 1}}};
  }
  const SymbolFacts facts{.lower = n % 16 == 0 ? 16 : 2, .divisor = n % 16 == 0 ? 16 : 1};
  ShapeClass result{.sizes = {{"i0", IntExpr::symbol("i0", facts)}}};
  result.values = result.valuesFor(rowValues(n));
  return result;
}

enum class CallOutcome : uint8_t {
  Runs,             // whether a rank fails later changes nothing
  PlanIsRefused,    // before the ranks have agreed on a program: all get the error
  SizesAreRefused,  // before they have agreed that it runs for the sizes
};

struct AgreedCall {
  int64_t size = 0;
  CallOutcome outcome = CallOutcome::Runs;
};

// Any rank in calls that exchange messages as PlanCache and Agreement do.
class AgreedRank {
 public:
  explicit AgreedRank(size_t most) : agreed_(most) {}

  // The messages and the program of the next call with these sizes.
  std::string choice(int64_t n) const {
    const ProgramChoice choice = agreed_.choose(shapesOfRows(n), rowClass(n), rowValues(n));
    return (choice.isNew ? "new, " : "agreed, ") +
           (choice.program == nullptr ? "planned" : std::to_string(choice.program->agreed.identity)) +
           (choice.sizes.isConstant() ? ", constant" : ", of a class");
  }

  // `identity`: of a program that is planned; the same on all ranks.
  void call(const AgreedCall& event, uint64_t identity) {
    const ProgramChoice choice = agreed_.choose(shapesOfRows(event.size), rowClass(event.size), rowValues(event.size));
    std::shared_ptr<const PlannedProgram> program = choice.program;
    if (program == nullptr) {
      if (event.outcome == CallOutcome::PlanIsRefused) {
        return;
      }
      program = std::make_shared<PlannedProgram>(
          PlannedProgram{.planned = nullptr, .agreed = {.identity = identity}, .sizes = choice.sizes});
    }
    if (choice.isNew && !program->sizes.isConstant() && event.outcome == CallOutcome::SizesAreRefused) {
      return;
    }
    if (choice.isNew) {
      agreed_.keep(shapesOfRows(event.size), program);
    }
    (void)agreed_.takeEvicted();
  }

 private:
  AgreedPrograms agreed_;
};

TEST(AgreedPrograms, ACallThatAllRefuseChangesNothing) {
  for (const CallOutcome outcome : {CallOutcome::PlanIsRefused, CallOutcome::SizesAreRefused}) {
    AgreedRank rank(8);
    rank.call({6, CallOutcome::Runs}, 1);
    EXPECT_EQ(rank.choice(10), "new, 1, of a class");
    rank.call({10, CallOutcome::SizesAreRefused}, 2);
    EXPECT_EQ(rank.choice(10), "new, 1, of a class");
    rank.call({16, outcome}, 3);
    EXPECT_EQ(rank.choice(16), "new, planned, of a class");
    EXPECT_EQ(rank.choice(1), "new, planned, constant");
    EXPECT_EQ(rank.choice(6), "agreed, 1, of a class");
  }
}

TEST(AgreedPrograms, NewShapesTakeTheProgramOfTheirClass) {
  AgreedRank rank(8);
  rank.call({16, CallOutcome::Runs}, 1);
  EXPECT_EQ(rank.choice(16), "agreed, 1, of a class");
  EXPECT_EQ(rank.choice(48), "new, 1, of a class");
  EXPECT_EQ(rank.choice(10), "new, planned, of a class");
  rank.call({1, CallOutcome::Runs}, 2);
  EXPECT_EQ(rank.choice(1), "agreed, 2, constant");
}

// Which takes constant sizes, if it is no CPU.
TEST(AgreedPrograms, ShapesOnAnotherDeviceAreNew) {
  const auto ofCpu = std::make_shared<const PlannedProgram>(PlannedProgram{.planned = nullptr, .sizes = rowClass(6)});
  AgreedPrograms agreed(4);
  agreed.keep(shapesOfRows(6), ofCpu);
  AgreedPrograms::Shapes onGpu = shapesOfRows(6);
  onGpu.device = DeviceId::Kind::Cuda;
  const ProgramChoice choice = agreed.choose(onGpu, {.whyConstant = "kernels of GPUs"}, rowValues(6));
  EXPECT_TRUE(choice.isNew);
  EXPECT_EQ(choice.program, nullptr);
  EXPECT_TRUE(choice.sizes.isConstant());
  EXPECT_EQ(agreed.choose(onGpu, rowClass(10), rowValues(10)).program, nullptr);
  agreed.keep(onGpu, std::make_shared<const PlannedProgram>(PlannedProgram{.planned = nullptr}));
  EXPECT_EQ(agreed.choose(shapesOfRows(6), rowClass(6), rowValues(6)).program, ofCpu);
}

// They are taken, but other shapes do not depend on them.
TEST(AgreedPrograms, ShapesThatWereNotComparedHaveAListOfTheirOwn) {
  const auto constant = std::make_shared<const PlannedProgram>(PlannedProgram{.planned = nullptr});
  const auto ofClass = std::make_shared<const PlannedProgram>(PlannedProgram{.planned = nullptr, .sizes = rowClass(6)});
  AgreedPrograms agreed(2);
  agreed.keepUncompared(shapesOfRows(10), constant);
  agreed.keepUncompared(shapesOfRows(10), ofClass);
  EXPECT_EQ(agreed.find(shapesOfRows(10)), nullptr);
  const ProgramChoice choice = agreed.choose(shapesOfRows(10), rowClass(10), rowValues(10));
  EXPECT_TRUE(choice.isAgreed());
  EXPECT_EQ(choice.program, constant);
  EXPECT_EQ(agreed.choose(shapesOfRows(14), rowClass(14), rowValues(14)).program, nullptr);
  for (const int64_t n : {6, 14}) {
    agreed.keep(shapesOfRows(n), ofClass);
  }
  EXPECT_TRUE(agreed.isUncompared(shapesOfRows(10)));
  EXPECT_TRUE(agreed.takeEvicted().empty());
  agreed.keepUncompared(shapesOfRows(16), constant);
  agreed.keepUncompared(shapesOfRows(1), constant);
  EXPECT_EQ(agreed.takeEvicted(), std::vector{shapesOfRows(10)});
  EXPECT_EQ(agreed.choose(shapesOfRows(10), rowClass(10), rowValues(10)).program, ofClass);
  agreed.forgetUncompared();
  EXPECT_EQ(agreed.takeEvicted(), (std::vector{shapesOfRows(1), shapesOfRows(16)}));
  EXPECT_TRUE(agreed.choose(shapesOfRows(1), rowClass(1), rowValues(1)).isNew);
  EXPECT_EQ(agreed.choose(shapesOfRows(6), rowClass(6), rowValues(6)).program, ofClass);
}

TEST(AgreedPrograms, AClassIsPlannedAgainWhenAllItsShapesAreEvicted) {
  AgreedRank rank(2);
  rank.call({6, CallOutcome::Runs}, 1);
  rank.call({10, CallOutcome::Runs}, 2);
  rank.call({16, CallOutcome::Runs}, 3);
  EXPECT_EQ(rank.choice(6), "new, 1, of a class");
  rank.call({1, CallOutcome::Runs}, 4);
  EXPECT_EQ(rank.choice(6), "new, planned, of a class");
}

// New shapes of another class are evicted first.
TEST(AgreedPrograms, TheLastShapeOfAClassIsKept) {
  AgreedRank rank(3);
  rank.call({6, CallOutcome::Runs}, 1);
  rank.call({1, CallOutcome::Runs}, 2);
  for (const int64_t n : {16, 32, 48}) {
    rank.call({n, CallOutcome::Runs}, 3);
  }
  EXPECT_EQ(rank.choice(6), "agreed, 1, of a class");
  EXPECT_EQ(rank.choice(1), "agreed, 2, constant");
  EXPECT_EQ(rank.choice(48), "agreed, 3, of a class");
  EXPECT_EQ(rank.choice(32), "new, 3, of a class");
}

TEST(AgreedPrograms, SingleShapesDoNotTakeAllPlacesFromAClass) {
  AgreedPrograms programs(16);
  for (int64_t n = 0; n < 16; n++) {
    programs.keep(shapesOfRows(1000 + n), std::make_shared<PlannedProgram>());
  }
  const auto ofClass = std::make_shared<PlannedProgram>();
  for (const int64_t n : {16, 32}) {
    programs.keep(shapesOfRows(n), ofClass);
  }
  EXPECT_EQ(programs.find(shapesOfRows(16)), ofClass);
  EXPECT_EQ(programs.find(shapesOfRows(32)), ofClass);
  programs.keep(shapesOfRows(48), ofClass);
  EXPECT_EQ(programs.find(shapesOfRows(16)), nullptr);
  EXPECT_NE(programs.find(shapesOfRows(1002)), nullptr);
}

}  // namespace

}  // namespace meshfuse
