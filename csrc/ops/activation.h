// Activations and their backward forms, as compositions of elementwise ops. For 16-bit operands all compute in Float and give Float.
// Backward forms take the gradient of the result first; all results have the shape of x. UserError `[op]` if a tensor is null, if an
// operand that has to be a scalar is none, if operands do not stretch to the shape of the first one, or if clamp gets neither limit.
#pragma once

#include "ops/operand.h"

namespace meshfuse {

// max(x, 0); NaN stays NaN. Integers are allowed.
TensorView* relu(TensorView* x);
// dy where x > 0, else 0.
TensorView* relu_backward(TensorView* dy, TensorView* x);
// x * (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, 2016)
TensorView* gelu(TensorView* x);
// dy * ((1 + erf(x / sqrt(2))) / 2 + x * exp(-x^2 / 2) / sqrt(2 pi))
TensorView* gelu_backward(TensorView* dy, TensorView* x);
// x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
TensorView* tanh_gelu(TensorView* x);
TensorView* tanh_gelu_backward(TensorView* dy, TensorView* x);
// x * sigmoid(x)
TensorView* silu(TensorView* x);
TensorView* silu_backward(TensorView* dy, TensorView* x);
// log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.
TensorView* softplus(TensorView* x, Operand beta = 1.0, Operand threshold = 20.0);
TensorView* softplus_backward(TensorView* dy, TensorView* x, Operand beta = 1.0, Operand threshold = 20.0);
// x where x >= 0, else x * slope.
TensorView* leaky_relu(TensorView* x, Operand negative_slope = 0.01);
TensorView* leaky_relu_backward(TensorView* dy, TensorView* x, Operand negative_slope = 0.01);
// `value` where x <= `limit`, else x (NaN too).
TensorView* threshold(TensorView* x, Operand limit, Operand value);
TensorView* threshold_backward(TensorView* dy, TensorView* x, Operand limit);
// min(max(x, low), high); NaN stays NaN. A null Val* leaves that side open; at least one must be given.
TensorView* clamp(TensorView* x, Operand low, Operand high);
// dy where low <= x <= high, else 0.
TensorView* clamp_backward(TensorView* dy, TensorView* x, Operand low, Operand high);
// dy * (1 - y^2) with y = tanh(x), and dy * y * (1 - y) with y = sigmoid(x).
TensorView* tanh_backward(TensorView* dy, TensorView* y);
TensorView* sigmoid_backward(TensorView* dy, TensorView* y);

}  // namespace meshfuse
