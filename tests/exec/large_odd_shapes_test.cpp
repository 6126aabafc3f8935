// Programs of tensors that outgrow the caches, with several dims that no vector divides: their kernels run over flattened dims.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

struct LargeCase {
  std::vector<int64_t> sizes;
  DataType type = DataType::Float;
  std::function<TensorView*(TensorView*)> build;
};

std::vector<LargeCase> largeCases() {
  const auto negated = [](TensorView* x) { return neg(x); };
  return {
      {{23, 192, 235}, DataType::Float, negated},
      {{1, 3, 612, 601}, DataType::Float, negated},
      {{2, 3, 400, 301}, DataType::Double, negated},
      {{3, 5, 7, 11, 911}, DataType::Float, [](TensorView* x) { return castOp(DataType::Half, exp(x)); }},
      {{23, 192, 235}, DataType::BFloat16, [](TensorView* x) { return castOp(DataType::BFloat16, mul(x, 3.0)); }},
      {{23, 192, 235}, DataType::Float, [](TensorView* x) { return add(x, sum(x, {2}, true)); }},
      {{23, 192, 235}, DataType::Float, [](TensorView* x) { return add(x, transpose(x, 0, 0)); }},
      {{101, 103, 103},
       DataType::Float,
       [](TensorView* x) {
         return maximum(reshape(x, {101 * 103, 103}), 0.0);
       }},
      {{103, 103, 101},
       DataType::Float,
       [](TensorView* x) {
         return neg(permute(x, {1, 0, 2}));
       }},
      {{103, 103, 101},
       DataType::Float,
       [](TensorView* x) {
         return neg(slice(x, {0, 1, 2}, {103, 100, 99}));
       }},
  };
}

TEST(LargeOddShapes, RunAsTheReferenceDoes) {
  int64_t number = 0;
  for (const LargeCase& c : largeCases()) {
    SCOPED_TRACE("case " + std::to_string(number++));
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigConcreteTensor(c.sizes, c.type);
      fusion->addInput(x);
      fusion->addOutput(c.build(x));
    }
    const std::vector<Argument> inputs{randomTensor(c.sizes, c.type, 7, -2, 2)};
    const std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, inputs);
    FusionExecutorCache cache(std::move(fusion), {.sharePlans = false});
    EXPECT_EQ(compare(cache.runFusionWithInputs(inputs)[0], expected[0]).value_or(""), "");
  }
}

}  // namespace
}  // namespace meshfuse
