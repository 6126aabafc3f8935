#include "ops/shape_ops.h"

#include <limits>

#include "base/error.h"
#include "ops/built.h"

namespace meshfuse {
namespace {

TEST(ShapeOps, CastsRoundToNearestEven) {
  Tensor x = Tensor::of({1 + 0x1p-8, 1 + 3 * 0x1p-8, -2.75, 1e30, 0}, {5});
  Tensor y = run1({x}, [](const Views& v) { return castOp(DataType::BFloat16, v[0]); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{1, 1 + 0x1p-6, -2.75, 0x1.94p99, 0}));
  Tensor b = run1({x}, [](const Views& v) { return castOp(DataType::Bool, v[0]); });
  EXPECT_EQ(b.toVector(), (std::vector<double>{1, 1, 1, 1, 0}));
  Tensor i = run1({Tensor::of({-2.75, 2.75, 7}, {3})}, [](const Views& v) { return castOp(DataType::Int32, v[0]); });
  EXPECT_EQ(i.toVector(), (std::vector<double>{-2, 2, 7}));
}

TEST(ShapeOps, CastFromDoubleToHalfRoundsOnce) {
  // Half an ulp of Half above 1, and a trace more that Float would lose: rounding by way of Float would give 1.
  Tensor x = Tensor::of({1 + 0x1p-11 + 0x1p-40}, {1}, DataType::Double);
  EXPECT_EQ(run1({x}, [](const Views& v) { return castOp(DataType::Half, v[0]); }).item(), 1 + 0x1p-10);
}

TEST(ShapeOps, BitCast) {
  Tensor x = Tensor::of({1.0, -2.0}, {2});
  Tensor y = run1({x}, [](const Views& v) { return view(v[0], DataType::Int32); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{0x3f800000, static_cast<double>(static_cast<int32_t>(0xc0000000u))}));
}

TEST(ShapeOps, ReshapeKeepsRowMajorOrder) {
  Tensor x = counting({2, 3, 4});
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{6, 4}, {2, 12}, {24}, {4, 3, 2}, {3, 8}, {1, 24, 1}, {2, 1, 3, 4}}) {
    Tensor y = runAs(Extents::Concrete, {x}, [&](const Views& v) { return Views{reshape(v[0], sizes)}; }).at(0);
    EXPECT_EQ(sizesOf(y), sizes);
    EXPECT_EQ(y.toVector(), x.toVector());
  }
}

TEST(ShapeOps, ReshapeTakesTheRest) {
  Tensor x = counting({2, 3, 4});
  Tensor y = runAs(Extents::Concrete, {x}, [](const Views& v) { return Views{reshape(v[0], {4, -1})}; }).at(0);
  EXPECT_EQ(sizesOf(y), (std::vector<int64_t>{4, 6}));
  Tensor z = runAs(Extents::Symbolic, {x}, [](const Views& v) {
               return Views{reshape(v[0], {size(v[0], 0), IrBuilder::create<Val>(-1)})};
             }).at(0);
  EXPECT_EQ(sizesOf(z), (std::vector<int64_t>{2, 12}));
  Tensor w = runAs(Extents::Symbolic, {x}, [](const Views& v) { return Views{reshape(v[0], {8, -1})}; }).at(0);
  EXPECT_EQ(sizesOf(w), (std::vector<int64_t>{8, 3}));
  EXPECT_EQ(w.toVector(), x.toVector());
}

TEST(ShapeOps, Flatten) {
  Tensor x = counting({2, 3, 4});
  Tensor y = run1({x}, [](const Views& v) { return flatten(v[0], 1); });
  EXPECT_EQ(sizesOf(y), (std::vector<int64_t>{2, 12}));
  EXPECT_EQ(sizesOf(run1({Tensor::scalar(3)}, [](const Views& v) { return flatten(v[0]); })),
            (std::vector<int64_t>{1}));
}

