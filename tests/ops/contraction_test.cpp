#include "ops/contraction.h"

#include "ops/built.h"

namespace meshfuse {
namespace {

Tensor values(std::vector<int64_t> sizes, uint64_t seed, DataType dtype = DataType::Double) {
  return randomTensor(std::move(sizes), DataType::Int, seed, -9, 9).to(dtype);
}

TEST(Contraction, MatmulOfMatrices) {
  Tensor a = values({3, 4}, 1);
  Tensor b = values({4, 5}, 2);
  Tensor y = run1({a, b}, [](const Views& v) { return matmul(v[0], v[1]); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{3, 5}));
  for (int64_t i = 0; i < 3; i++) {
    for (int64_t j = 0; j < 5; j++) {
      double sum = 0;
      for (int64_t k = 0; k < 4; k++) {
        sum += a.at({i, k}) * b.at({k, j});
      }
      EXPECT_EQ(y.at({i, j}), sum);
    }
  }
}

TEST(Contraction, MatmulBatchesAlignFromTheRightAndStretch) {
  Tensor a = values({2, 1, 3, 4}, 3);
  Tensor b = values({5, 4, 6}, 4);
  Tensor y = run1({a, b}, [](const Views& v) { return matmul(v[0], v[1]); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{2, 5, 3, 6}));
  for (int64_t p = 0; p < 2; p++) {
    for (int64_t q = 0; q < 5; q++) {
      double sum = 0;
      for (int64_t k = 0; k < 4; k++) {
        sum += a.at({p, 0, 2, k}) * b.at({q, k, 5});
      }
      EXPECT_EQ(y.at({p, q, 2, 5}), sum);
    }
  }
}

TEST(Contraction, MatmulOfVectors) {
  Tensor u = Tensor::of({1, 2, 3}, {3});
  Tensor v3 = Tensor::of({4, 5, 6}, {3});
  EXPECT_EQ(run1({u, v3}, [](const Views& v) { return matmul(v[0], v[1]); }).item(), 32);
  Tensor m = counting({2, 3});
  EXPECT_EQ(run1({m, u}, [](const Views& v) { return matmul(v[0], v[1]); }).toVector(), (std::vector<double>{8, 26}));
  Tensor w = counting({2, 3, 2});
  Tensor y = run1({u, w}, [](const Views& v) { return matmul(v[0], v[1]); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(y.toVector(), (std::vector<double>{16, 22, 52, 58}));
}

TEST(Contraction, EmptyInnerDimGivesZeros) {
  Tensor y = run1({Tensor::zeros({2, 0}, DataType::Float), Tensor::zeros({0, 3}, DataType::Float)},
                  [](const Views& v) { return matmul(v[0], v[1]); });
  EXPECT_EQ(y.toVector(), std::vector<double>(6, 0));
}

TEST(Contraction, LinearWithAndWithoutBias) {
  Tensor x = values({2, 3, 4}, 5);
  Tensor w = values({5, 4}, 6);
  Tensor b = values({5}, 7);
  Tensor y = run1({x, w, b}, [](const Views& v) { return linear(v[0], v[1], v[2]); });
  Tensor plain = run1({x, w}, [](const Views& v) { return linear(v[0], v[1]); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{2, 3, 5}));
  for (int64_t i = 0; i < 2; i++) {
    for (int64_t n = 0; n < 5; n++) {
      double sum = 0;
      for (int64_t k = 0; k < 4; k++) {
        sum += x.at({i, 2, k}) * w.at({n, k});
      }
      EXPECT_EQ(plain.at({i, 2, n}), sum);
      EXPECT_EQ(y.at({i, 2, n}), sum + b.at({n}));
    }
  }
  Tensor vector = values({4}, 8);
  EXPECT_EQ(sizesOf(run1({x, vector}, [](const Views& v) { return linear(v[0], v[1]); })),
            (std::vector<int64_t>{2, 3}));
}

TEST(Contraction, IntegersWrapAndSixteenBitsRoundOnce) {
  Tensor a = values({2, 3}, 9, DataType::Int32);
  Tensor y = run1({a}, [](const Views& v) { return matmul(v[0], transpose(v[0])); });
  EXPECT_EQ(y.dtype(), DataType::Int32);
  EXPECT_EQ(y.at({0, 1}), a.at({0, 0}) * a.at({1, 0}) + a.at({0, 1}) * a.at({1, 1}) + a.at({0, 2}) * a.at({1, 2}));
  // 300 ones: BFloat16 counts only to 256 by ones, and 300 is 300 in it
  Tensor ones = Tensor::full({1, 300}, DataType::BFloat16, 1);
  Tensor z = run1({ones}, [](const Views& v) { return linear(v[0], v[0]); });
  EXPECT_EQ(z.dtype(), DataType::BFloat16);
  EXPECT_EQ(z.item(), 300);
}

TEST(Contraction, InnerDimStaysMarked) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* y = matmul(makeConcreteTensor({2, 4}), makeConcreteTensor({4, 8}));
  ASSERT_EQ(y->getLogicalDomain().size(), 3);
  EXPECT_TRUE(y->getLogicalDomain()[2]->isReduction());
  EXPECT_TRUE(y->getLogicalDomain()[2]->extent().isConst(4));
}

}  // namespace
}  // namespace meshfuse
