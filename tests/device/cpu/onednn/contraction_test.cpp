// Matmul and linear of every type, rank and layout, through the library or our own kernels, against the reference.
#include "device/cpu/onednn/contraction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/cpu/onednn/double_product.h"
#include "device/cpu/onednn/few_rows_product.h"
#include "device/cpu/onednn/float_product.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "meshfuse_config.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

Tensor random(std::vector<int64_t> sizes, uint64_t seed, DataType type) {
  return randomTensor(std::move(sizes), type, seed, -2, 2);
}

int64_t libraryCalls(FusionExecutorCache& cache) {
  int64_t n = 0;
  for (const Step& s : cache.hostProgram()->steps) {
    n += s.kind == HostStepKind::Routine;
  }
  return n;
}

class Contractions : public ::testing::TestWithParam<DataType> {
 protected:
  static bool library() {
    return kHasOneDnn && (GetParam() == DataType::Double ? multipliesDoubles() : isFloatingPoint(GetParam()));
  }
  static TensorView* input(Fusion& f, const Tensor& t) {
    TensorView* x = makeConcreteTensor({t.sizes().begin(), t.sizes().end()}, t.dtype());
    f.addInput(x);
    return x;
  }
  // matmul of two tensors as they are.
  static void expectProduct(const Tensor& a, const Tensor& b) {
    CheckedCache checked([&](Fusion& f) {
      TensorView* x = input(f, a);
      TensorView* y = input(f, b);
      f.addOutput(matmul(x, y));
    });
    EXPECT_EQ(checked.call({a, b}), "") << a.toString() << " " << b.toString();
  }
};

INSTANTIATE_TEST_SUITE_P(Type, Contractions,
                         ::testing::Values(DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double,
                                           DataType::Int, DataType::Int32),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST_P(Contractions, Shapes) {
  DataType t = GetParam();
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                   {1, 7, 1},
                                                                   {5, 1, 3},
                                                                   {17, 33, 9},
                                                                   {64, 16, 1},
                                                                   {1, 40, 50},
                                                                   {130, 20, 70},
                                                                   {130, 300, 140},
                                                                   {3, 900, 600},
                                                                   {700, 900, 1}}) {
    expectProduct(random({m, k}, 1, t), random({k, n}, 2, t));
  }
}

TEST_P(Contractions, VectorsAndBatches) {
  DataType t = GetParam();
  expectProduct(random({6}, 1, t), random({6}, 2, t));
  expectProduct(random({6}, 1, t), random({6, 4}, 2, t));
  expectProduct(random({5, 6}, 1, t), random({6}, 2, t));
  expectProduct(random({3, 5, 6}, 1, t), random({6}, 2, t));
  expectProduct(random({6}, 1, t), random({3, 6, 4}, 2, t));
  expectProduct(random({3, 5, 6}, 1, t), random({3, 6, 4}, 2, t));
  expectProduct(random({3, 5, 6}, 1, t), random({6, 4}, 2, t));
  expectProduct(random({5, 6}, 1, t), random({3, 6, 4}, 2, t));
  expectProduct(random({2, 1, 5, 6}, 1, t), random({1, 3, 6, 4}, 2, t));
  expectProduct(random({2, 3, 5, 6}, 1, t), random({3, 6, 4}, 2, t));
  expectProduct(random({1, 5, 6}, 1, t), random({4, 6, 2}, 2, t));
}

TEST_P(Contractions, TransposedStridedAndExpandedOperands) {
  DataType t = GetParam();
  Tensor a = random({5, 6}, 1, t);
  Tensor b = random({6, 7}, 2, t);
  for (const Tensor& x : {a, random({6, 5}, 3, t).transpose(0, 1), random({5, 12}, 4, t).slice(1, 0, 12, 2),
                          random({10, 6}, 5, t).slice(0, 0, 10, 2), random({1, 6}, 6, t).expand({5, 6}),
                          random({5, 1}, 7, t).expand({5, 6}), random({31}, 8, t).slice(0, 1, 31).view({5, 6}),
                          random({5, 9}, 9, t).slice(1, 2, 8)}) {
    expectProduct(x, b);
    expectProduct(random({3, 5}, 10, t), x);
  }
  expectProduct(random({5, 3, 6}, 1, t).transpose(0, 1), random({6, 3, 7}, 2, t).transpose(0, 1));
  expectProduct(random({6, 5, 3}, 1, t).permute({2, 1, 0}), random({1, 6, 7}, 2, t).expand({3, 6, 7}));
}

