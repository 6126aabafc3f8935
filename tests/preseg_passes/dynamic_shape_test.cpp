// Shapes that only a call settles: for one program the interpreter, which follows the symbolic fusion, and the fusion that concretize
// makes must say the same, be it a value or a UserError.
#include <gtest/gtest.h>

#include "base/error.h"
#include "interpret/interpret.h"
#include "ir/text.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "preseg_passes/concretize.h"

namespace meshfuse {
namespace {

using Phrases = std::vector<std::string>;

class DynamicShape : public ::testing::Test {
 protected:
  TensorView* input(int64_t rank, DataType dtype = DataType::Float) {
    TensorView* tv = makeSymbolicTensor(rank, dtype);
    fusion.addInput(tv);
    return tv;
  }
  Val* scalar() {
    Val* n = IrBuilder::create<Val>(DataType::Int);
    fusion.addInput(n);
    return n;
  }
  void output(TensorView* tv) { fusion.addOutput(tv); }

  // Elements 1, 2, .. of a tensor, or a scalar's value.
  struct Given {
    std::vector<int64_t> sizes;
    std::optional<int64_t> value;
    double fill = 0;  // 0: counted
  };
  static Given of(std::vector<int64_t> sizes) { return {std::move(sizes), std::nullopt, 0}; }
  static Given zeros(std::vector<int64_t> sizes) { return {std::move(sizes), std::nullopt, -1}; }
  static Given value(int64_t n) { return {{}, n, 0}; }

  // The outputs, by both ways.
  std::vector<Tensor> run(const std::vector<Given>& given) {
    std::vector<std::vector<int64_t>> shapes;
    std::vector<Argument> arguments;
    for (size_t k = 0; k < given.size(); k++) {
      shapes.push_back(given[k].value ? std::vector<int64_t>{*given[k].value} : given[k].sizes);
      if (given[k].value) {
        arguments.emplace_back(*given[k].value);
        continue;
      }
      int64_t count = 1;
      for (int64_t size : given[k].sizes) {
        count *= size;
      }
      std::vector<double> elements;
      for (int64_t i = 0; i < count; i++) {
        elements.push_back(given[k].fill < 0 ? 0 : static_cast<double>(i + 1));
      }
      arguments.emplace_back(Tensor::of(elements, given[k].sizes, fusion.inputs()[k]->dtype()));
    }
    EXPECT_EQ(verify(fusion), std::vector<std::string>{}) << fusion.toString();
    EXPECT_EQ(parseFusion(fusion.toString())->toString(), fusion.toString());
    interpreted = outcome([&] { return interpret(fusion, arguments); });
    concretized = outcome([&] {
      std::unique_ptr<Fusion> sized = concretize(*parseFusion(fusion.toString()), shapes);
      text = sized->toString();
      EXPECT_EQ(parseFusion(text)->toString(), text);
      return interpret(*sized, arguments);
    });
    EXPECT_EQ(interpreted.error.empty(), concretized.error.empty()) << interpreted.error << "\n"
                                                                    << concretized.error << "\n"
                                                                    << fusion.toString();
    EXPECT_EQ(interpreted.values.size(), concretized.values.size());
    for (size_t k = 0; k < std::min(interpreted.values.size(), concretized.values.size()); k++) {
      EXPECT_EQ(interpreted.values[k].toString(), concretized.values[k].toString()) << text;
    }
    return concretized.values;
  }
  std::vector<int64_t> shapeOf(const std::vector<Given>& given) {
    std::vector<Tensor> got = run(given);
    if (got.empty()) {
      ADD_FAILURE() << concretized.error;
      return {-1};
    }
    return {got[0].sizes().begin(), got[0].sizes().end()};
  }
  // Both refuse, concretize with these phrases.
  void refuses(const std::vector<Given>& given, const Phrases& phrases) {
    run(given);
    EXPECT_FALSE(interpreted.error.empty()) << fusion.toString();
    for (const std::string& phrase : phrases) {
      EXPECT_NE(concretized.error.find(phrase), std::string::npos)
          << "'" << phrase << "' is missing in: " << concretized.error;
    }
  }

  struct Outcome {
    std::vector<Tensor> values;
    std::string error;
  };
  static Outcome outcome(const std::function<std::vector<Tensor>()>& run) {
    try {
      return {run(), ""};
    } catch (const UserError& e) {
      return {{}, e.what()};
    }
  }

