#include "ops/normalization.h"

#include "base/error.h"
#include "base/ranges.h"
#include "ops/builder_call.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

Axes trailingAxes(std::string_view op, const TensorView* x, int64_t count) {
  check(count >= 1 && count <= rankOf(x),
        "[{}] normalizes {} trailing dims of {}, expected 1 to {}; give a shorter shape", op, count, describe(x),
        rankOf(x));
  return axesIn(rankOf(x) - count, rankOf(x));
}

// x with the extents of norm_shape.
TensorView* withNormShape(std::string_view op, TensorView* x, const std::vector<int64_t>& norm_shape) {
  Axes axes = trailingAxes(op, x, std::ssize(norm_shape));
  std::vector<IntExpr> shape = x->shape();
  for (int64_t k : indices(axes)) {
    check(!provenDifferent(shape[axes[k]], norm_shape[k]),
          "[{}] dim {} of {} has extent {}, norm_shape has {}; expected x's last extents", op, axes[k], describe(x),
          shape[axes[k]].toString(), norm_shape[k]);
    shape[axes[k]] = norm_shape[k];
  }
  return withExtents(x, shape);
}

void checkParameter(std::string_view op, std::string_view what, const TensorView* parameter, const TensorView* x,
                    const Axes& axes) {
  if (parameter != nullptr) {
    check(mayBeEqual(parameter->shape(), extentsAt(x, axes)),
          "[{}] {} is {}, expected the normalized extents of {}, its last {} dims", op, what, describe(parameter),
          describe(x), axes.size());
  }
}

// A result of the forward form: of one element along normalized dims.
void checkStatistic(std::string_view op, std::string_view what, const TensorView* statistic, const TensorView* x) {
  checkTensor(op, statistic, what);
  checkStretchesTo(op, what, statistic, "x", x);
}

TensorView* sumLeading(TensorView* x, const Axes& trailing) {
  return trailing.at(0) == 0 ? set(x) : sum(x, axesIn(0, trailing[0]));
}

}  // namespace

TensorView* softmax(TensorView* x, int64_t dim) {
  const BuilderCall call("softmax", x);
  x = floatingOperand("softmax", x, "x");
  Axes axis = {wrapAxis("softmax", dim, rankOf(x))};
  TensorView* e = exp(sub(x, max(x, axis, true)));
  return mul(e, reciprocal(sum(e, axis, true)));
}

TensorView* softmax_backward(TensorView* dy, TensorView* y, int64_t dim) {
  const BuilderCall call("softmax_backward", dy);
  y = floatingOperand("softmax_backward", y, "y");
  dy = gradientOperand("softmax_backward", dy, "y", y);
  Axes axis = {wrapAxis("softmax_backward", dim, rankOf(y))};
  return mul(y, sub(dy, sum(mul(dy, y), axis, true)));
}

TensorView* log_softmax(TensorView* x, int64_t dim) {
  const BuilderCall call("log_softmax", x);
  x = floatingOperand("log_softmax", x, "x");
  Axes axis = {wrapAxis("log_softmax", dim, rankOf(x))};
  TensorView* shifted = sub(x, max(x, axis, true));
  return sub(shifted, log(sum(exp(shifted), axis, true)));
}

TensorView* log_softmax_backward(TensorView* dy, TensorView* y, int64_t dim) {
  const BuilderCall call("log_softmax_backward", dy);
  y = floatingOperand("log_softmax_backward", y, "y");
  dy = gradientOperand("log_softmax_backward", dy, "y", y);
  Axes axis = {wrapAxis("log_softmax_backward", dim, rankOf(y))};
  TensorView* total = sum(dy, axis, true);
  return sub(dy, mul(exp(y), total));
}

ForwardNormResult layerNormOver(TensorView* x, int64_t normDims, TensorView* weight, TensorView* bias, Operand eps) {
  const BuilderCall call("layer_norm", x);
  x = floatingOperand("layer_norm", x, "x");
  Axes axes = trailingAxes("layer_norm", x, normDims);
  checkParameter("layer_norm", "weight", weight, x, axes);
  checkParameter("layer_norm", "bias", bias, x, axes);
  ForwardNormResult result;
  result.mean = mean(x, axes, true);
  TensorView* centered = sub(x, result.mean);
  result.invstd = rsqrt(add(mean(mul(centered, centered), axes, true), eps));
  TensorView* y = mul(centered, result.invstd);
  y = weight != nullptr ? mul(y, weight) : y;
  result.output = bias != nullptr ? add(y, bias) : y;
  return result;
}