TEST_P(Contractions, Linear) {
  DataType t = GetParam();
  for (bool withBias : {false, true}) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{9}, {4, 9}, {2, 3, 9}, {1, 1, 9}}) {
      for (bool strided : {false, true}) {
        Tensor x =
            strided && shape.size() == 3 ? random({shape[1], shape[0], 9}, 1, t).transpose(0, 1) : random(shape, 1, t);
        Tensor w = strided ? random({9, 5}, 2, t).transpose(0, 1) : random({5, 9}, 2, t);
        Tensor b = strided ? random({10}, 3, t).slice(0, 0, 10, 2) : random({5}, 3, t);
        CheckedCache checked([&](Fusion& f) {
          TensorView* in = input(f, x);
          TensorView* weight = input(f, w);
          TensorView* bias = input(f, b);
          f.addOutput(linear(in, weight, withBias ? bias : nullptr));
        });
        EXPECT_EQ(checked.call({x, w, b}), "") << x.toString();
      }
    }
  }
}

TEST_P(Contractions, VectorWeightAndABiasOfNoDims) {
  const DataType t = GetParam();
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{9}, {4, 9}}) {
    Tensor x = random(shape, 1, t);
    Tensor w = random({9}, 2, t);
    Tensor b = random({}, 3, t);
    CheckedCache checked([&](Fusion& f) {
      TensorView* in = input(f, x);
      TensorView* weight = input(f, w);
      f.addOutput(linear(in, weight, input(f, b)));
    });
    EXPECT_EQ(checked.call({x, w, b}), "") << x.toString();
  }
}

// What partial sums that travel as Float are made of.
class ContractionsOf16Bits : public Contractions {};