  Fusion fusion;
  FusionGuard guard{&fusion};
  Outcome interpreted, concretized;
  std::string text;
};

using Shape = std::vector<int64_t>;

// -- reshape -------------------------------------------------------------------------------------------------------------

TEST_F(DynamicShape, ReshapeToConstantSizes) {
  output(neg(reshape(input(2), {4, 6})));
  EXPECT_EQ(shapeOf({of({4, 6})}), (Shape{4, 6}));
  EXPECT_EQ(shapeOf({of({3, 8})}), (Shape{4, 6}));
  EXPECT_EQ(shapeOf({of({24, 1})}), (Shape{4, 6}));
  EXPECT_NE(text.find("reshape"), std::string::npos);
  refuses({of({4, 5})}, {"[reshape]", "T0", "[4, 5]", "20 elements", "[4, 6]", "24"});
  refuses({of({0, 5})}, {"[reshape]", "T0", "[0, 5]", "0 elements", "[4, 6]", "24"});
}

TEST_F(DynamicShape, ReshapeToNoElements) {
  output(reshape(input(2), {0, 6}));
  EXPECT_EQ(shapeOf({of({0, 3})}), (Shape{0, 6}));
  refuses({of({2, 6})}, {"[reshape]", "T0", "[2, 6]", "12 elements", "[0, 6]"});
}

TEST_F(DynamicShape, ReshapeToOneDim) {
  output(sum(reshape(input(2), {28}), {0}));
  EXPECT_EQ(shapeOf({of({4, 7})}), Shape{});
  refuses({of({4, 6})}, {"[reshape]", "24 elements", "[28]", "28"});
}

TEST_F(DynamicShape, ReshapeWithARest) {
  output(reshape(input(2), {5, -1}));
  EXPECT_EQ(shapeOf({of({4, 10})}), (Shape{5, 8}));
  refuses({of({4, 6})}, {"[reshape]", "T0", "[4, 6]", "24 elements", "20"});
}

TEST_F(DynamicShape, ReshapeOfThreeArguments) {
  output(reshape(input(2), {4, 6}, {3, 8}));
  EXPECT_EQ(shapeOf({of({4, 6})}), (Shape{3, 8}));
  refuses({of({4, 7})}, {"[reshape]", "28 elements", "[3, 8]", "24"});
}

TEST_F(DynamicShape, ReshapeToTheSizesOfAnother) {
  TensorView* x = input(2);
  TensorView* y = input(2);
  output(reshape(x, {size(y, 0), size(y, 1)}));
  EXPECT_EQ(shapeOf({of({4, 6}), of({3, 8})}), (Shape{3, 8}));
  refuses({of({4, 6}), of({3, 7})}, {"[reshape]", "24 elements", "[3, 7]", "21"});
}

TEST_F(DynamicShape, ReshapeToScalars) {
  TensorView* x = input(1);
  Val* n = scalar();
  output(reshape(x, std::vector<Val*>{n, n}));
  EXPECT_EQ(shapeOf({of({25}), value(5)}), (Shape{5, 5}));
  refuses({of({24}), value(5)}, {"[reshape]", "24 elements", "[5, 5]", "25"});
}

TEST_F(DynamicShape, ReshapedDimOfOneStretches) {
  TensorView* x = input(1);
  TensorView* w = input(2);
  output(add(reshape(x, {6, -1}), w));
  EXPECT_EQ(shapeOf({of({6}), of({6, 4})}), (Shape{6, 4}));
  EXPECT_EQ(shapeOf({of({24}), of({6, 4})}), (Shape{6, 4}));
  refuses({of({18}), of({6, 4})}, {"extents 3 and 4 differ"});
}

TEST_F(DynamicShape, TwoDimsThatMayStretch) {
  output(mul(add(reshape(input(1), {6, -1}), reshape(input(1), {6, -1})), 2.0));
  EXPECT_EQ(shapeOf({of({6}), of({24})}), (Shape{6, 4}));
  EXPECT_EQ(shapeOf({of({24}), of({6})}), (Shape{6, 4}));
  EXPECT_EQ(shapeOf({of({6}), of({6})}), (Shape{6, 1}));
  refuses({of({18}), of({24})}, {"differ"});
}

// -- expand --------------------------------------------------------------------------------------------------------------

TEST_F(DynamicShape, ExpandToConstants) {
  output(neg(expand(input(2), {5, 6})));
  EXPECT_EQ(shapeOf({of({5, 6})}), (Shape{5, 6}));
  EXPECT_EQ(shapeOf({of({1, 6})}), (Shape{5, 6}));
  EXPECT_EQ(shapeOf({of({1, 1})}), (Shape{5, 6}));
  refuses({of({4, 6})}, {"[expand]", "dim 0", "T0", "extent 4", "5"});
}

TEST_F(DynamicShape, ExpandOfAReshape) {
  output(expand(reshape(input(1), {6, -1}), {6, 4}));
  EXPECT_EQ(shapeOf({of({6})}), (Shape{6, 4}));
  EXPECT_EQ(shapeOf({of({24})}), (Shape{6, 4}));
  refuses({of({18})}, {"[expand]", "dim 1", "extent 3", "4"});
}

TEST_F(DynamicShape, ExpandToAScalar) {
  TensorView* x = input(2);
  Val* n = scalar();
  output(neg(expand(x, std::vector<Val*>{n, IrBuilder::create<Val>(static_cast<int64_t>(-1))})));
  EXPECT_EQ(shapeOf({of({1, 6}), value(5)}), (Shape{5, 6}));
  EXPECT_EQ(shapeOf({of({5, 6}), value(5)}), (Shape{5, 6}));
  EXPECT_EQ(shapeOf({of({1, 6}), value(1)}), (Shape{1, 6}));
  refuses({of({4, 6}), value(5)}, {"[expand]", "dim 0", "extent 4", "5"});
}

TEST_F(DynamicShape, ExpandedDimOfOneStretches) {
  TensorView* x = makeConcreteTensor({1});
  fusion.addInput(x);
  TensorView* w = input(1);
  output(add(expand(x, std::vector<Val*>{scalar()}), w));
  EXPECT_EQ(shapeOf({of({1}), of({4}), value(1)}), Shape{4});
  EXPECT_EQ(shapeOf({of({1}), of({4}), value(4)}), Shape{4});
  refuses({of({1}), of({4}), value(3)}, {"extents 3 and 4 differ"});
}

TEST_F(DynamicShape, ExpandAs) {
  TensorView* x = input(2);
  TensorView* y = input(2);
  output(neg(expand_as(x, y)));
  EXPECT_EQ(shapeOf({of({1, 6}), of({4, 6})}), (Shape{4, 6}));
  EXPECT_EQ(shapeOf({of({4, 6}), of({4, 6})}), (Shape{4, 6}));
  refuses({of({3, 6}), of({400, 6})}, {"[expand]", "dim 0", "extent 3", "400"});
}

TEST_F(DynamicShape, ExpandToOne) {
  output(expand(input(2), {1, 6}));
  EXPECT_EQ(shapeOf({of({1, 6})}), (Shape{1, 6}));
  refuses({of({4, 6})}, {"[expand]", "dim 0", "extent 4", "1"});
}

TEST_F(DynamicShape, SumTo) {
  output(sum_to(input(3), {5, 6}));
  EXPECT_EQ(shapeOf({of({3, 5, 6})}), (Shape{5, 6}));
  refuses({of({3, 4, 6})}, {"dim 1", "4", "5"});
}

TEST_F(DynamicShape, NormShape) {
  output(layer_norm(input(2), std::vector<int64_t>{7}, nullptr, nullptr, 1e-5).output);
  EXPECT_EQ(shapeOf({of({4, 7})}), (Shape{4, 7}));
  refuses({of({4, 6})}, {"dim 1", "6", "7"});
}

// -- windows -------------------------------------------------------------------------------------------------------------

TEST_F(DynamicShape, SliceToOneStretches) {
  TensorView* x = input(1);
  TensorView* w = input(1);
  output(add(slice(x, {{nullptr, scalar(), nullptr}}), w));
  EXPECT_EQ(shapeOf({of({6}), of({4}), value(1)}), Shape{4});
  EXPECT_EQ(shapeOf({of({6}), of({4}), value(4)}), Shape{4});
  refuses({of({6}), of({4}), value(3)}, {"extents 3 and 4 differ"});
}

TEST_F(DynamicShape, SteppedSliceToOneStretches) {
  TensorView* x = input(1);
  TensorView* w = input(1);
  output(add(slice(x, {{nullptr, scalar(), IrBuilder::create<Val>(static_cast<int64_t>(2))}}), w));
  EXPECT_EQ(shapeOf({of({9}), of({4}), value(2)}), Shape{4});
  EXPECT_EQ(shapeOf({of({9}), of({4}), value(7)}), Shape{4});
}

TEST_F(DynamicShape, PadToOneStretches) {
  TensorView* x = input(1);
  TensorView* w = input(1);
  Val* n = scalar();
  output(add(pad(x, std::vector<Val*>{n, n}, 0.0), w));
  EXPECT_EQ(shapeOf({of({5}), of({4}), value(-2)}), Shape{4});
  EXPECT_EQ(shapeOf({of({2}), of({4}), value(1)}), Shape{4});
  refuses({of({2}), of({4}), value(-2)}, {});
}

TEST_F(DynamicShape, AWindowPermutedReducedAndMultiplied) {
  TensorView* x = input(2);
  TensorView* w = input(2);
  Val* n = scalar();
  TensorView* cut = slice(x, {{}, {nullptr, n, nullptr}});
  TensorView* turned = transpose(cut);
  output(add(turned, sum(w, {0})));
  output(matmul(cut, w));
  output(sum(cut, {1}));
  output(softmax(cut, 1));
  EXPECT_EQ(shapeOf({of({3, 6}), of({1, 3}), value(1)}), (Shape{1, 3}));
  EXPECT_EQ(shapeOf({of({3, 6}), of({2, 3}), value(2)}), (Shape{2, 3}));
}

TEST_F(DynamicShape, APlainDimOfOneDoesNotStretch) {
  TensorView* x = input(1);
  TensorView* y = input(1);
  output(add(x, y));
  EXPECT_EQ(shapeOf({of({4}), of({4})}), Shape{4});
  refuses({of({4}), of({1})}, {"extents 1 and 4 differ"});
}

TEST_F(DynamicShape, CatOfADimThatMayStretch) {
  TensorView* x = input(1);
  TensorView* w = input(2);
  output(cat({reshape(x, {-1, 6}), w}, 1));
  EXPECT_EQ(shapeOf({of({24}), of({4, 2})}), (Shape{4, 8}));
  EXPECT_EQ(shapeOf({of({6}), of({1, 2})}), (Shape{1, 8}));
  refuses({of({6}), of({4, 2})}, {"differ"});
}

// -- contractions and indexing -------------------------------------------------------------------------------------------

TEST_F(DynamicShape, MatmulBatches) {
  TensorView* a = input(3);
  TensorView* b = input(3);
  output(matmul(a, b));
  EXPECT_EQ(shapeOf({of({2, 4, 6}), of({2, 6, 3})}), (Shape{2, 4, 3}));
  refuses({of({2, 4, 6}), of({3, 6, 4})}, {"batch dim 0", "differ"});
  refuses({of({1, 4, 6}), of({3, 6, 4})}, {"batch dim 0", "differ"});
  refuses({of({3, 4, 6}), of({1, 6, 4})}, {"batch dim 0", "differ"});
}

TEST_F(DynamicShape, MatmulBatchOfAReshape) {
  TensorView* a = input(1);
  TensorView* b = input(3);
  output(matmul(reshape(a, {-1, 2, 6}), b));
  EXPECT_EQ(shapeOf({of({36}), of({3, 6, 4})}), (Shape{3, 2, 4}));
  EXPECT_EQ(shapeOf({of({12}), of({3, 6, 4})}), (Shape{3, 2, 4}));
  refuses({of({24}), of({3, 6, 4})}, {"batch dim 0", "differ"});
}

TEST_F(DynamicShape, LinearBias) {
  TensorView* x = input(2);
  TensorView* w = input(2);
  output(linear(x, w, input(1)));
  EXPECT_EQ(shapeOf({of({4, 6}), of({5, 6}), of({5})}), (Shape{4, 5}));
  refuses({of({4, 6}), of({5, 6}), of({4})}, {"bias", "differ"});
  refuses({of({4, 6}), of({5, 6}), of({6})}, {"bias", "differ"});
}

TEST_F(DynamicShape, TakeAlongAxis) {
  TensorView* x = input(2);
  output(takeAlongAxis(x, input(2, DataType::Int), 1));
  EXPECT_EQ(shapeOf({of({4, 6}), zeros({4, 3})}), (Shape{4, 3}));
  refuses({of({4, 6}), zeros({3, 4})}, {"take_along_axis", "dim 0", "3", "4", "differ"});
  refuses({of({4, 6}), zeros({400, 4})}, {"take_along_axis", "dim 0", "400", "4", "differ"});
  refuses({of({4, 6}), zeros({1, 4})}, {"take_along_axis", "dim 0", "1", "4", "differ"});
}

TEST_F(DynamicShape, TakeAlongAxisOfBroadcasts) {
  TensorView* x = makeConcreteTensor({1, 6, 3});
  fusion.addInput(x);
  output(takeAlongAxis(x, reshape(input(1, DataType::Int), {4, -1, 2}), 2));
  EXPECT_EQ(shapeOf({of({1, 6, 3}), zeros({48})}), (Shape{4, 6, 2}));
  EXPECT_EQ(shapeOf({of({1, 6, 3}), zeros({8})}), (Shape{4, 6, 2}));
  refuses({of({1, 6, 3}), zeros({24})}, {"take_along_axis", "dim 1", "differ"});
}

TEST_F(DynamicShape, Gather) {
  TensorView* x = input(2);
  output(gather(x, 0, input(2, DataType::Int)));
  EXPECT_EQ(shapeOf({of({4, 6}), zeros({9, 5})}), (Shape{9, 5}));
  refuses({of({4, 6}), zeros({3, 7})}, {"gather", "dim 1", "7", "6"});
}

// -- facts of symbols ----------------------------------------------------------------------------------------------------

TEST_F(DynamicShape, FactsOfSymbolsHoldForEveryCall) {
  std::unique_ptr<Fusion> facts = parseFusion(R"(fusion {
  symbol i0 {lower: 4, upper: 64, divisor: 4}
  T0 = input() : Float[i0] contiguity[t]
  T1 = neg(T0) : Float[i0]
  output T1
})");
  auto call = [&](int64_t size) {
    std::vector<Argument> arguments = {Tensor::zeros({size}, DataType::Float)};
    interpreted = outcome([&] { return interpret(*facts, arguments); });
    concretized = outcome([&] { return interpret(*concretize(*facts, std::vector<Shape>{{size}}), arguments); });
    EXPECT_EQ(interpreted.error.empty(), concretized.error.empty()) << size;
    return concretized.error;
  };
  EXPECT_EQ(call(8), "");
  EXPECT_EQ(call(64), "");
  EXPECT_NE(call(6).find("the size i0 is 6, but the program declares that it is a multiple of 4"), std::string::npos);
  EXPECT_NE(call(100).find("the size i0 is 100, but the program declares that it is at most 64"), std::string::npos);
  EXPECT_NE(call(0).find("the size i0 is 0, but the program declares that it is at least 4"), std::string::npos);
}

TEST_F(DynamicShape, AReshapeThatAFactProves) {
  std::unique_ptr<Fusion> facts = parseFusion(R"(fusion {
  symbol i0 {lower: 4, upper: 64, divisor: 4}
  T0 = input() : Float[i0] contiguity[t]
  T1 = reshape(T0) : Float[floorDiv(i0, 4), 4]
  output T1
})");
  EXPECT_EQ(verify(*facts), std::vector<std::string>{});
  EXPECT_EQ(parseFusion(facts->toString())->toString(), facts->toString());
  std::unique_ptr<Fusion> sized = concretize(*facts, std::vector<Shape>{{12}});
  EXPECT_NE(sized->toString().find("reshape(T0) : Float[3, 4]"), std::string::npos) << sized->toString();
}

