// Integers that shapes depend on are facts of a plan; other scalars are not.
#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/arguments.h"
#include "exec/fusion_executor_cache.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

TEST(ShapeScalars, ANewValueIsANewPlan) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    Val* n = IrBuilder::create<Val>(DataType::Int);
    Val* scale = IrBuilder::create<Val>(DataType::Double);
    fusion->addInput(n);
    fusion->addInput(scale);
    fusion->addOutput(mul(castOp(DataType::Double, iota(n)), scale));
  }
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Always});
  bool first = true;
  for (int64_t n : {5, 5, 7}) {
    for (double scale : {2.0, 0.5}) {
      std::vector<Tensor> out = cache.runFusionWithInputs({n, scale});
      ASSERT_EQ(out[0].numel(), n);
      EXPECT_EQ(out[0].at({n - 1}), static_cast<double>(n - 1) * scale);
      EXPECT_EQ(cache.missReason(), n == 7 && scale == 2.0                ? "input 0 is 7 instead of 5"
                                    : cache.plansCompiled() == 1 && first ? "the first call"
                                                                          : "");
      first = false;
    }
  }
  EXPECT_EQ(cache.plansCompiled(), 2);
  EXPECT_THROW(cache.runFusionWithInputs({0.5, 0.5}), UserError);
  EXPECT_THROW(cache.runFusionWithInputs({int64_t{-1}, 0.5}), UserError);
}

TEST(ShapeScalars, MayBeReadAsNumbersToo) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    Val* n = IrBuilder::create<Val>(DataType::Int);
    fusion->addInput(n);
    fusion->addOutput(mul(castOp(DataType::Double, iota(n)), castOp(DataType::Double, full({1}, n, DataType::Int))));
    fusion->addOutput(full({2}, n, DataType::Int));
  }
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Always});
  for (int64_t n : {5, 7, 5}) {
    const std::vector<Tensor> out = cache.runFusionWithInputs({n});
    EXPECT_EQ(out[0].at({n - 1}), static_cast<double>((n - 1) * n));
    EXPECT_EQ(out[1].at({1}), static_cast<double>(n));
  }
}

TEST(ShapeScalars, ElementsAreSizesOfAnArgumentWithAGlobalShapeToo) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* lengths = makeContigConcreteTensor({2}, DataType::Int);
  fusion.addInput(lengths);
  lengths->setDeviceMesh(DeviceMesh::createForNumDevices(1));
  fusion.addOutput(full({lengths->element(0), lengths->element(1)}, 1.0, DataType::Float));
  Tensor given = Tensor::full({2}, DataType::Int, 5);
  const std::vector<std::vector<int64_t>> expected{{2, 5, 5}};
  EXPECT_EQ(globalSizes(fusion, std::vector<Argument>{given}, 0), expected);
  EXPECT_EQ(globalSizes(fusion, std::vector<Argument>{given.withGlobalShape({2})}, 0), expected);
}

}  // namespace
}  // namespace meshfuse