INSTANTIATE_TEST_SUITE_P(Type, ContractionsOf16Bits, ::testing::Values(DataType::Half, DataType::BFloat16),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST_P(ContractionsOf16Bits, SumsThatStayInFloat) {
  const DataType t = GetParam();
  const Tensor x = random({4, 9}, 1, t);
  const Tensor w = random({5, 9}, 2, t);
  const Tensor b = random({5}, 3, t);
  for (const bool asLinear : {true, false}) {
    CheckedCache checked([&](Fusion& f) {
      std::vector<Val*> operands{input(f, x), input(f, asLinear ? w : w.transpose(0, 1)), input(f, b)};
      operands.resize(asLinear ? 3 : 2);
      TensorView* y = f.tensor(DataType::Float, {{4}, {5}, {9, IterType::Reduction}});
      f.addExpr(asLinear ? ExprKind::Linear : ExprKind::Matmul, operands, {y});
      f.addOutput(y);
    });
    EXPECT_EQ(checked.call({x, asLinear ? w : w.transpose(0, 1), b}), "");
    EXPECT_EQ(libraryCalls(checked.cache()), library() ? 1 : 0);
    EXPECT_EQ(checked.results()[0].dtype(), DataType::Float);
  }
}

// Operands of BFloat16 are packed before the library reads them.
TEST_P(ContractionsOf16Bits, ManyRows) {
  DataType t = GetParam();
  for (const int64_t k : {32, 37}) {
    for (const Tensor& a : {random({513, k}, 1, t), random({513, k + 9}, 2, t).slice(1, 3, k + 3),
                            random({k, 513}, 3, t).transpose(0, 1), random({2, 513, k}, 4, t)}) {
      for (const Tensor& b :
           {random({k, 70}, 5, t), random({70, k}, 6, t).transpose(0, 1),
            random({70, k + 8}, 7, t).slice(1, 0, k).transpose(0, 1), random({2, k, 64}, 8, t), random({k, 5}, 9, t)}) {
        expectProduct(a, b);
      }
    }
  }
}

// Some processors take subnormal operands as zeros: 1e-39 * 1e38 is then 0.
TEST_P(ContractionsOf16Bits, SubnormalOperands) {
  const DataType t = GetParam();
  if (t != DataType::BFloat16) {
    GTEST_SKIP() << "1e38 is no number of the type";
  }
  const Tensor a = Tensor::of({1e-39, 2e-39, 1, -3e-39}, {2, 2}, t);
  const Tensor b = Tensor::of({1e38, 1, 1e30, -1e-39}, {2, 2}, t);
  expectProduct(a, b);
  expectProduct(b, a);
}

// Sums of 545 products that a processor may take as zeros one by one, and lines with an infinity or a NaN at the end.
TEST_P(Contractions, SmallestNumbersInLongSums) {
  const DataType t = GetParam();
  if (t == DataType::Half) {
    GTEST_SKIP() << "1e-39 is no number of the type";
  }
  const Tensor ones = Tensor::of(std::vector<double>(5 * 545, 1), {5, 545}, t).transpose(0, 1);
  for (const double least : {1e-39, 1e-23, t == DataType::Double ? 1e-200 : 1e-20}) {
    std::vector<double> a(8 * 545, least);
    std::vector<double> b(5 * 545, least);
    expectProduct(Tensor::of(a, {8, 545}, t), Tensor::of(b, {5, 545}, t).transpose(0, 1));
    a[544] = std::numeric_limits<double>::infinity();
    a[2 * 545 - 1] = std::numeric_limits<double>::quiet_NaN();
    expectProduct(Tensor::of(a, {8, 545}, t), ones);
  }
}

TEST_P(Contractions, WeightThatIsAVector) {
  DataType t = GetParam();
  Tensor x = random({4, 9}, 1, t);
  Tensor w = random({9}, 2, t);
  CheckedCache checked([&](Fusion& f) {
    TensorView* in = input(f, x);
    TensorView* weight = input(f, w);
    f.addOutput(linear(in, weight));
  });
  EXPECT_EQ(checked.call({x, w}), "");
}

TEST_P(Contractions, OfIntermediatesTransposedBothWays) {
  DataType t = GetParam();
  Tensor x = random({6, 8}, 1, t);
  CheckedCache checked([&](Fusion& f) {
    TensorView* in = input(f, x);
    TensorView* y = maybeCastOp(t, neg(in));
    f.addOutput(matmul(y, transpose(y)));
    f.addOutput(matmul(transpose(in), y));
    f.addOutput(matmul(in, transpose(in)));
  });
  EXPECT_EQ(checked.call({x}), "");
  EXPECT_EQ(libraryCalls(checked.cache()), library() ? 3 : 0);
}

TEST_P(Contractions, TheSameBitsForAnyNumberOfThreads) {
  DataType t = GetParam();
  for (const int64_t rows : {150, 600}) {
    Tensor a = random({rows, 90}, 1, t);
    Tensor b = random({90, 110}, 2, t);
    std::vector<double> expected;
    for (int threads : {1, 2, 3}) {
      CheckedCache checked(
          [&](Fusion& f) {
            TensorView* x = input(f, a);
            TensorView* y = input(f, b);
            f.addOutput(matmul(x, y));
          },
          {.threads = threads, .verify = Verify::Off});
      std::vector<double> got = checked.cache().runFusionWithInputs({a, b})[0].toVector();
      expected = expected.empty() ? got : expected;
      EXPECT_EQ(got, expected) << threads;
    }
  }
}

// Whatever the tiles and the parts of the columns are.
TEST_P(Contractions, FewRowsWithLongSums) {
  const DataType t = GetParam();
  const DataType sumType = isHalfPrecision(t) ? DataType::Float : t;
  const auto withGaps = [&](std::vector<int64_t> sizes, uint64_t seed) {
    const int64_t k = sizes.back();
    sizes.back() += 3;
    return random(sizes, seed, t).slice(static_cast<int64_t>(sizes.size()) - 1, 0, k);
  };
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {1, 2, 512}, {1, 70, 600}, {7, 50, 513}, {8, 301, 1024}, {15, 24, 545}, {16, 200, 900}}) {
    const Tensor a = withGaps({m, k}, 1);
    const Tensor w = withGaps({n, k}, 2);
    const Tensor bias = random({n}, 3, t);
    const Tensor batch = withGaps({3, n, k}, 4);
    std::vector<std::vector<double>> expected;
    for (const int threads : {1, 2, 3}) {
      CheckedCache checked(
          [&](Fusion& f) {
            TensorView* x = makeConcreteTensor({m, k}, t);
            TensorView* y = makeConcreteTensor({n, k}, t);
            TensorView* z = makeContigConcreteTensor({n}, t);
            TensorView* many = makeConcreteTensor({3, n, k}, t);
            for (TensorView* in : {x, y, z, many}) {
              f.addInput(in);
            }
            TensorView* sums = f.tensor(sumType, {{m}, {n}, {k, IterType::Reduction}});
            f.addExpr(ExprKind::Linear, {x, y}, {sums});
            for (TensorView* out : {linear(x, y, z), matmul(x, transpose(many, 1, 2)), sums}) {
              f.addOutput(out);
            }
          },
          {.threads = threads});
      ASSERT_EQ(checked.call({a, w, bias, batch}), "") << m << " x " << n << " x " << k;
      ASSERT_EQ(libraryCalls(checked.cache()), library() ? 3 : 0);
      std::vector<std::vector<double>> got;
      for (const Tensor& result : checked.results()) {
        got.push_back(result.toVector());
      }
      expected = expected.empty() ? got : expected;
      EXPECT_EQ(got, expected) << threads;
    }
  }
}

