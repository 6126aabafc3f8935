// Programs that the shapes of large tensors share: their sizes are between two powers of two (exec/shape_class.h).
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ranges.h"
#include "exec/explain.h"
#include "meshfuse/meshfuse.h"
#include "tensor/device_memory.h"

namespace meshfuse {

namespace {

class LargeShapesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (defaultDevice() != DeviceId::cpu()) {
      GTEST_SKIP() << "kernels of other devices take constant sizes";
    }
  }
};

// From 16 MiB of a tensor on.
TEST_F(LargeShapesTest, LargeSizesAreBetweenPowersOfTwo) {
  auto fusion = std::make_unique<Fusion>();
  {
    const FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({-1, 2048});
    fusion->addInput(x);
    fusion->addOutput(neg(x));
  }
  FusionExecutorCache cache(std::move(fusion));
  const auto lineFor = [&](int64_t rows) {
    const Tensor x = randomTensor({rows, 2048}, DataType::Float, 1);
    const Tensor y = cache.runFusionWithInputs({x})[0];
    for (int64_t i = 0; i < x.numel(); i++) {
      if (y.data_as<float>()[i] != -x.data_as<float>()[i]) {
        ADD_FAILURE() << rows << " rows: element " << i;
        break;
      }
    }
    return cache.explain().sizes[0];
  };
  EXPECT_EQ(lineFor(2100), "i0 is 2100");
  EXPECT_EQ(lineFor(3001), "i0 is any number from 2048 to 4095");
  EXPECT_EQ(lineFor(3200), "i0 is a multiple of 16 from 2048 to 4095");
  EXPECT_EQ(lineFor(4101), "i0 is any number from 4096 to 8191");
  EXPECT_EQ(lineFor(2047), "i0 is any number from 2 on");
  EXPECT_EQ(lineFor(2048), "i0 is a multiple of 256 from 2048 to 4095");
  EXPECT_EQ(lineFor(2056), "i0 is a multiple of 8 from 2048 to 4095");
  EXPECT_EQ(lineFor(2049), "i0 is any number from 2048 to 4095");
  EXPECT_EQ(cache.plansCompiled(), 7);
}

// Rows of the results begin within lines, as far as the class knows; with 2 bytes an element, and with 4.
TEST_F(LargeShapesTest, LargeTransposesOfAnySize) {
  const auto expectTransposed = [](DataType type, auto element) {
    using Element = decltype(element);
    auto fusion = std::make_unique<Fusion>();
    {
      const FusionGuard guard(fusion.get());
      TensorView* x = makeContigTensor(2, type);
      fusion->addInput(x);
      fusion->addOutput(transpose(x));
    }
    FusionExecutorCache cache(std::move(fusion));
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {40, 50}, {2900, 3000}, {3001, 2995}, {2050, 4095}, {3200, 4000}, {2048, 4080}}) {
      const Tensor x = randomTensor({rows, columns}, type, 1);
      const Tensor y = cache.runFusionWithInputs({x})[0];
      int64_t wrong = 0;
      for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < columns; k++) {
          wrong += y.data_as<Element>()[k * rows + i] == x.data_as<Element>()[i * columns + k] ? 0 : 1;
        }
      }
      EXPECT_EQ(wrong, 0) << rows << " x " << columns;
      EXPECT_EQ(joined(cache.explain().sizes, "; ", [](const std::string& line) { return line; }).find("because"),
                std::string::npos)
          << cache.explain().sizes[0];
    }
  };
  expectTransposed(DataType::Float, float());
  expectTransposed(DataType::BFloat16, uint16_t());
}

// Coordinates are quotients and remainders of sizes that the kernel gets in a launch.
TEST_F(LargeShapesTest, LargePermutesOfAnySize) {
  const std::vector<std::vector<int64_t>> shapes = {{3, 4, 5, 6},     {7, 1023, 13, 61}, {6, 1024, 17, 48},
                                                    {4, 999, 16, 88}, {7, 600, 31, 52},  {5, 1000, 8, 111}};
  for (const std::vector<int64_t>& order : std::vector<std::vector<int64_t>>{
           {0, 2, 1, 3}, {0, 1, 3, 2}, {0, 2, 3, 1}, {0, 3, 1, 2}, {3, 0, 1, 2}, {2, 1, 0, 3}}) {
    auto fusion = std::make_unique<Fusion>();
    {
      const FusionGuard guard(fusion.get());
      TensorView* x = makeContigTensor(4);
      fusion->addInput(x);
      fusion->addOutput(permute(x, order));
    }
    FusionExecutorCache cache(std::move(fusion));
    for (const std::vector<int64_t>& shape : shapes) {
      const Tensor x = randomTensor(shape, DataType::Float, 1);
      const Tensor y = cache.runFusionWithInputs({x})[0];
      const std::vector<int64_t> strides = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
      const float* next = y.data_as<float>();
      int64_t wrong = 0;
      for (int64_t a = 0; a < shape[order[0]]; a++) {
        for (int64_t b = 0; b < shape[order[1]]; b++) {
          for (int64_t c = 0; c < shape[order[2]]; c++) {
            for (int64_t d = 0; d < shape[order[3]]; d++) {
              const int64_t from =
                  a * strides[order[0]] + b * strides[order[1]] + c * strides[order[2]] + d * strides[order[3]];
              wrong += *next++ == x.data_as<float>()[from] ? 0 : 1;
            }
          }
        }
      }
      EXPECT_EQ(wrong, 0) << shape[0] << " x .., order " << order[0] << order[1] << order[2] << order[3];
      EXPECT_FALSE(cache.explain().sizes[0].starts_with("all sizes are constants")) << cache.explain().sizes[0];
    }
  }
}

}  // namespace

}  // namespace meshfuse
