// Scalar steps against the reference interpreter's scalars.
#include "host/scalars.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "interpret/scalar_value.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

double asDouble(uint64_t bits, DataType type) { return loadElement(&bits, type); }

TEST(ScalarSteps, AgreeWithTheInterpreter) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  Val* d = IrBuilder::create<Val>(DataType::Double);
  Val* n = IrBuilder::create<Val>(DataType::Int);
  Val* b = IrBuilder::create<Val>(DataType::Bool);
  for (Val* v : {d, n, b}) {
    fusion.addInput(v);
  }
  std::vector<Val*> scalars = {d,
                               n,
                               b,
                               add(d, 1.0),
                               mul(d, n),
                               neg(d),
                               gt(d, 0.5),
                               where(gt(d, 0.5), d, n),
                               add(n, 3),
                               mul(n, n),
                               castOp(DataType::Int, d),
                               castOp(DataType::Double, n),
                               castOp(DataType::Bool, n),
                               logical_not(b),
                               div(d, add(n, 0.5)),
                               pow(abs(d), 0.5),
                               div(n, 2),
                               maximum(d, n),
                               sqrt(add(mul(d, d), 1.0))};
  for (const std::vector<Argument>& inputs : std::vector<std::vector<Argument>>{{0.75, int64_t{3}, true},
                                                                                {-2.5, int64_t{-7}, false},
                                                                                {0.0, int64_t{0}, true},
                                                                                {1e30, int64_t{1} << 20, false}}) {
    ScalarSteps steps;
    std::vector<int> numbers;
    for (const Val* s : scalars) {
      numbers.push_back(steps.add(fusion, s));
    }
    steps.run(fusion, inputs);
    for (size_t i = 0; i < scalars.size(); i++) {
      DataType type = scalars[i]->dtype();
      EXPECT_EQ(asDouble(steps.bits(numbers[i], type), type), interpretScalar(fusion, scalars[i], inputs))
          << "scalar " << i << " of " << std::get<double>(inputs[0]);
    }
  }
}

TEST(ScalarSteps, RoundToTheTypeOfTheArgument) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  Val* d = IrBuilder::create<Val>(DataType::Double);
  fusion.addInput(d);
  ScalarSteps steps;
  int number = steps.add(fusion, d);
  steps.run(fusion, std::vector<Argument>{0.1});
  EXPECT_EQ(asDouble(steps.bits(number, DataType::Float), DataType::Float), static_cast<double>(0.1f));
  EXPECT_EQ(asDouble(steps.bits(number, DataType::Double), DataType::Double), 0.1);
  EXPECT_EQ(steps.bits(number, DataType::Bool), 1u);
  EXPECT_EQ(steps.bits(number, DataType::Int), 0u);
  steps.run(fusion, std::vector<Argument>{std::numeric_limits<double>::quiet_NaN()});
  EXPECT_TRUE(std::isnan(asDouble(steps.bits(number, DataType::Half), DataType::Half)));
}

TEST(ScalarSteps, SharedOperandsAreComputedOnce) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  Val* d = IrBuilder::create<Val>(DataType::Double);
  fusion.addInput(d);
  Val* x = d;
  for (int i = 0; i < 60; i++) {
    x = mul(add(x, x), 0.5);
  }
  ScalarSteps steps;
  int number = steps.add(fusion, x);
  steps.run(fusion, std::vector<Argument>{1.5});
  EXPECT_EQ(asDouble(steps.bits(number, DataType::Double), DataType::Double), 1.5);
}

}  // namespace

}  // namespace meshfuse
