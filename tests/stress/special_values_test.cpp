// NaN, infinities and signed zeros; casts in the middle of a program that must not be taken away.
#include <gtest/gtest.h>

#include <cmath>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"
#include "stress/special_values.h"

namespace meshfuse {

namespace {

class SpecialValues : public ::testing::TestWithParam<DataType> {};

INSTANTIATE_TEST_SUITE_P(Type, SpecialValues,
                         ::testing::Values(DataType::Float, DataType::Double, DataType::Half, DataType::BFloat16),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST_P(SpecialValues, InnerReductionsAndSoftmax) {
  std::vector<std::vector<Argument>> calls;
  for (int64_t n : {1, 2, 5, 16, 33, 100, 1000}) {
    calls.push_back({stressRows(n, GetParam())});
  }
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2, GetParam());
        f.addInput(x);
        f.addOutput(max(x, {1}));
        f.addOutput(min(x, {1}));
        f.addOutput(softmax(x, 1));
        f.addOutput(log_softmax(x, 1));
        f.addOutput(layer_norm(x, 1, nullptr, nullptr, 1e-5).output);
      },
      calls);
}

TEST_P(SpecialValues, OuterAndFullReductions) {
  std::vector<std::vector<Argument>> calls;
  for (int64_t n : {1, 2, 17, 300}) {
    Tensor rows = stressRows(n, GetParam());
    calls.push_back({rows.transpose(0, 1).clone()});
    calls.push_back({rows.transpose(0, 1)});
  }
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2, GetParam());
        f.addInput(x);
        f.addOutput(max(x, {0}));
        f.addOutput(min(x, {0}));
        f.addOutput(softmax(x, 0));
        f.addOutput(max(x, {0, 1}));
        f.addOutput(min(x, {0, 1}));
      },
      calls);
}

TEST_P(SpecialValues, LongRowsCutIntoParts) {
  for (int64_t at : {0, 35000, 69999}) {
    Tensor x = randomTensor({70000}, GetParam(), 1, -2, 2);
    x.set(std::vector<int64_t>{at}, kNan);
    Tensor low = Tensor::full({70000}, GetParam(), -kInf);
    for (const Tensor& t : {x, low}) {
      expectAgrees(
          [](Fusion& f) {
            TensorView* in = makeContigTensor(1, GetParam());
            f.addInput(in);
            f.addOutput(max(in, {0}));
            f.addOutput(min(in, {0}));
          },
          {{t}});
    }
  }
}

TEST_P(SpecialValues, Elementwise) {
  Tensor a = stressRows(20, GetParam());
  Tensor b = stressRows(20, GetParam());
  Tensor order = Tensor::empty({13}, DataType::Int);
  for (int64_t i = 0; i < 13; i++) {
    order.set(std::vector<int64_t>{i}, static_cast<double>((i * 5 + 3) % 13));
  }
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2, GetParam());
        TensorView* other = makeContigTensor(2, GetParam());
        TensorView* rows = makeContigTensor(1, DataType::Int);
        f.addInput(x);
        f.addInput(other);
        f.addInput(rows);
        TensorView* y = index_select(other, 0, rows);
        f.addOutput(maximum(x, y));
        f.addOutput(minimum(x, y));
        f.addOutput(relu(x));
        f.addOutput(clamp(x, -1.0, 1.0));
        f.addOutput(where(gt(x, y), x, y));
        f.addOutput(eq(x, y));
        f.addOutput(ne(x, x));
        f.addOutput(isnan(add(x, neg(x))));
        f.addOutput(signbit(neg(x)));
        f.addOutput(sign(x));
        f.addOutput(castOp(DataType::Bool, x));
        f.addOutput(isfinite(sub(x, y)));
      },
      {{a, b, order}});
}

