#include "tile/interpreter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tile/builder.h"
#include "tile/call.h"
#include "tile/scalar.h"

namespace meshfuse::tile {
namespace {

using enum Level;
using enum DataType;

// Relative to the larger of 1 and the expected value: one rounding to `dtype` and `steps` roundings of Float before it.
void expectNear(const std::vector<double>& got, const std::vector<double>& expected, DataType dtype, double steps) {
  ASSERT_EQ(got.size(), expected.size());
  double bound = std::ldexp(1.0, -info(dtype).mantissaBits) + steps * std::ldexp(1.0, dtype == Double ? -53 : -24);
  for (size_t i = 0; i < got.size(); i++) {
    ASSERT_NEAR(got[i], expected[i], bound * std::max(1.0, std::abs(expected[i]))) << "element " << i;
  }
}

struct Case {
  Target target;
  DataType dtype;
};
void forAll(const std::function<void(Target, DataType)>& body) {
  for (Target target : {Target::Cpu, Target::Gpu}) {
    for (DataType dtype : {Float, BFloat16, Half, Double}) {
      SCOPED_TRACE(fmt::format("{} {}", target == Target::Cpu ? "cpu" : "gpu", name(dtype)));
      body(target, dtype);
    }
  }
}

// Runs the example in shuffled order and gives the call back.
Interpretation run(const Example& example, Call& call, uint64_t shuffle = 7) {
  EXPECT_EQ(verify(example.program), std::vector<std::string>{}) << toString(example.program);
  Interpretation result = interpret(example.program, call.slots(), {.shuffle = shuffle});
  EXPECT_TRUE(call.guardsIntact());
  return result;
}

TEST(Interpreter, AddsAndCountsBytes) {
  forAll([](Target target, DataType dtype) {
    for (int64_t n : {1, 15, 1003, 4096}) {
      Example example = addProgram(target, dtype, n);
      Call call(example);
      Interpretation result = run(example, call);
      std::vector<double> x = call.values(0), y = call.values(1), expected;
      for (size_t i = 0; i < x.size(); i++) {
        expected.push_back(x[i] + y[i]);
      }
      expectNear(call.values(2), expected, dtype, 1);
      int64_t bytes = n * dataTypeSize(dtype);
      for (int t : {0, 1}) {
        EXPECT_EQ(result.tensors[t].readBytes, bytes);
        EXPECT_EQ(result.tensors[t].distinctReadBytes, bytes);
        EXPECT_EQ(result.tensors[t].writtenBytes, 0);
      }
      EXPECT_EQ(result.tensors[2].writtenBytes, bytes);
      EXPECT_EQ(result.tensors[2].distinctWrittenBytes, bytes);
    }
  });
}

TEST(Interpreter, BiasGelu) {
  forAll([](Target target, DataType dtype) {
    constexpr int64_t kM = 20, kN = 97;
    Example example = biasGeluProgram(target, dtype, kM, kN);
    Call call(example);
    Interpretation result = run(example, call);
    std::vector<double> x = call.values(0), b = call.values(1), expected;
    for (size_t i = 0; i < x.size(); i++) {
      double a = x[i] + b[i % kN];
      expected.push_back(0.5 * a * (1 + std::erf(a / std::sqrt(2.0))));
    }
    expectNear(call.values(2), expected, dtype, 16);
    EXPECT_EQ(result.tensors[1].distinctReadBytes, kN * dataTypeSize(dtype));
    EXPECT_EQ(result.tensors[1].readBytes, kM * kN * dataTypeSize(dtype));
  });
}

TEST(Interpreter, Softmax) {
  forAll([](Target target, DataType dtype) {
    for (auto [m, n] : {std::pair<int64_t, int64_t>{33, 130}, {3, 1100}, {5, 1}, {1, 64}}) {
      Example example = softmaxProgram(target, dtype, m, n);
      Call call(example);
      Interpretation result = run(example, call);
      std::vector<double> x = call.values(0), expected;
      for (int64_t i = 0; i < m; i++) {
        const double* row = x.data() + i * n;
        double largest = *std::max_element(row, row + n);
        double sum = 0;
        for (int64_t j = 0; j < n; j++) {
          sum += std::exp(row[j] - largest);
        }
        for (int64_t j = 0; j < n; j++) {
          expected.push_back(std::exp(row[j] - largest) / sum);
        }
      }
      expectNear(call.values(1), expected, dtype, static_cast<double>(n) + 8);
      int64_t bytes = m * n * dataTypeSize(dtype);
      EXPECT_EQ(result.tensors[0].readBytes, target == Target::Gpu ? bytes : 2 * bytes);
      EXPECT_EQ(result.tensors[0].distinctReadBytes, bytes);
    }
  });
}

TEST(Interpreter, LayerNorm) {
  forAll([](Target target, DataType dtype) {
    for (auto [m, n] : {std::pair<int64_t, int64_t>{17, 200}, {2, 3000}, {33, 7}}) {
      Example example = layerNormProgram(target, dtype, m, n);
      Call call(example);
      run(example, call);
      std::vector<double> x = call.values(0), w = call.values(1), b = call.values(2), y, means, rstds;
      for (int64_t i = 0; i < m; i++) {
        const double* row = x.data() + i * n;
        double mean = 0, squares = 0;
        for (int64_t j = 0; j < n; j++) {
          mean += row[j] / static_cast<double>(n);
        }
        for (int64_t j = 0; j < n; j++) {
          squares += (row[j] - mean) * (row[j] - mean);
        }
        double rstd = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
        means.push_back(mean);
        rstds.push_back(rstd);
        for (int64_t j = 0; j < n; j++) {
          y.push_back((row[j] - mean) * rstd * w[j] + b[j]);
        }
      }
      expectNear(call.values(3), y, dtype, static_cast<double>(n) + 16);
      expectNear(call.values(4), means, dtype == Double ? Double : Float, static_cast<double>(n));
      expectNear(call.values(5), rstds, dtype == Double ? Double : Float, static_cast<double>(n));
    }
  });
}

TEST(Interpreter, InnerAndOuterSums) {
  forAll([](Target target, DataType dtype) {
    for (auto [m, n] : {std::pair<int64_t, int64_t>{19, 333}, {150, 70}, {1, 1}, {300, 5}}) {
      Example inner = innerSumProgram(target, dtype, m, n);
      Example outer = outerSumProgram(target, dtype, m, n);
      Call innerCall(inner), outerCall(outer);
      run(inner, innerCall);
      run(outer, outerCall);
      std::vector<double> x = innerCall.values(0), rows(m, 0), columns(n, 0);
      EXPECT_EQ(x, outerCall.values(0));
      for (int64_t i = 0; i < m * n; i++) {
        rows[i / n] += x[i];
        columns[i % n] += x[i];
      }
      // The sum of magnitudes is at most twice the count.
      expectNear(innerCall.values(1), rows, dtype, 2 * static_cast<double>(n * n));
      expectNear(outerCall.values(1), columns, dtype, 2 * static_cast<double>(m * m));
    }
  });
}

TEST(Interpreter, Transpose) {
  forAll([](Target target, DataType dtype) {
    constexpr int64_t kM = 100, kN = 70;
    Example example = transposeProgram(target, dtype, kM, kN);
    Call call(example);
    Interpretation result = run(example, call);
    std::vector<double> x = call.values(0), y = call.values(1);
    for (int64_t i = 0; i < kM * kN; i++) {
      ASSERT_EQ(y[i % kN * kM + i / kN], x[i]);
    }
    EXPECT_EQ(result.tensors[0].readBytes, kM * kN * dataTypeSize(dtype));
  });
}

TEST(Interpreter, PadCatGatherDropout) {
  forAll([](Target target, DataType dtype) {
    Example padCat = padCatProgram(target, dtype, 5, 37, 64);
    Call call(padCat);
    Interpretation result = run(padCat, call);
    std::vector<double> a = call.values(0), b = call.values(1), y = call.values(2);
    for (int64_t i = 0; i < 5 * 103; i++) {
      int64_t row = i / 103, j = i % 103;
      double expected = j == 0 || j == 102 ? 7 : j <= 37 ? a[row * 37 + j - 1] : b[row * 64 + j - 38];
      ASSERT_EQ(y[i], expected);
    }
    EXPECT_EQ(result.tensors[0].readBytes, 5 * 37 * dataTypeSize(dtype));
    EXPECT_EQ(result.tensors[1].readBytes, 5 * 64 * dataTypeSize(dtype));

    Example gather = gatherProgram(target, dtype, 11, 21, 48);
    Call rows(gather);
    run(gather, rows);
    std::vector<double> x = rows.values(0), index = rows.values(1), z = rows.values(2);
    for (int64_t i = 0; i < 21 * 48; i++) {
      ASSERT_EQ(z[i], x[static_cast<int64_t>(index[i / 48]) * 48 + i % 48]);
    }

    Example dropout = dropoutProgram(target, dtype, 4000);
    Call drop(dropout);
    run(dropout, drop);
    std::vector<double> from = drop.values(0), to = drop.values(1);
    int64_t kept = 0;
    for (size_t i = 0; i < 4000; i++) {
      bool keep = philox(42, 0, 1000 + i)[0] * 0x1p-32 < 0.75;
      kept += keep ? 1 : 0;
      ASSERT_NEAR(to[i], keep ? from[i] / 0.75 : 0, 4 * std::ldexp(1.0, -info(dtype).mantissaBits));
    }
    EXPECT_NEAR(static_cast<double>(kept), 3000, 5 * std::sqrt(4000 * 0.75 * 0.25));
  });
}

TEST(Interpreter, Shifts) {
  for (DataType dtype : {Float, BFloat16, Double}) {
    const int64_t v = dtype == Double ? 8 : 16;
    const int64_t rows = 9;
    const int64_t columns = 48;
    Example example = shiftProgram(dtype, rows, columns);
    Call call(example);
    run(example, call);
    std::vector<double> expected[2];
    for (int64_t m = 0; m < rows; m++) {
      for (int64_t n = 0; n < columns; n++) {
        for (int64_t k : {0, 1}) {
          const int64_t from = n % v - (k == 0 ? m * 3 % v : v == 16 ? 5 : 3);
          const int64_t place = m * columns + n / v * v + (from + v) % v;
          expected[k].push_back(call.values(from < 0 ? 0 : 1)[place]);
        }
      }
    }
    EXPECT_EQ(call.values(2), expected[0]);
    EXPECT_EQ(call.values(3), expected[1]);
  }
}

}  // namespace
}  // namespace meshfuse::tile