// Whatever the blocks, tiles and parts of k are.
TEST(Contraction, DoublesAreChainsOfFusedMultiplyAdds) {
  if (!multipliesDoubles()) {
    GTEST_SKIP() << "no library, or no fused multiply-add";
  }
  const int64_t m = 301, n = 77, k = 530;
  for (const bool aTransposed : {false, true}) {
    for (const bool bTransposed : {false, true}) {
      Tensor a =
          aTransposed ? random({k, m}, 1, DataType::Double).transpose(0, 1) : random({m, k}, 1, DataType::Double);
      Tensor b =
          bTransposed ? random({n, k}, 2, DataType::Double).transpose(0, 1) : random({k, n}, 2, DataType::Double);
      CheckedCache checked([&](Fusion& f) {
        TensorView* x = makeConcreteTensor({m, k}, DataType::Double);
        TensorView* y = makeConcreteTensor({k, n}, DataType::Double);
        f.addInput(x);
        f.addInput(y);
        f.addOutput(matmul(x, y));
      });
      ASSERT_EQ(checked.call({a, b}), "");
      ASSERT_EQ(libraryCalls(checked.cache()), 1);
      const std::vector<double> x = a.toVector();
      const std::vector<double> y = b.toVector();
      const std::vector<double> got = checked.results()[0].toVector();
      for (int64_t i = 0; i < m * n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++) {
          sum = std::fma(x[i / n * k + j], y[j * n + i % n], sum);
        }
        ASSERT_EQ(got[i], sum) << i;
      }
    }
  }
}