TEST(ShapeOps, DimsOfOne) {
  Tensor x = counting({2, 1, 3});
  auto sizes = [&](const std::function<TensorView*(const Views&)>& f) { return sizesOf(run1({x}, f)); };
  EXPECT_EQ(sizes([](const Views& v) { return squeeze(v[0], 1); }), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(sizes([](const Views& v) { return squeeze(v[0]); }), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(sizes([](const Views& v) {
              return squeeze(v[0], std::vector<bool>{false, true, false});
            }),
            (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(sizes([](const Views& v) { return unsqueeze(v[0], -1); }), (std::vector<int64_t>{2, 1, 3, 1}));
  EXPECT_EQ(sizes([](const Views& v) {
              return broadcast(v[0], {false, true, false, false});
            }),
            (std::vector<int64_t>{2, 1, 1, 3}));
}

TEST(ShapeOps, ExpandStretches) {
  Tensor x = counting({2, 1});
  Tensor y = run1({x}, [](const Views& v) { return expand(v[0], {4, -1, 3}); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{4, 2, 3}));
  EXPECT_EQ(y.at({3, 1, 2}), 1);
  EXPECT_EQ(y.at({3, 0, 2}), 0);
  Tensor z = run1({x, counting({2, 5})}, [](const Views& v) { return expand_as(v[0], v[1]); });
  EXPECT_EQ(sizesOf(z), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(z.at({1, 4}), 1);
}

TEST(ShapeOps, RepeatTiles) {
  Tensor x = counting({2, 3});
  Tensor y = run1({x}, [](const Views& v) { return repeat(v[0], {2, 2, 3}); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{2, 4, 9}));
  for (int64_t i = 0; i < 4; i++) {
    for (int64_t j = 0; j < 9; j++) {
      EXPECT_EQ(y.at({1, i, j}), static_cast<double>((i % 2) * 3 + j % 3));
    }
  }
  EXPECT_EQ(sizesOf(run1({x}, [](const Views& v) { return repeat(v[0], {0, 1}); })), (std::vector<int64_t>{0, 3}));
}

TEST(ShapeOps, PermuteTakesTheOldPlaceOfEachNewDim) {
  Tensor x = counting({2, 3, 4});
  Tensor y = run1({x}, [](const Views& v) { return permute(v[0], {2, 0, 1}); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{4, 2, 3}));
  for (int64_t i = 0; i < 2; i++) {
    for (int64_t j = 0; j < 3; j++) {
      for (int64_t k = 0; k < 4; k++) {
        EXPECT_EQ(y.at({k, i, j}), x.at({i, j, k}));
      }
    }
  }
  EXPECT_EQ(sizesOf(run1({x}, [](const Views& v) { return transpose(v[0], 0, -1); })), (std::vector<int64_t>{4, 3, 2}));
}

TEST(ShapeOps, ShapeAndSizeAreScalars) {
  Tensor x = counting({2, 3});
  Tensor y = run1({x}, [](const Views& v) { return mul(v[0], mul(at(shape(v[0]), -1), size(v[0], 0))); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{0, 6, 12, 18, 24, 30}));
}

TEST(Windows, SliceAsPythonDoes) {
  Tensor x = counting({10});
  auto values = [&](int64_t start, int64_t stop, int64_t step) {
    return run1({x}, [&](const Views& v) { return slice(v[0], {start}, {stop}, {step}); }).toVector();
  };
  EXPECT_EQ(values(2, 5, 1), (std::vector<double>{2, 3, 4}));
  EXPECT_EQ(values(-3, std::numeric_limits<int64_t>::max(), 1), (std::vector<double>{7, 8, 9}));
  EXPECT_EQ(values(0, -1, 4), (std::vector<double>{0, 4, 8}));
  EXPECT_EQ(values(1, 10, 3), (std::vector<double>{1, 4, 7}));
  EXPECT_EQ(values(-100, 100, 9), (std::vector<double>{0, 9}));
  EXPECT_EQ(values(7, 3, 1), (std::vector<double>{}));
  EXPECT_EQ(values(0, 10, 1), x.toVector());
}

TEST(Windows, SliceOfManyDims) {
  Tensor x = counting({4, 6});
  Tensor y = run1({x}, [](const Views& v) { return slice(v[0], {1, 0}, {4, 6}, {2, 5}); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(y.toVector(), (std::vector<double>{6, 11, 18, 23}));
}

TEST(Windows, OneElementStretchesWhateverTheStep) {
  for (int64_t step : {1, 2, 6, 100}) {
    const int64_t stop = step == 1 ? 2 : std::min<int64_t>(1 + step, 7);
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor({7});
    TensorView* y = makeContigConcreteTensor({5});
    fusion.addInput(x);
    fusion.addInput(y);
    TensorView* one = slice(x, {1}, {stop}, {step});
    EXPECT_TRUE(one->getLogicalDomain()[0]->isBroadcast()) << "step " << step;
    fusion.addOutput(add(one, y));
    EXPECT_EQ(verify(fusion), std::vector<std::string>{});
    const std::string text = fusion.toString();
    EXPECT_NE(text.find(") : Float[b{1}]\n"), std::string::npos) << text;
    EXPECT_EQ(parseFusion(text)->toString(), text);
    EXPECT_EQ(interpret(fusion, {counting({7}), counting({5})}).at(0).toVector(), (std::vector<double>{1, 2, 3, 4, 5}));
  }
}

TEST(Windows, AWindowThatTurnsOutToHaveOneElementStretches) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigTensor(1);
  TensorView* y = makeContigTensor(1);
  fusion.addInput(x);
  fusion.addInput(y);
  TensorView* some = slice(x, {Slice{nullptr, nullptr, IrBuilder::create<Val>(4)}});
  EXPECT_TRUE(some->getLogicalDomain()[0]->isSymbolic());
  fusion.addOutput(add(some, y));
  EXPECT_EQ(interpret(fusion, {counting({3}), counting({1})}).at(0).toVector(), (std::vector<double>{0}));
  EXPECT_EQ(interpret(fusion, {counting({3}), counting({3})}).at(0).toVector(), (std::vector<double>{0, 1, 2}));
  EXPECT_THROW((void)interpret(fusion, {counting({5}), counting({3})}), UserError);
  EXPECT_THROW((void)interpret(fusion, {counting({5}), counting({1})}), UserError) << "a plain dim does not stretch";
}

TEST(Windows, ExtentsOfNestedWindowsAreBounded) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* y = makeSymbolicTensor(1);
  fusion.addInput(y);
  Val* from = IrBuilder::create<Val>(DataType::Int);
  Val* to = IrBuilder::create<Val>(DataType::Int);
  int windows = 0;
  try {
    for (; windows < 100; windows++) {
      y = slice(y, {Slice{from, to, nullptr}});
    }
    ADD_FAILURE() << "expected a UserError";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("[slice] dim 0"), std::string::npos) << e.what();
  }
  EXPECT_GE(windows, 4);
}

TEST(Windows, InnerPartsOfInnerPartsOfSymbolicSize) {
  for (const auto& [start, stop] : {std::pair<int64_t, int64_t>{1, -1}, {3, -2}, {1, -5}}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* y = makeSymbolicTensor(1);
    fusion.addInput(y);
    constexpr int64_t kWindows = 20;
    for (int64_t k = 0; k < kWindows; k++) {
      y = slice(y, {start}, {stop});
      fusion.addOutput(y);
    }
    EXPECT_EQ(verify(fusion), std::vector<std::string>{});
    for (const int64_t n : {0, 1, 2, 3, 4, 5, 6, 7, 40, 41, 200}) {
      std::vector<double> expected = counting({n}).toVector();
      const std::vector<Tensor> results = interpret(fusion, {counting({n})});
      for (const Tensor& result : results) {
        const int64_t length = std::ssize(expected);
        const int64_t end = std::max<int64_t>(length + stop, 0);
        const int64_t begin = std::min(start, end);
        expected = std::vector<double>(expected.begin() + begin, expected.begin() + end);
        EXPECT_EQ(result.toVector(), expected) << start << " " << stop << " of " << n;
      }
    }
  }
}

TEST(Windows, SliceWithScalars) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(1);
  Val* start = IrBuilder::create<Val>(DataType::Int);
  fusion.addInput(x);
  fusion.addInput(start);
  fusion.addOutput(slice(x, {Slice{start, nullptr, IrBuilder::create<Val>(2)}}));
  EXPECT_EQ(interpret(fusion, {counting({7}), int64_t{3}}).at(0).toVector(), (std::vector<double>{3, 5}));
}

TEST(Windows, PadLastDimFirst) {
  Tensor x = counting({2, 2});
  Tensor y = run1({x}, [](const Views& v) { return pad(v[0], {1, 0, 0, 1}, 9.0); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(y.toVector(), (std::vector<double>{9, 0, 1, 9, 2, 3, 9, 9, 9}));
  Tensor z = run1({x}, [](const Views& v) { return pad(v[0], {-1, 2}); });
  EXPECT_EQ(z.toVector(), (std::vector<double>{1, 0, 0, 3, 0, 0}));
}

TEST(Windows, PadOfBroadcastDimsAndCutToOne) {
  Tensor x = counting({1, 3});
  Tensor y = run1({x}, [](const Views& v) { return pad(v[0], {0, 0, 1, 1}, 5.0); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{5, 5, 5, 0, 1, 2, 5, 5, 5}));
  // cut to one element, which then stretches again
  Tensor z = runAs(Extents::Concrete, {x, counting({2, 4})}, [](const Views& v) {
               return Views{add(pad(v[0], {-1, -1}), v[1])};
             }).at(0);
  EXPECT_EQ(z.toVector(), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Windows, CatJoinsAndPromotes) {
  Tensor a = counting({2, 2});
  Tensor b = Tensor::of({10, 11}, {2, 1}, DataType::Double);
  Tensor y = run1({a, b}, [](const Views& v) { return cat({v[0], v[1], v[0]}, -1); });
  EXPECT_EQ(y.dtype(), DataType::Double);
  EXPECT_EQ(y.toVector(), (std::vector<double>{0, 1, 10, 0, 1, 2, 3, 11, 2, 3}));
  Tensor z = run1({a}, [](const Views& v) { return cat({v[0], v[0]}, 0); });
  EXPECT_EQ(z.toVector(), (std::vector<double>{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(Windows, ChunkLeavesASmallerLastPart) {
  Tensor x = counting({5});
  std::vector<Tensor> parts = runAs(Extents::Concrete, {x}, [](const Views& v) { return chunk(v[0], 3, 0); });
  ASSERT_EQ(parts.size(), 3);
  EXPECT_EQ(parts[0].toVector(), (std::vector<double>{0, 1}));
  EXPECT_EQ(parts[2].toVector(), (std::vector<double>{4}));
}

TEST(Windows, EmptyOperandsInTheMiddle) {
  Tensor x = counting({2, 3});
  Tensor y = run1({x}, [](const Views& v) {
    TensorView* none = slice(v[0], {0, 3}, {2, 3});
    return cat({neg(none), v[0], exp(none)}, 1);
  });
  EXPECT_EQ(y.toVector(), x.toVector());
  Tensor z = run1({x}, [](const Views& v) { return pad(neg(slice(v[0], {0, 1}, {2, 1})), {2, 0}, 4.0); });
  EXPECT_EQ(z.toVector(), (std::vector<double>{4, 4, 4, 4}));
  Tensor w = run1({x}, [](const Views& v) { return sum(slice(v[0], {0, 1}, {2, 1}), {1}); });
  EXPECT_EQ(w.toVector(), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace meshfuse
