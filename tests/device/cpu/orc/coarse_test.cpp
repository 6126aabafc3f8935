// Functions whose results are only rounded to 16 bits are computed less exactly: within the bound of the interpreter. Others are as exact as
// vector_math.h states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "columns.h"
#include "run_program.h"
#include "tensor/half.h"

namespace meshfuse {

namespace {

using tile::Builder;
using tile::ValueId;

// Of results; below 2^-126 in steps of these numbers.
Real allowed(Real result) { return 10 * 0x1p-24L * result + 3 * 0x1p-149L; }

Real sigmoidOf(Real x) { return 1 / (1 + std::exp(-x)); }

// Y[i] = make(X[i]), one element at a time.
tile::Program ofScalars(DataType output, const std::function<ValueId(Builder&, ValueId)>& make) {
  Builder b("scalars", tile::Target::Cpu);
  const IntExpr n = b.size("N", {.lower = 1});
  const int64_t x = b.tensor({"X", DataType::Float, tile::Memory::Input, {n}, {1}, 64});
  const int64_t y = b.tensor({"Y", output, tile::Memory::Output, {n}, {1}, 64});
  const int64_t s = b.space("s", {{"n", n, {{tile::Level::Serial, 0}}}});
  b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
    b.store(y, {{b.coord(s, 0)}}, make(b, b.load(x, {{b.coord(s, 0)}}, s)));
    return std::vector<ValueId>{};
  });
  return b.take();
}

Real roundedToBFloat16(Real v) { return bfloat16ToFloat(floatToBFloat16(static_cast<float>(v))); }

// The difference to a Float next to the exact result has the digits that the result itself would lose in 16 bits.
TEST(Coarse, SigmoidsStayWithinTheirBound) {
  std::vector<float> x{0.0F, -0.0F, 87, 88, 104, 1e30F, std::numeric_limits<float>::infinity(), -86.99F, -87.33F};
  std::mt19937_64 random(5);
  std::uniform_real_distribution<float> unit(-1, 1);
  for (int64_t i = 0; i < 200'000; i++) {
    x.push_back(unit(random) * (i % 2 == 0 ? 104.0F : std::ldexp(4.0F, -static_cast<int>(random() % 20))));
  }
  std::vector<Column> columns;
  columns.emplace_back(DataType::Float, x.size());
  columns.emplace_back(DataType::Float, x.size());
  for (size_t i = 0; i < x.size(); i++) {
    columns[0].put<float>(i, x[i]);
    columns[1].put<float>(i, static_cast<float>(sigmoidOf(x[i])));
  }
  for (const CpuTarget& target : testedTargets()) {
    SCOPED_TRACE("vector bytes " + std::to_string(target.vectorBytes));
    CpuCompiler compiler({.target = target});
    const auto difference = [](Builder& b, const std::vector<ValueId>& in) {
      return b.cast(b.point(PointOp::Sub, {b.point(PointOp::Sigmoid, {in[0]}), in[1]}), DataType::BFloat16);
    };
    const tile::Program program =
        elementwise("coarse", {DataType::Float, DataType::Float}, DataType::BFloat16, difference);
    const std::shared_ptr<const CpuKernel> kernel = compiler.compile({&program, 1})[0];
    Column y(DataType::BFloat16, x.size());
    run(*kernel, columns, y);
    for (size_t i = 0; i < x.size(); i++) {
      const Real exact = sigmoidOf(x[i]);
      ASSERT_LE(std::abs(columns[1].real(i) + y.real(i) - exact), allowed(exact)) << x[i];
    }
  }
}

TEST(Coarse, SigmoidsOfAllBFloat16) {
  constexpr size_t kAll = 0x10000;
  std::vector<Column> columns;
  columns.emplace_back(DataType::BFloat16, kAll);
  for (size_t i = 0; i < kAll; i++) {
    columns[0].put<uint16_t>(i, static_cast<uint16_t>(i));
  }
  for (const CpuTarget& target : testedTargets()) {
    SCOPED_TRACE("vector bytes " + std::to_string(target.vectorBytes));
    CpuCompiler compiler({.target = target});
    const auto sigmoid = [](Builder& b, const std::vector<ValueId>& in) {
      return b.cast(b.point(PointOp::Sigmoid, {b.cast(in[0], DataType::Float)}), DataType::BFloat16);
    };
    const tile::Program program = elementwise("coarse", {DataType::BFloat16}, DataType::BFloat16, sigmoid);
    const std::shared_ptr<const CpuKernel> kernel = compiler.compile({&program, 1})[0];
    Column y(DataType::BFloat16, kAll);
    run(*kernel, columns, y);
    for (size_t i = 0; i < kAll; i++) {
      const Real exact = sigmoidOf(columns[0].real(i));
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(y.real(i))) << i;
        continue;
      }
      const Real error = allowed(exact);
      ASSERT_GE(y.real(i), roundedToBFloat16(exact - error)) << columns[0].real(i);
      ASSERT_LE(y.real(i), roundedToBFloat16(exact + error)) << columns[0].real(i);
    }
  }
}

