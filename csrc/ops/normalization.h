// Softmax and the norms over trailing dims, as compositions of elementwise ops and reductions, with their backward forms.
// All compute in Float (Double operands: in Double), and the results have the type of the computation; cast them where needed. UserError
// `[op]` if a tensor is null, if `dim` is no dim of x, unless there are 1 to all dims of x to normalize, and on a weight or bias of another
// shape than the normalized extents.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <vector>

#include "ops/operand.h"

namespace meshfuse {

// exp(x - max(x)) / sum(exp(x - max(x))) along dim. A row of -inf only, or with a NaN, gives NaN.
TensorView* softmax(TensorView* x, int64_t dim);
// y * (dy - sum(dy * y)), with y = softmax(x)
TensorView* softmax_backward(TensorView* dy, TensorView* y, int64_t dim);
// x - max(x) - log(sum(exp(x - max(x)))) along dim.
TensorView* log_softmax(TensorView* x, int64_t dim);
// dy - exp(y) * sum(dy), with y = log_softmax(x)
TensorView* log_softmax_backward(TensorView* dy, TensorView* y, int64_t dim);

struct ForwardNormResult {
  TensorView* output = nullptr;
  TensorView* mean = nullptr;    // normalized dims have extent 1
  TensorView* invstd = nullptr;  // the same: 1 / sqrt(variance + eps)
};
struct BackwardNormResult {
  TensorView* grad_input = nullptr;
  TensorView* grad_weight = nullptr;  // null without weight, or if not asked for
  TensorView* grad_bias = nullptr;
};

// (x - mean) * invstd * weight + bias over the last dims. Two passes: the variance is the mean of (x - mean)^2.
// norm_shape: the trailing extents that are normalized, as in PyTorch; extents that are symbolic here are compared with it at the call.
// weight, bias: of shape norm_shape, or null. UserError if norm_shape does not end x's shape.
ForwardNormResult layer_norm(TensorView* x, const std::vector<int64_t>& norm_shape, TensorView* weight,
                             TensorView* bias, Operand eps);
ForwardNormResult layerNormOver(TensorView* x, int64_t normDims, TensorView* weight, TensorView* bias, Operand eps);
// The same with the number of dims. It is a template, so that {5} is read as a shape.
template <std::integral T>
ForwardNormResult layer_norm(TensorView* x, T normDims, TensorView* weight, TensorView* bias, Operand eps) {
  return layerNormOver(x, normDims, weight, bias, eps);
}
// mean, invstd: results of layer_norm. output_mask: the gradients to compute, one flag for each of the three.
BackwardNormResult layer_norm_backward(TensorView* dy, TensorView* x, const std::vector<int64_t>& norm_shape,
                                       TensorView* mean, TensorView* invstd, TensorView* weight, TensorView* bias,
                                       const std::array<bool, 3>& output_mask = {true, true, true});

struct ForwardRMSNormResult {
  TensorView* output = nullptr;
  TensorView* invstd = nullptr;  // 1 / sqrt(mean(x^2) + eps)
};
struct BackwardRMSNormResult {
  TensorView* grad_input = nullptr;
  TensorView* grad_weight = nullptr;
};

// x * invstd * weight over the last dims (Zhang and Sennrich, 2019).
ForwardRMSNormResult rms_norm(TensorView* x, const std::vector<int64_t>& norm_shape, TensorView* weight, Operand eps);
ForwardRMSNormResult rmsNormOver(TensorView* x, int64_t normDims, TensorView* weight, Operand eps);
template <std::integral T>
ForwardRMSNormResult rms_norm(TensorView* x, T normDims, TensorView* weight, Operand eps) {
  return rmsNormOver(x, normDims, weight, eps);
}
BackwardRMSNormResult rms_norm_backward(TensorView* dy, TensorView* x, const std::vector<int64_t>& norm_shape,
                                        TensorView* invstd, TensorView* weight,
                                        const std::array<bool, 2>& output_mask = {true, true});

}  // namespace meshfuse
