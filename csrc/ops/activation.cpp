#include "ops/activation.h"

#include <numbers>

#include "base/error.h"
#include "ops/builder_call.h"
#include "ops/pointwise.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

constexpr double kTanhGeluCubic = 0.044715;
constexpr double kSqrtTwoOverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

// scale * sqrt(2 / pi) * (x + 0.044715 x^3)
TensorView* tanhGeluArgument(TensorView* x, double scale) {
  scale *= kSqrtTwoOverPi;
  return mul(x, add(mul(mul(x, x), kTanhGeluCubic * scale), scale));
}

// (1 + erf(x / sqrt(2))) / 2, the cumulative normal distribution
TensorView* cumulativeNormal(TensorView* x) { return mul(add(erf(mul(x, 1 / std::numbers::sqrt2)), 1.0), 0.5); }

// A number, or a tensor that stretches to x.
void checkParameter(std::string_view op, std::string_view what, const Operand& parameter, const TensorView* x) {
  if (parameter.isTensor()) {
    checkStretchesTo(op, what, parameter.val()->asTensor(), "x", x);
  }
}

}  // namespace

TensorView* relu(TensorView* x) {
  checkTensor("relu", x, "x");
  return maximum(x, 0);
}

TensorView* relu_backward(TensorView* dy, TensorView* x) {
  const BuilderCall call("relu_backward", dy);
  checkTensor("relu_backward", dy, "dy");
  checkTensor("relu_backward", x, "x");
  checkStretchesTo("relu_backward", "dy", dy, "x", x);
  return where(gt(x, 0), dy, 0);
}

TensorView* gelu(TensorView* x) {
  x = floatingOperand("gelu", x);
  return mul(x, cumulativeNormal(x));
}

TensorView* gelu_backward(TensorView* dy, TensorView* x) {
  const BuilderCall call("gelu_backward", dy);
  x = floatingOperand("gelu_backward", x, "x");
  dy = gradientOperand("gelu_backward", dy, "x", x);
  TensorView* density = mul(exp(mul(mul(x, x), -0.5)), kSqrtTwoOverPi * 0.5);
  TensorView* rising = mul(x, density);
  return mul(dy, add(cumulativeNormal(x), rising));
}

TensorView* tanh_gelu(TensorView* x) {
  x = floatingOperand("tanh_gelu", x);
  return mul(x, sigmoid(tanhGeluArgument(x, 2)));  // (1 + tanh(u)) / 2 = sigmoid(2 u)
}

TensorView* tanh_gelu_backward(TensorView* dy, TensorView* x) {
  const BuilderCall call("tanh_gelu_backward", dy);
  x = floatingOperand("tanh_gelu_backward", x, "x");
  dy = gradientOperand("tanh_gelu_backward", dy, "x", x);
  TensorView* t = tanh(tanhGeluArgument(x, 1));
  TensorView* slope = mul(add(mul(mul(x, x), 3 * kTanhGeluCubic), 1.0), kSqrtTwoOverPi);
  TensorView* left = mul(add(t, 1.0), 0.5);
  TensorView* slopeOfTanh = sub(1.0, mul(t, t));
  TensorView* right = mul(mul(mul(x, 0.5), slopeOfTanh), slope);
  return mul(dy, add(left, right));
}

TensorView* silu(TensorView* x) {
  x = floatingOperand("silu", x);
  return mul(x, sigmoid(x));
}

TensorView* silu_backward(TensorView* dy, TensorView* x) {
  const BuilderCall call("silu_backward", dy);
  x = floatingOperand("silu_backward", x, "x");
  dy = gradientOperand("silu_backward", dy, "x", x);
  TensorView* s = sigmoid(x);
  return mul(dy, mul(s, add(mul(x, sub(1.0, s)), 1.0)));
}

TensorView* softplus(TensorView* x, Operand beta, Operand threshold) {
  const BuilderCall call("softplus", x);
  x = floatingOperand("softplus", x);
  checkParameter("softplus", "beta", beta, x);
  checkParameter("softplus", "threshold", threshold, x);
  TensorView* scaled = mul(x, beta);
  // Beyond the threshold exp would overflow to a value that where drops.
  TensorView* smooth = div(log1p(exp(scaled)), beta);
  return where(gt(scaled, threshold), x, smooth);
}

