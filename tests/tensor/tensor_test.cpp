#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "base/error.h"
#include "tensor/half.h"

namespace meshfuse {
namespace {

Tensor counting(std::vector<int64_t> sizes, DataType dtype = DataType::Float) {
  Tensor t = Tensor::empty(std::move(sizes), dtype);
  for (int64_t i = 0; i < t.numel(); i++) {
    storeElement(static_cast<char*>(t.data()) + i * dataTypeSize(dtype), dtype, static_cast<double>(i));
  }
  return t;
}

TEST(Tensor, ViewsReadTheElementsTheyName) {
  Tensor t = counting({3, 4, 5});
  Tensor p = t.permute({2, 0, 1});
  Tensor s = t.slice(1, 1, 4, 2).slice(-1, 2, 5);
  Tensor x = t.transpose(0, -1);
  for (int64_t i = 0; i < 3; i++) {
    for (int64_t j = 0; j < 4; j++) {
      for (int64_t k = 0; k < 5; k++) {
        double value = static_cast<double>(20 * i + 5 * j + k);
        EXPECT_EQ(t.at({i, j, k}), value);
        EXPECT_EQ(p.at({k, i, j}), value);
        EXPECT_EQ(x.at({k, j, i}), value);
        if (j % 2 == 1 && k >= 2) {
          EXPECT_EQ(s.at({i, j / 2, k - 2}), value);
        }
      }
    }
  }
  EXPECT_FALSE(p.isContiguous());
  EXPECT_TRUE(p.contiguous().isContiguous());
  EXPECT_EQ(p.contiguous().toVector(), p.toVector());
  EXPECT_EQ(t.view({4, -1}).at({3, 14}), 59);
  EXPECT_EQ(counting({2, 1}).expand({3, 2, 4}).at({2, 1, 3}), 1);
  EXPECT_EQ(t.storage(), p.storage());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % 64, 0u);
}

TEST(Tensor, CopiesBetweenAnyLayoutsAndTypes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; round++) {
    std::vector<int64_t> sizes;
    for (size_t k = random() % 4; k > 0; k--) {
      sizes.push_back(static_cast<int64_t>(random() % 5));
    }
    DataType from = kDataTypes[random() % kDataTypes.size()].type;
    DataType to = kDataTypes[random() % kDataTypes.size()].type;
    Tensor a = randomTensor(sizes, from, random(), -8, 8);
    if (a.dim() > 1) {
      a = a.transpose(0, 1);
    }
    Tensor b = a.to(to);
    ASSERT_EQ(b.numel(), a.numel());
    std::vector<double> values = a.toVector();
    std::vector<double> copied = b.toVector();
    for (size_t k = 0; k < values.size(); k++) {
      uint64_t cell = 0;
      isFloatingPoint(from) ? storeElement(&cell, to, values[k])
                            : storeInteger(&cell, to, static_cast<int64_t>(values[k]));
      ASSERT_EQ(copied[k], loadElement(&cell, to));
    }
  }
}

// The nearest of all 2^16 values, ties to the even one: the definition.
uint16_t nearest16(double value, float (*widen)(uint16_t)) {
  uint16_t best = 0;
  double bestGap = std::numeric_limits<double>::infinity();
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    double candidate = widen(static_cast<uint16_t>(bits));
    if (!std::isfinite(candidate) || std::signbit(candidate) != std::signbit(value)) {
      continue;
    }
    double gap = std::abs(candidate - value);
    if (gap < bestGap || (gap == bestGap && bits % 2 == 0)) {
      bestGap = gap;
      best = static_cast<uint16_t>(bits);
    }
  }
  return best;
}

