#include "ops/activation.h"

#include <cmath>

#include "ops/built.h"

namespace meshfuse {
namespace {

const std::vector<double> kPoints = {-25, -6, -3, -1, -0.5, -0.01, 0.01, 0.5, 1, 3, 6, 25};

Tensor points() { return Tensor::of(kPoints, {std::ssize(kPoints)}, DataType::Double); }

double erfOf(double x) { return std::erf(x); }
double geluOf(double x) { return 0.5 * x * (1 + erfOf(x / std::sqrt(2.0))); }
double tanhGeluOf(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double siluOf(double x) { return x / (1 + std::exp(-x)); }
double softplusOf(double x) { return 2 * x > 20 ? x : std::log(1 + std::exp(2 * x)) / 2; }

using Function = double (*)(double);
using Forward = TensorView* (*)(TensorView*);
using Backward = TensorView* (*)(TensorView*, TensorView*);

struct ActivationRow {
  const char* name;
  Function function;
  Forward forward;
  Backward backward;
};

const std::vector<ActivationRow> kRows = {
    {"relu", [](double x) { return x > 0 ? x : 0; }, relu, relu_backward},
    {"gelu", geluOf, gelu, gelu_backward},
    {"tanh_gelu", tanhGeluOf, tanh_gelu, tanh_gelu_backward},
    {"silu", siluOf, silu, silu_backward},
    {"softplus", softplusOf, [](TensorView* x) { return softplus(x, 2.0, 20.0); },
     [](TensorView* dy, TensorView* x) { return softplus_backward(dy, x, 2.0, 20.0); }},
    {"leaky_relu", [](double x) { return x >= 0 ? x : 0.1 * x; }, [](TensorView* x) { return leaky_relu(x, 0.1); },
     [](TensorView* dy, TensorView* x) { return leaky_relu_backward(dy, x, 0.1); }},
    {"threshold", [](double x) { return x > 0.3 ? x : -7; }, [](TensorView* x) { return threshold(x, 0.3, -7.0); },
     [](TensorView* dy, TensorView* x) { return threshold_backward(dy, x, 0.3); }},
    {"clamp", [](double x) { return x < -2  ? -2
                                    : x > 4 ? 4
                                            : x; }, [](TensorView* x) { return clamp(x, -2.0, 4.0); },
     [](TensorView* dy, TensorView* x) { return clamp_backward(dy, x, -2.0, 4.0); }},
};

TEST(Activation, ForwardIsTheFormula) {
  for (const ActivationRow& row : kRows) {
    std::vector<double> y = run1({points()}, [&](const Views& v) { return row.forward(v[0]); }).toVector();
    for (size_t k = 0; k < kPoints.size(); k++) {
      EXPECT_NEAR(y[k], row.function(kPoints[k]), 1e-12 * (1 + std::fabs(y[k]))) << row.name << " of " << kPoints[k];
    }
  }
}

TEST(Activation, BackwardIsTheSlope) {
  for (const ActivationRow& row : kRows) {
    std::vector<double> dx =
        run1({points()}, [&](const Views& v) { return row.backward(full_like(v[0], 3.0), v[0]); }).toVector();
    for (size_t k = 0; k < kPoints.size(); k++) {
      const double h = 1e-5;
      double slope = (row.function(kPoints[k] + h) - row.function(kPoints[k] - h)) / (2 * h);
      EXPECT_NEAR(dx[k], 3 * slope, 1e-7 * (1 + std::fabs(slope))) << row.name << " at " << kPoints[k];
    }
  }
}

TEST(Activation, BackwardFromTheResult) {
  Tensor x = points();
  std::vector<double> tanhSlope =
      run1({x}, [](const Views& v) { return tanh_backward(full_like(v[0], 1), tanh(v[0])); }).toVector();
  std::vector<double> sigmoidSlope =
      run1({x}, [](const Views& v) { return sigmoid_backward(full_like(v[0], 1), sigmoid(v[0])); }).toVector();
  for (size_t k = 0; k < kPoints.size(); k++) {
    double e = std::exp(-std::fabs(kPoints[k]));
    EXPECT_NEAR(sigmoidSlope[k], e / ((1 + e) * (1 + e)), 1e-12);
    double c = std::cosh(kPoints[k]);
    EXPECT_NEAR(tanhSlope[k], 1 / (c * c), 1e-12);
  }
}

TEST(Activation, NanStaysNan) {
  Tensor x = Tensor::of({kNan}, {1});
  for (const ActivationRow& row : kRows) {
    EXPECT_TRUE(std::isnan(run1({x}, [&](const Views& v) { return row.forward(v[0]); }).item())) << row.name;
  }
}

TEST(Activation, OneSidedClampAndIntegers) {
  Tensor x = Tensor::of({-5, 0, 5}, {3}, DataType::Int);
  Val* open = nullptr;
  EXPECT_EQ(run1({x}, [&](const Views& v) { return clamp(v[0], open, 2); }).toVector(),
            (std::vector<double>{-5, 0, 2}));
  EXPECT_EQ(run1({x}, [&](const Views& v) { return clamp(v[0], -1, open); }).toVector(),
            (std::vector<double>{-1, 0, 5}));
  Tensor r = run1({x}, [&](const Views& v) { return relu(v[0]); });
  EXPECT_EQ(r.dtype(), DataType::Int);
  EXPECT_EQ(r.toVector(), (std::vector<double>{0, 0, 5}));
}

}  // namespace
}  // namespace meshfuse