// Small blocks, whatever their tiles, panels and parts of k are; a chain begins with the bias.
TEST(Contraction, FloatsOfSmallBlocksAreChainsOfFusedMultiplyAdds) {
  if (!kHasOneDnn || !__builtin_cpu_supports("avx512f")) {
    GTEST_SKIP() << "no library, or no AVX-512";
  }
  ASSERT_TRUE(multipliesFloats({.rows = 64, .columns = 64}));
  EXPECT_FALSE(multipliesFloats({.rows = 7, .columns = 64}));
  EXPECT_FALSE(multipliesFloats({.rows = 129, .columns = 64}));
  EXPECT_FALSE(multipliesFloats({.rows = 64, .columns = 15}));
  EXPECT_FALSE(multipliesFloats({.rows = 64, .columns = 129}));
  EXPECT_TRUE(multipliesFloats({.rows = 32, .columns = 384}));
  EXPECT_FALSE(multipliesFloats({.rows = 32, .columns = 385}));
  EXPECT_FALSE(multipliesFloats({.rows = 33, .columns = 384}));
  EXPECT_TRUE(multipliesFloats({.rows = 16, .columns = 384}));
  EXPECT_FALSE(multipliesFloats({.rows = 15, .columns = 257}));
  EXPECT_TRUE(multipliesFloats({.rows = 8, .columns = 256}));
  // A matrix whose rows, or columns, lie further apart than they are long
  const auto withGaps = [](int64_t rows, int64_t columns, bool transposed, uint64_t seed) {
    return transposed ? random({columns, rows + 3}, seed, DataType::Float).slice(1, 0, rows).transpose(0, 1)
                      : random({rows, columns + 3}, seed, DataType::Float).slice(1, 0, columns);
  };
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{8, 17, 1},
                                                                   {8, 16, 128},
                                                                   {15, 33, 300},
                                                                   {17, 32, 1200},
                                                                   {64, 48, 384},
                                                                   {61, 77, 129},
                                                                   {16, 192, 192},
                                                                   {16, 384, 96},
                                                                   {32, 250, 65},
                                                                   {128, 100, 145}}) {
    for (const bool aTransposed : {false, true}) {
      for (const bool wTransposed : {false, true}) {
        const Tensor a = withGaps(m, k, aTransposed, 1);
        const Tensor w = withGaps(n, k, wTransposed, 2);
        const Tensor bias = random({n}, 3, DataType::Float);
        CheckedCache checked([&](Fusion& f) {
          TensorView* x = makeConcreteTensor({m, k});
          TensorView* y = makeConcreteTensor({n, k});
          TensorView* z = makeContigConcreteTensor({n});
          f.addInput(x);
          f.addInput(y);
          f.addInput(z);
          f.addOutput(linear(x, y, z));
          f.addOutput(matmul(x, transpose(y, 0, 1)));
        });
        ASSERT_EQ(checked.call({a, w, bias}), "");
        ASSERT_EQ(libraryCalls(checked.cache()), 2);
        const std::vector<double> x = a.toVector();
        const std::vector<double> y = w.toVector();
        const std::vector<double> z = bias.toVector();
        for (const bool isBiased : {false, true}) {
          const std::vector<double> got = checked.results()[isBiased ? 0 : 1].toVector();
          for (int64_t i = 0; i < m * n; i++) {
            float sum = isBiased ? static_cast<float>(z[i % n]) : 0;
            for (int64_t j = 0; j < k; j++) {
              sum = std::fma(static_cast<float>(x[i / n * k + j]), static_cast<float>(y[i % n * k + j]), sum);
            }
            ASSERT_EQ(got[i], sum) << i << " of " << m << " x " << n << " x " << k;
          }
        }
      }
    }
  }
}

// Of 16-bit operands, more threads need more memory only where the library multiplies them as they are.
TEST(Contraction, MultipliesBFloat16AsItIs) {
  if (!kHasOneDnn || !__builtin_cpu_supports("avx512bf16")) {
    GTEST_SKIP() << "no library, or no instructions for BFloat16";
  }
  Fusion fusion;
  FusionGuard guard(&fusion);
  for (const DataType type : {DataType::BFloat16, DataType::Half}) {
    TensorView* x = makeContigConcreteTensor({256, 1024}, type);
    TensorView* y = makeContigConcreteTensor({1024, 256}, type);
    fusion.addInput(x);
    fusion.addInput(y);
    const Contraction product(*matmul(x, y)->definition(), {}, 1);
    const int64_t widened = 4 * 256 * 1024 * 2;
    EXPECT_EQ(product.workspaceBytes() < widened, type == DataType::BFloat16) << name(type);
  }
}