TEST(SignedZeros, KeepTheirSign) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = makeContigTensor(1);
    f.addInput(x);
    f.addOutput(neg(x));
    f.addOutput(mul(x, -1.0));
    f.addOutput(add(x, 0.0));
    f.addOutput(castOp(DataType::Float, castOp(DataType::BFloat16, x)));
    f.addOutput(signbit(x));
    f.addOutput(reciprocal(x));
  });
  ASSERT_EQ(checked.call({Tensor::of({0.0, -0.0}, {2})}), "");
  auto signs = [&](size_t output) {
    const Tensor& t = checked.results()[output];
    return std::vector<bool>{std::signbit(t.at({0})), std::signbit(t.at({1}))};
  };
  EXPECT_EQ(signs(0), (std::vector<bool>{true, false}));
  EXPECT_EQ(signs(1), (std::vector<bool>{true, false}));
  EXPECT_EQ(signs(2), (std::vector<bool>{false, false})) << "x + 0 is no copy: it makes -0 a +0";
  EXPECT_EQ(signs(3), (std::vector<bool>{false, true}));
  EXPECT_EQ(checked.results()[4].toVector(), (std::vector<double>{0, 1}));
  EXPECT_EQ(checked.results()[5].toVector(), (std::vector<double>{kInf, -kInf}));
}

// Values that a 16-bit type rounds to a neighbour, some of them across an integer.
Tensor betweenRoundings() {
  Tensor t = Tensor::empty({200}, DataType::Float);
  for (int64_t i = 0; i < 200; i++) {
    t.set(std::vector<int64_t>{i}, (static_cast<double>(i) - 100) * 1.00390625 + (i % 5 - 2) * 0.0009765625);
  }
  return t;
}

TEST(CastsInTheMiddle, RoundAsWritten) {
  for (DataType narrow : {DataType::BFloat16, DataType::Half}) {
    CheckedCache checked([=](Fusion& f) {
      TensorView* x = makeContigTensor(1);
      f.addInput(x);
      TensorView* rounded = castOp(DataType::Float, castOp(narrow, abs(x)));
      f.addOutput(eq(rounded, abs(x)));
      f.addOutput(floor(rounded));
      f.addOutput(castOp(DataType::Int, rounded));
      f.addOutput(sub(rounded, abs(x)));
      f.addOutput(floor(castOp(DataType::Float, castOp(narrow, castOp(DataType::Float, castOp(narrow, x))))));
      f.addOutput(eq(castOp(DataType::Double, castOp(narrow, x)), castOp(DataType::Double, x)));
    });
    ASSERT_EQ(checked.call({betweenRoundings()}), "");
    double equal = 0;
    for (double v : checked.results()[0].toVector()) {
      equal += v;
    }
    EXPECT_GT(equal, 0) << name(narrow);
    EXPECT_LT(equal, 200) << name(narrow) << ": the cast was taken away";
  }
}

TEST(CastsInTheMiddle, ThenIndex) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(1);
        TensorView* table = makeContigTensor(2);
        f.addInput(x);
        f.addInput(table);
        TensorView* index = castOp(DataType::Int, castOp(DataType::Float, castOp(DataType::BFloat16, x)));
        f.addOutput(neg(index_select(table, 0, index)));
        f.addOutput(takeAlongAxis(table, broadcast(index, {false, true}), 0));
      },
      {{Tensor::of({255.4, 256.9, 257.2, 0.998, 0.999, 299.5}, {6}), randomTensor({301, 4}, DataType::Float, 3)}});
}

TEST(CastsInTheMiddle, AcrossASegment) {
  for (bool forced : {false, true}) {
    for (DataType narrow : {DataType::BFloat16, DataType::Half}) {
      expectAgrees(
          [=](Fusion& f) {
            TensorView* x = makeContigTensor(1, narrow);
            TensorView* y = makeContigTensor(1, narrow);
            f.addInput(x);
            f.addInput(y);
            TensorView* negative = neg(x);
            TensorView* chosen = where(gt(x, y), negative, castOp(narrow, mul(y, 1.001)));
            chosen = forced ? segment_set(chosen) : chosen;
            f.addOutput(eq(chosen, negative));
            f.addOutput(castOp(narrow, add(chosen, x)));
            f.addOutput(neg(chosen));
            f.addOutput(floor(castOp(DataType::Float, chosen)));
          },
          {{betweenRoundings().to(narrow), randomTensor({200}, narrow, 4, -100, 100)}});
    }
  }
}

TEST(CastsInTheMiddle, ReductionsRoundOnce) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2, DataType::BFloat16);
        f.addInput(x);
        f.addOutput(sum(x, {1}));
        f.addOutput(castOp(DataType::BFloat16, sum(castOp(DataType::Float, x), {1})));
        f.addOutput(floor(castOp(DataType::Float, castOp(DataType::BFloat16, max(x, {1})))));
      },
      {{Tensor::full({3, 512}, DataType::BFloat16, 1)}});
}

}  // namespace

}  // namespace meshfuse