TensorView* softplus_backward(TensorView* dy, TensorView* x, Operand beta, Operand threshold) {
  const BuilderCall call("softplus_backward", dy);
  x = floatingOperand("softplus_backward", x, "x");
  dy = gradientOperand("softplus_backward", dy, "x", x);
  checkParameter("softplus_backward", "beta", beta, x);
  checkParameter("softplus_backward", "threshold", threshold, x);
  TensorView* scaled = mul(x, beta);
  TensorView* below = mul(dy, sigmoid(scaled));
  return where(gt(scaled, threshold), dy, below);
}

TensorView* leaky_relu(TensorView* x, Operand negative_slope) {
  const BuilderCall call("leaky_relu", x);
  x = floatingOperand("leaky_relu", x);
  checkParameter("leaky_relu", "negative_slope", negative_slope, x);
  TensorView* below = mul(x, negative_slope);
  return where(ge(x, 0), x, below);
}

TensorView* leaky_relu_backward(TensorView* dy, TensorView* x, Operand negative_slope) {
  const BuilderCall call("leaky_relu_backward", dy);
  x = floatingOperand("leaky_relu_backward", x, "x");
  dy = gradientOperand("leaky_relu_backward", dy, "x", x);
  checkParameter("leaky_relu_backward", "negative_slope", negative_slope, x);
  TensorView* below = mul(dy, negative_slope);
  return where(ge(x, 0), dy, below);
}

TensorView* threshold(TensorView* x, Operand limit, Operand value) {
  const BuilderCall call("threshold", x);
  checkTensor("threshold", x, "x");
  checkParameter("threshold", "limit", limit, x);
  checkParameter("threshold", "value", value, x);
  return where(le(x, limit), value, x);
}

TensorView* threshold_backward(TensorView* dy, TensorView* x, Operand limit) {
  const BuilderCall call("threshold_backward", dy);
  checkTensor("threshold_backward", dy, "dy");
  checkTensor("threshold_backward", x, "x");
  checkStretchesTo("threshold_backward", "dy", dy, "x", x);
  checkParameter("threshold_backward", "limit", limit, x);
  return where(le(x, limit), 0, dy);
}

TensorView* clamp(TensorView* x, Operand low, Operand high) {
  const BuilderCall call("clamp", x);
  checkTensor("clamp", x, "x");
  checkParameter("clamp", "low", low, x);
  checkParameter("clamp", "high", high, x);
  check(!low.isMissing() || !high.isMissing(), "[clamp] neither a lower nor an upper limit is given for {}; give one",
        describe(x));
  x = low.isMissing() ? x : maximum(x, low);
  return high.isMissing() ? x : minimum(x, high);
}

TensorView* clamp_backward(TensorView* dy, TensorView* x, Operand low, Operand high) {
  const BuilderCall call("clamp_backward", dy);
  checkTensor("clamp_backward", dy, "dy");
  checkTensor("clamp_backward", x, "x");
  checkStretchesTo("clamp_backward", "dy", dy, "x", x);
  checkParameter("clamp_backward", "low", low, x);
  checkParameter("clamp_backward", "high", high, x);
  check(!low.isMissing() || !high.isMissing(),
        "[clamp_backward] neither a lower nor an upper limit is given for {}; give one", describe(x));
  dy = low.isMissing() ? dy : where(ge(x, low), dy, 0);
  return high.isMissing() ? dy : where(le(x, high), dy, 0);
}

TensorView* tanh_backward(TensorView* dy, TensorView* y) {
  const BuilderCall call("tanh_backward", dy);
  y = floatingOperand("tanh_backward", y, "y");
  dy = gradientOperand("tanh_backward", dy, "y", y);
  return mul(dy, sub(1.0, mul(y, y)));
}

TensorView* sigmoid_backward(TensorView* dy, TensorView* y) {
  const BuilderCall call("sigmoid_backward", dy);
  y = floatingOperand("sigmoid_backward", y, "y");
  dy = gradientOperand("sigmoid_backward", dy, "y", y);
  return mul(dy, mul(y, sub(1.0, y)));
}

}  // namespace meshfuse