// Results below 2^-126 are not 0 if a function of them can be told from the function of 0: the logarithm, or a product with a large number.
TEST(Coarse, FunctionsOfTheSmallestSigmoids) {
  std::vector<Column> columns;
  columns.emplace_back(DataType::Float, size_t{24 * 64 + 1});  // whole vectors, and a part of one
  for (size_t i = 0; i < columns[0].size(); i++) {
    // every seventh vector has one such number only, every eighth none
    const bool isOrdinary = i / 16 % 8 == 7 || (i / 16 % 8 == 6 && i % 16 != 5);
    columns[0].put<float>(i, isOrdinary ? static_cast<float>(i % 16) : -80 - static_cast<float>(i) / 64);
  }
  const auto logarithm = [](Builder& b, ValueId x) {
    return b.cast(b.point(PointOp::Log, {b.point(PointOp::Sigmoid, {x})}), DataType::BFloat16);
  };
  const auto silu = [](Builder& b, ValueId x) {
    return b.cast(b.point(PointOp::Mul, {x, b.point(PointOp::Sigmoid, {x})}), DataType::BFloat16);
  };
  const auto ofVectors = [](const auto& make) {
    return elementwise("vectors", {DataType::Float}, DataType::BFloat16,
                       [&](Builder& b, const std::vector<ValueId>& in) { return make(b, in[0]); });
  };
  const std::vector<tile::Program> programs{ofVectors(logarithm), ofScalars(DataType::BFloat16, logarithm),
                                            ofVectors(silu), ofScalars(DataType::BFloat16, silu)};
  for (const CpuTarget& target : testedTargets()) {
    CpuCompiler compiler({.target = target});
    const std::vector<std::shared_ptr<const CpuKernel>> kernels = compiler.compile(programs);
    for (size_t k = 0; k < kernels.size(); k++) {
      SCOPED_TRACE("vector bytes " + std::to_string(target.vectorBytes) + ", program " + std::to_string(k));
      Column y(DataType::BFloat16, columns[0].size());
      run(*kernels[k], columns, y);
      for (size_t i = 0; i < y.size(); i++) {
        const Real x = columns[0].real(i);
        const Real exact = sigmoidOf(x);
        const Real error = allowed(exact);
        const auto end = [&](Real sigmoid) { return k < 2 ? std::log(std::max(sigmoid, Real{0})) : x * sigmoid; };
        const Real a = end(exact - error);
        const Real b = end(exact + error);
        const auto rest = [](Real v) { return 0x1p-22L * std::abs(v) + 0x1p-149L; };  // of log or the product
        ASSERT_GE(y.real(i), roundedToBFloat16(std::min(a, b) - rest(std::min(a, b)))) << x;
        ASSERT_LE(y.real(i), roundedToBFloat16(std::max(a, b) + rest(std::max(a, b)))) << x;
      }
    }
  }
}

// Every 61st Float of [-8, -0.5]: few of them have the largest error.
TEST(Sigmoids, AreAsExactAsTheirHeaderStates) {
  constexpr uint32_t kFirst = 0x3f000000;  // 0.5
  constexpr uint32_t kStep = 61;
  std::vector<Column> columns;
  columns.emplace_back(DataType::Float, size_t{(0x41000000 - kFirst) / kStep});
  for (size_t i = 0; i < columns[0].size(); i++) {
    columns[0].put<uint32_t>(i, 0x80000000 + kFirst + static_cast<uint32_t>(i) * kStep);
  }
  columns[0].put<float>(0, -3.44387603F);
  const tile::Program program =
      elementwise("sigmoid", {DataType::Float}, DataType::Float,
                  [](Builder& b, const std::vector<ValueId>& in) { return b.point(PointOp::Sigmoid, {in[0]}); });
  for (const CpuTarget& target : testedTargets()) {
    SCOPED_TRACE("vector bytes " + std::to_string(target.vectorBytes));
    CpuCompiler compiler({.target = target});
    Column y(DataType::Float, columns[0].size());
    run(*compiler.compile({&program, 1})[0], columns, y);
    Real worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < y.size(); i++) {
      const Real exact = sigmoidOf(columns[0].real(i));
      int exponent = 0;
      std::frexp(exact, &exponent);
      const Real error = std::abs(y.real(i) - exact) / std::ldexp(Real{1}, exponent - 24);
      where = error > worst ? i : where;
      worst = std::max(worst, error);
    }
    EXPECT_LE(worst, 3.6L) << "at " << columns[0].real(where);
  }
}

}  // namespace

}  // namespace meshfuse
