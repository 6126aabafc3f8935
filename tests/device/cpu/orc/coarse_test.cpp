// Functions whose results are only rounded to 16 bits are computed less exactly: within the bound of the interpreter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "columns.h"
#include "run_program.h"
#include "tensor/half.h"

namespace meshfuse {

namespace {

using tile::Builder;
using tile::ValueId;

constexpr Real kAllowed = 10 * 0x1p-24L;  // of the result; it may be 0 below 2^-126

Real sigmoidOf(Real x) { return 1 / (1 + std::exp(-x)); }

// The difference to a Float next to the exact result has the digits that the result itself would lose in 16 bits.
TEST(Coarse, SigmoidsStayWithinTheirBound) {
  std::vector<float> x{0.0F, -0.0F, 87, 88, 104, 1e30F, std::numeric_limits<float>::infinity(), -86.99F, -87.33F};
  std::mt19937_64 random(5);
  std::uniform_real_distribution<float> unit(-1, 1);
  for (int64_t i = 0; i < 200'000; i++) {
    x.push_back(unit(random) * (i % 2 == 0 ? 87.3F : std::ldexp(4.0F, -static_cast<int>(random() % 20))));
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
      ASSERT_LE(std::abs(columns[1].real(i) + y.real(i) - exact), kAllowed * exact + 0x1p-140L) << x[i];
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
      const Real error = kAllowed * exact + (exact < 0x1p-126L ? exact : 0);
      const auto rounded = [](Real v) { return bfloat16ToFloat(floatToBFloat16(static_cast<float>(v))); };
      ASSERT_GE(y.real(i), rounded(exact - error)) << columns[0].real(i);
      ASSERT_LE(y.real(i), rounded(exact + error)) << columns[0].real(i);
    }
  }
}

}  // namespace

}  // namespace meshfuse