TEST(Contraction, ReadsFewRowsWithLongSumsWhereTheyLie) {
  const bool takesAny = kHasOneDnn && __builtin_cpu_supports("avx512bw");
  const auto takes = [](DataType type, const auto& change) {
    MatrixProduct p{.operands = type, .m = 16, .n = 64, .k = 512, .a = {.leading = 512}, .b = {true, 512}};
    change(p);
    return multipliesFewRows(p);
  };
  const auto keep = [](MatrixProduct&) {};
  EXPECT_EQ(takes(DataType::Float, keep), takesAny);
  EXPECT_EQ(takes(DataType::BFloat16, keep), takesAny && __builtin_cpu_supports("avx512bf16"));
  const auto fewer = [](MatrixProduct& p) { p.m = 7; };
  EXPECT_FALSE(takes(DataType::Float, fewer));
  EXPECT_EQ(takes(DataType::BFloat16, fewer), takes(DataType::BFloat16, keep));
  EXPECT_FALSE(takes(DataType::Half, keep));
  EXPECT_FALSE(takes(DataType::Double, keep));
  EXPECT_FALSE(takes(DataType::Float, [](MatrixProduct& p) { p.m = 17; }));
  EXPECT_FALSE(takes(DataType::Float, [](MatrixProduct& p) { p.k = 511; }));
  EXPECT_FALSE(takes(DataType::Float, [](MatrixProduct& p) { p.a.transposed = true; }));
  EXPECT_FALSE(takes(DataType::Float, [](MatrixProduct& p) { p.b.transposed = false; }));
  if (takes(DataType::BFloat16, keep)) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor({8, 1024}, DataType::BFloat16);
    TensorView* w = makeContigConcreteTensor({256, 1024}, DataType::BFloat16);
    fusion.addInput(x);
    fusion.addInput(w);
    EXPECT_EQ(Contraction(*linear(x, w)->definition(), {}, 1).workspaceBytes(), 0) << "a copy of w";
  }
}

// Operands with gaps or a ragged k, and B of many rows of A: one copy of each matrix, however many products it is in.
TEST(Contraction, PacksAMatrixOnce) {
  if (!kHasOneDnn || !__builtin_cpu_supports("avx512bf16")) {
    GTEST_SKIP() << "no library, or no instructions for BFloat16";
  }
  const auto bytesOf = [](std::vector<int64_t> a, std::vector<int64_t> b) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor(std::move(a), DataType::BFloat16);
    TensorView* y = makeContigConcreteTensor(std::move(b), DataType::BFloat16);
    fusion.addInput(x);
    fusion.addInput(y);
    return Contraction(*matmul(x, y)->definition(), {}, 1).workspaceBytes();
  };
  const int64_t packedA = 512 * 1024 * 2;  // k is 1024 after packing
  const int64_t packedB = 1024 * 256 * 2;
  const auto expectPacked = [](int64_t bytes, int64_t packed) {
    EXPECT_GE(bytes, packed);
    EXPECT_LT(bytes, packed + 512 * 1024) << "a copy more";
  };
  expectPacked(bytesOf({512, 1023}, {1023, 256}), packedA + packedB);
  expectPacked(bytesOf({8, 512, 1024}, {1024, 256}), packedB);
  expectPacked(bytesOf({8, 512, 1023}, {1023, 256}), 8 * packedA + packedB);
  expectPacked(bytesOf({512, 1023}, {8, 1023, 256}), packedA + 8 * packedB);
  EXPECT_LT(bytesOf({511, 1024}, {1024, 256}), packedB) << "few rows are not packed";
}

TEST(Contraction, SaysWhatItDoesNotTake) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({4, 6});
  TensorView* y = makeContigConcreteTensor({6, 4});
  TensorView* i = makeContigConcreteTensor({6, 6}, DataType::Int);
  for (TensorView* tv : {x, y, i}) {
    fusion.addInput(tv);
  }
  const Expr& product = *matmul(x, y)->definition();
  if (!kHasOneDnn) {
    EXPECT_EQ(Contraction::refuse(product, {}), "built without oneDNN");
    return;
  }
  EXPECT_EQ(Contraction::refuse(product, {}), std::nullopt);
  EXPECT_EQ(Contraction::refuse(product, {{x->id(), {{1, 4}, 4}}}), std::nullopt);
  EXPECT_NE(Contraction::refuse(product, {{x->id(), {{12, 2}, 4}}}).value_or("").find("stride 1"), std::string::npos);
  EXPECT_NE(Contraction::refuse(*matmul(i, i)->definition(), {}).value_or("").find("Int"), std::string::npos);
  EXPECT_NE(Contraction::refuse(*neg(x)->definition(), {}).value_or("").find("no contraction"), std::string::npos);
}

}  // namespace

}  // namespace meshfuse
