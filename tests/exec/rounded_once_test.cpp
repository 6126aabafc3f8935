// Reductions of 16-bit elements add up in Float and are rounded once, also where several threads have parts of a row. The builders give
// such reductions Float operands; a program in a file may have 16-bit ones.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ir/read_program.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

struct Reduction {
  std::vector<int64_t> shape;
  int64_t dim;
};

// Rounding is off by half the distance of two numbers; Float's own error is small beside it.
double bound(double value, DataType type) {
  const int bits = type == DataType::Half ? 11 : 8;
  return 0.51 * std::ldexp(1, std::ilogb(value) + 1 - bits);
}

Tensor nearOne(const std::vector<int64_t>& shape, DataType type) {
  Tensor t = Tensor::empty(shape, type);
  std::mt19937 engine(5);
  std::normal_distribution<double> exponent(0, 0.003);
  std::vector<double> values(static_cast<size_t>(t.numel()));
  for (double& v : values) {
    v = std::exp(exponent(engine));
  }
  return Tensor::of(values, shape, type);
}

void expectRoundedOnce(const Reduction& r, DataType type, bool multiplies, int64_t threads) {
  std::string dims;
  std::string left;
  std::string dense;
  for (int64_t d = 0; d < std::ssize(r.shape); d++) {
    const char* comma = d == 0 ? "" : ", ";
    dims += fmt::format("{}{}", comma, r.shape[d]);
    left += fmt::format(fmt::runtime(d == r.dim ? "{}r{{{}}}" : "{}{}"), comma, r.shape[d]);
    dense += fmt::format("{}t", comma);
  }
  const std::string text = fmt::format(
      "fusion {{\n  T0 = input() : {0}[{1}] contiguity[{2}]\n  T1 = reduce(T0, op={3}) : {0}[{4}]\n  output T1\n}}\n",
      name(type), dims, dense, multiplies ? "prod" : "sum", left);
  const Tensor x = nearOne(r.shape, type);
  FusionExecutorCache cache(readProgram(text, "test"), {.threads = threads});
  const std::vector<double> results = cache.runFusionWithInputs({x})[0].toVector();
  std::vector<double> exact(results.size(), multiplies ? 1 : 0);
  const std::vector<double> values = x.toVector();
  const size_t columns = static_cast<size_t>(r.dim == 0 && r.shape.size() == 2 ? r.shape[1] : 1);
  const size_t length = static_cast<size_t>(r.shape[r.dim]);
  for (size_t i = 0; i < values.size(); i++) {
    double& total = exact[columns > 1 ? i % columns : i / length];
    total = multiplies ? total * values[i] : total + values[i];
  }
  for (size_t i = 0; i < exact.size(); i++) {
    EXPECT_NEAR(results[i], exact[i], bound(exact[i], type))
        << (multiplies ? "prod" : "sum") << " over dim " << r.dim << " with " << threads << " threads, result " << i;
  }
}

TEST(RoundedOnce, SumsAndProductsOf16Bits) {
  for (const Reduction& r : {Reduction{{60'000}, 0}, Reduction{{3, 60'000}, 1}, Reduction{{60'000, 3}, 0},
                             Reduction{{64, 4096}, 1}, Reduction{{4096, 64}, 0}}) {
    for (const DataType type : {DataType::Half, DataType::BFloat16}) {
      for (const bool multiplies : {false, true}) {
        for (const int64_t threads : {1, 2, 4}) {
          expectRoundedOnce(r, type, multiplies, threads);
        }
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
