// Programs that once gave wrong results or none, on one rank against the reference interpreter.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "exec/fusion_executor_cache.h"
#include "interpret/bounds.h"
#include "ir/text.h"

namespace meshfuse {

namespace {

// Inputs are random, integer ones in [0, 4).
void expectRight(std::string_view text) {
  std::unique_ptr<Fusion> fusion = parseFusion(text);
  std::vector<Argument> inputs;
  for (const Val* in : fusion->inputs()) {
    std::vector<int64_t> shape;
    for (const IntExpr& e : in->asTensor()->shape()) {
      shape.push_back(e.constValue());
    }
    bool whole = !isFloatingPoint(in->dtype());
    inputs.emplace_back(randomTensor(shape, in->dtype(), inputs.size() + 1, whole ? 0 : -2, whole ? 4 : 2));
  }
  std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, inputs);
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Always});
  std::vector<Tensor> got = cache.runFusionWithInputs(inputs);
  for (size_t i = 0; i < got.size(); i++) {
    EXPECT_EQ(compare(got[i], expected[i]).value_or(""), "") << "output " << i;
  }
}

TEST(Regression, ATensorTimesItself) {
  expectRight(R"(fusion {
  T0 = input() : Float[8, 8] contiguity[t, t]
  T1 = input() : Float[16, 2] contiguity[t, t]
  T2 = matmul(T0, T0) : Float[8, 8, r{8}]
  T3 = linear(T1, T1) : Float[16, 16, r{2}]
  output T2
  output T3
})");
}

TEST(Regression, TheOuterProductOfOneDimAfterAReduction) {
  expectRight(R"(fusion {
  T0 = input() : Float[33, b{1}] contiguity[t, t]
  T1 = reduce(T0, op=sum) : Float[33, r{1}]
  T2 = broadcast(T1, flags=[t, f]) : Float[b{1}, 33]
  T3 = div(T0, T2) : Float[33, 33]
  output T3
})");
}

TEST(Regression, TheSumOfAConstantCountsEveryPosition) {
  expectRight(R"(fusion {
  T0 = full(0.75) : Float[12, 24]
  T1 = reduce(T0, op=sum) : Float[12, r{24}]
  output T0
  output T1
})");
}

TEST(Regression, PositionsThatDoNotRunAlongMemoryAreNotPrefetched) {
  expectRight(R"(fusion {
  T0 = input() : Float[9, 5, 6] contiguity[f, f, f]
  T1 = input() : Float[5, 6] contiguity[t, t]
  T2 = mul(T0, 2.0) : Float[9, 5, 6]
  T3 = reshape(T2) : Float[9, 30]
  T4 = reshape(T1) : Float[30]
  T5 = broadcast(T4, flags=[t, f]) : Float[b{1}, 30]
  T6 = add(T3, T5) : Float[9, 30]
  output T6
})");
}

TEST(Regression, WindowsOf16BitElementsInALoop) {
  for (std::string_view type : {"Half", "BFloat16"}) {
    expectRight(fmt::format(R"(fusion {{
  T0 = input() : {0}[32, 8] contiguity[t, t]
  T1 = cat(T0, T0, dim=0) : {0}[64, 8]
  T2 = cast(T1) : Float[64, 8]
  T3 = reduce(T2, op=sum) : Float[r{{64}}, 8]
  output T3
}})",
                            type));
  }
}

TEST(Regression, AResultOfAReductionNeededAtTwoPositions) {
  expectRight(R"(fusion {
  T0 = input() : Double[8, 4, 4] contiguity[t, t, t]
  T1 = reduce(T0, op=max) : Double[8, 4, r{4}]
  T2 = broadcast(T1, flags=[f, f, t]) : Double[8, 4, b{1}]
  T3 = sub(T0, T2) : Double[8, 4, 4]
  T8 = permute(T0, order=[0, 2, 1]) : Double[8, 4, 4]
  T9 = add(T3, T8) : Double[8, 4, 4]
  T12 = isfinite(T9) : Bool[8, 4, 4]
  output T12
})");
}

}  // namespace

}  // namespace meshfuse
