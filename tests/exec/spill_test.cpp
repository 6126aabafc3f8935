// Costly values kept from one sweep over a row for the next are right wherever they are asked for.
#include <gtest/gtest.h>

#include "exec/fusion_executor_cache.h"
#include "host/program.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

class Spill : public ::testing::TestWithParam<int64_t> {
 protected:
  static void agrees(const std::function<TensorView*(TensorView*)>& build, const Tensor& x, bool pipelined) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* in = makeContigTensor(2);
      fusion->addInput(in);
      fusion->addOutput(build(in));
    }
    std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, std::vector<Argument>{x});
    FusionExecutorCache cache(std::move(fusion));
    EXPECT_EQ(compare(cache.runFusionWithInputs({x})[0], expected[0]).value_or(""), "");
    bool keeps = false;
    bool pipeline = false;
    for (const Step& s : cache.hostProgram()->steps) {
      keeps = keeps || s.launch.program.find("scratch e0") != std::string::npos;
      pipeline = pipeline || s.launch.program.find("for i_s of i") != std::string::npos;
    }
    EXPECT_TRUE(keeps) << "nothing is kept";
    EXPECT_EQ(pipeline, pipelined);
  }
};

INSTANTIATE_TEST_SUITE_P(Rows, Spill, ::testing::Values(40, 400));

TEST_P(Spill, IsReadWhereItWasStored) {
  Tensor x = randomTensor({GetParam(), 1000}, DataType::Float, 1);
  agrees([](TensorView* t) { return softmax(t, 1); }, x, GetParam() >= 256);
}

TEST_P(Spill, IsNotReadAtOtherPositions) {
  Tensor x = randomTensor({GetParam(), 1000}, DataType::Float, 1);
  int64_t rows = GetParam();
  agrees(
      [rows](TensorView* t) {
        TensorView* e = exp(t);
        TensorView* shifted = pad(slice(e, {0, 1}, {rows, 1000}), {0, 1});
        return add(div(e, sum(e, {1}, true)), shifted);
      },
      x, GetParam() >= 256);
}

}  // namespace

}  // namespace meshfuse