TEST_F(DynamicShape, AnAliasIsAsLargeAsItsInput) {
  TensorView* x = input(2);
  TensorView* y = input(2);
  TensorView* z = neg(x);
  output(z);
  fusion.aliasOutputToInput(z, y);
  EXPECT_EQ(shapeOf({of({4, 6}), of({4, 6})}), (Shape{4, 6}));
  refuses({of({4, 6}), of({4, 5})}, {"dim 1"});
}

// -- sizes that grow along a program --------------------------------------------------------------------------------------

TEST_F(DynamicShape, ChainsOfWindowsKeepShortExtents) {
  TensorView* y = input(2);
  for (int k = 0; k < 50; k++) {
    y = cat({slice(y, {0, 1}, {4, 6}), slice(y, {0, 0}, {4, 1})}, 1);
  }
  output(y);
  EXPECT_LT(fusion.toString().size(), 50000U);
  EXPECT_EQ(shapeOf({of({4, 6})}), (Shape{4, 6}));
}

TEST_F(DynamicShape, ChainsOfRunTimeRotationsKeepShortExtents) {
  TensorView* y = input(1);
  Val* n = scalar();
  for (int k = 0; k < 50; k++) {
    y = cat({slice(y, {{n, nullptr, nullptr}}), slice(y, {{nullptr, n, nullptr}})}, 0);
  }
  output(y);
  EXPECT_LT(fusion.toString().size(), 50000U);
  EXPECT_EQ(shapeOf({of({6}), value(2)}), Shape{6});
}

}  // namespace
}  // namespace meshfuse
