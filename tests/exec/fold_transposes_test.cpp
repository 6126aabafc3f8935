// Transposes that only matrix products read cost no kernel; others do.
#include <gtest/gtest.h>

#include "exec/fusion_executor_cache.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "meshfuse_config.h"

namespace meshfuse {

namespace {

class FoldTransposes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kHasOneDnn) {
      GTEST_SKIP() << "without a library there are no strided operands";
    }
  }

  // Steps of a fusion of two [12, 20] and [12, 8] inputs, whose results are checked.
  static size_t steps(const std::function<void(Fusion&, TensorView*, TensorView*)>& build) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigConcreteTensor({12, 20});
      TensorView* y = makeContigConcreteTensor({12, 8});
      fusion->addInput(x);
      fusion->addInput(y);
      build(*fusion, x, y);
    }
    std::vector<Argument> inputs = {randomTensor({12, 20}, DataType::Float, 1),
                                    randomTensor({12, 8}, DataType::Float, 2)};
    std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, inputs);
    FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Always});
    std::vector<Tensor> got = cache.runFusionWithInputs(inputs);
    for (size_t i = 0; i < got.size(); i++) {
      EXPECT_EQ(compare(got[i], expected[i]).value_or(""), "") << "output " << i;
    }
    return cache.profile(inputs).steps.size();
  }
};

TEST_F(FoldTransposes, OfAnInput) {
  EXPECT_EQ(steps([](Fusion& f, TensorView* x, TensorView* y) { f.addOutput(matmul(transpose(x), y)); }), 1u);
}

TEST_F(FoldTransposes, OfAResult) {
  EXPECT_EQ(steps([](Fusion& f, TensorView* x, TensorView* y) { f.addOutput(matmul(transpose(exp(x)), exp(y))); }), 3u);
}

TEST_F(FoldTransposes, OfBothOperandsOfALinear) {
  EXPECT_EQ(steps([](Fusion& f, TensorView* x, TensorView* y) { f.addOutput(linear(transpose(x), transpose(y))); }),
            1u);
}

TEST_F(FoldTransposes, NotWhereAnotherOpReadsIt) {
  EXPECT_EQ(steps([](Fusion& f, TensorView* x, TensorView* y) {
              TensorView* t = transpose(x);
              f.addOutput(matmul(t, y));
              f.addOutput(t);
            }),
            2u);
}

TEST_F(FoldTransposes, NotOfAnInputThatIsOverwritten) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({4, 4});
    fusion->addInput(x);
    TensorView* next = mul(x, 2.0);
    fusion->addOutput(matmul(transpose(x), x));
    fusion->addOutput(next);
    fusion->aliasOutputToInput(next, x);
  }
  Tensor x = randomTensor({4, 4}, DataType::Float, 3);
  Tensor before = x.clone();
  FusionExecutorCache cache(std::move(fusion));
  Tensor product = cache.runFusionWithInputs({x})[0];
  for (int64_t i = 0; i < 4; i++) {
    for (int64_t j = 0; j < 4; j++) {
      double expected = 0;
      for (int64_t k = 0; k < 4; k++) {
        expected += before.at({k, i}) * before.at({k, j});
      }
      EXPECT_NEAR(product.at({i, j}), expected, 1e-5);
      EXPECT_EQ(x.at({i, j}), 2 * before.at({i, j}));
    }
  }
}

}  // namespace

}  // namespace meshfuse