ForwardNormResult layer_norm(TensorView* x, const std::vector<int64_t>& norm_shape, TensorView* weight,
                             TensorView* bias, Operand eps) {
  const BuilderCall call("layer_norm", x);
  checkTensor("layer_norm", x, "x");
  x = withNormShape("layer_norm", x, norm_shape);
  return layerNormOver(x, std::ssize(norm_shape), weight, bias, eps);
}

BackwardNormResult layer_norm_backward(TensorView* dy, TensorView* x, const std::vector<int64_t>& norm_shape,
                                       TensorView* mean, TensorView* invstd, TensorView* weight, TensorView* bias,
                                       const std::array<bool, 3>& output_mask) {
  const BuilderCall call("layer_norm_backward", x);
  x = floatingOperand("layer_norm_backward", x, "x");
  dy = gradientOperand("layer_norm_backward", dy, "x", x);
  checkStatistic("layer_norm_backward", "mean", mean, x);
  checkStatistic("layer_norm_backward", "invstd", invstd, x);
  x = withNormShape("layer_norm_backward", x, norm_shape);
  Axes axes = trailingAxes("layer_norm_backward", x, std::ssize(norm_shape));
  checkParameter("layer_norm_backward", "weight", weight, x, axes);
  checkParameter("layer_norm_backward", "bias", bias, x, axes);

  TensorView* normalized = mul(sub(x, mean), invstd);
  BackwardNormResult result;
  if (output_mask[0]) {
    // With g = dy * weight: dx = invstd * (g - mean(g) - normalized * mean(g * normalized))
    TensorView* g = weight != nullptr ? mul(dy, weight) : dy;
    IntExpr count = countOver(x, axes);
    TensorView* meanG = div(sum(g, axes, true), count);
    TensorView* meanGx = div(sum(mul(g, normalized), axes, true), count);
    TensorView* alongNormalized = mul(normalized, meanGx);
    result.grad_input = mul(invstd, sub(sub(g, meanG), alongNormalized));
  }
  result.grad_weight = output_mask[1] && weight != nullptr ? sumLeading(mul(dy, normalized), axes) : nullptr;
  result.grad_bias = output_mask[2] && bias != nullptr ? sumLeading(dy, axes) : nullptr;
  return result;
}

ForwardRMSNormResult rmsNormOver(TensorView* x, int64_t normDims, TensorView* weight, Operand eps) {
  const BuilderCall call("rms_norm", x);
  x = floatingOperand("rms_norm", x, "x");
  Axes axes = trailingAxes("rms_norm", x, normDims);
  checkParameter("rms_norm", "weight", weight, x, axes);
  ForwardRMSNormResult result;
  result.invstd = rsqrt(add(mean(mul(x, x), axes, true), eps));
  TensorView* y = mul(x, result.invstd);
  result.output = weight != nullptr ? mul(y, weight) : y;
  return result;
}

ForwardRMSNormResult rms_norm(TensorView* x, const std::vector<int64_t>& norm_shape, TensorView* weight, Operand eps) {
  const BuilderCall call("rms_norm", x);
  checkTensor("rms_norm", x, "x");
  x = withNormShape("rms_norm", x, norm_shape);
  return rmsNormOver(x, std::ssize(norm_shape), weight, eps);
}

BackwardRMSNormResult rms_norm_backward(TensorView* dy, TensorView* x, const std::vector<int64_t>& norm_shape,
                                        TensorView* invstd, TensorView* weight,
                                        const std::array<bool, 2>& output_mask) {
  const BuilderCall call("rms_norm_backward", x);
  x = floatingOperand("rms_norm_backward", x, "x");
  dy = gradientOperand("rms_norm_backward", dy, "x", x);
  checkStatistic("rms_norm_backward", "invstd", invstd, x);
  x = withNormShape("rms_norm_backward", x, norm_shape);
  Axes axes = trailingAxes("rms_norm_backward", x, std::ssize(norm_shape));
  checkParameter("rms_norm_backward", "weight", weight, x, axes);

  TensorView* normalized = mul(x, invstd);
  BackwardRMSNormResult result;
  if (output_mask[0]) {
    TensorView* g = weight != nullptr ? mul(dy, weight) : dy;
    TensorView* meanGx = div(sum(mul(g, normalized), axes, true), countOver(x, axes));
    result.grad_input = mul(invstd, sub(g, mul(normalized, meanGx)));
  }
  result.grad_weight = output_mask[1] && weight != nullptr ? sumLeading(mul(dy, normalized), axes) : nullptr;
  return result;
}

}  // namespace meshfuse