TEST(Tensor, RoundsOnceTo16Bits) {
  // Just above a tie of Half and of BFloat16 by less than a float can show.
  for (double value : {1.0 + 0x1p-11 + 0x1p-40, 1.0 + 0x1p-8 + 0x1p-45, 1.0 + 3 * 0x1p-11 - 0x1p-40, -0.1, 3.14159,
                       0x1p-25 + 0x1p-60, 65519.99, -1e-8, 1000.5}) {
    uint16_t half = 0;
    uint16_t brain = 0;
    storeElement(&half, DataType::Half, value);
    storeElement(&brain, DataType::BFloat16, value);
    EXPECT_EQ(half, nearest16(value, [](uint16_t b) { return halfToFloat(b); })) << value;
    EXPECT_EQ(brain, nearest16(value, [](uint16_t b) { return bfloat16ToFloat(b); })) << value;
  }
  int64_t big = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;  // a tie of BFloat16, but for the last bit
  uint16_t brain = 0;
  storeInteger(&brain, DataType::BFloat16, big);
  EXPECT_EQ(bfloat16ToFloat(brain), 0x1p62f + 0x1p55f);
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    uint16_t b = static_cast<uint16_t>(bits);
    if (!std::isnan(halfToFloat(b))) {
      ASSERT_EQ(floatToHalf(halfToFloat(b)), b);
    }
  }
}

TEST(Tensor, IntegersFromFloats) {
  int64_t i = 0;
  for (auto [value, expected] :
       {std::pair{1.9, int64_t{1}}, {-1.9, int64_t{-1}}, {1e30, INT64_MIN}, {std::nan(""), INT64_MIN}}) {
    storeElement(&i, DataType::Int, value);
    EXPECT_EQ(i, expected);
  }
  int32_t j = 0;
  storeElement(&j, DataType::Int32, 2147483647.5);
  EXPECT_EQ(j, 2147483647);
  storeElement(&j, DataType::Int32, 2147483648.0);
  EXPECT_EQ(j, INT32_MIN);
  uint8_t b = 0;
  storeElement(&b, DataType::Bool, std::nan(""));
  EXPECT_EQ(b, 1);
}

TEST(Tensor, RandomIsTheSameEverywhere) {
  EXPECT_EQ(randomTensor({3}, DataType::Int, 5, 0, 100).toVector(),
            randomTensor({3}, DataType::Int, 5, 0, 100).toVector());
  Tensor h = randomTensor({10000}, DataType::BFloat16, 9, 0, 1);
  double sum = 0;
  for (double v : h.toVector()) {
    ASSERT_TRUE(v >= 0 && v < 1);
    sum += v;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(Tensor, MistakesAreUserErrors) {
  Tensor t = counting({2, 3});
  EXPECT_THROW((void)Tensor::empty({-1}, DataType::Float), UserError);
  EXPECT_THROW((void)Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}, DataType::Float), UserError);
  EXPECT_THROW((void)Tensor::of({1, 2}, {3}), UserError);
  EXPECT_THROW((void)t.view({4}), UserError);
  EXPECT_THROW((void)t.transpose(0, 1).view({6}), UserError);
  EXPECT_THROW((void)t.slice(0, 1, 3), UserError);
  EXPECT_THROW((void)t.slice(2, 0, 1), UserError);
  EXPECT_THROW((void)t.permute({0, 0}), UserError);
  EXPECT_THROW((void)t.expand({2, 4}), UserError);
  EXPECT_THROW((void)t.item(), UserError);
  EXPECT_THROW((void)t.at({2, 0}), UserError);
  EXPECT_THROW(t.copyFrom(counting({3, 2})), UserError);
  EXPECT_THROW((void)Tensor::wrap(nullptr, {1}, {1}, DataType::Float), UserError);
}

TEST(Tensor, EmptyAndZeroDims) {
  Tensor none = Tensor::zeros({3, 0, 2}, DataType::Float);
  EXPECT_EQ(none.numel(), 0);
  EXPECT_TRUE(none.defined());
  EXPECT_EQ(none.transpose(0, 2).clone().numel(), 0);
  EXPECT_EQ(Tensor::scalar(2.5).item(), 2.5);
  EXPECT_EQ(Tensor::scalar(2.5).to(DataType::Int).item(), 2);
  EXPECT_EQ(Tensor::full({2, 2}, DataType::Half, 0.5).toString(), "Half[2, 2] [[0.5, 0.5], [0.5, 0.5]]");
  EXPECT_FALSE(Tensor().defined());
}

}  // namespace
}  // namespace meshfuse
