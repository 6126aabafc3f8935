// Mean and variance of the elements along some dims, and the positions of the extremes: compositions of reductions and elementwise ops.
//
// Axes are given as in reduction.h: {} is all dims, negative ones count from the end. 16-bit operands and integers are computed in Float,
// Double stays, and the result has that type. Variances sum the squares of the distances from the mean (two passes), so that a large mean
// loses no precision.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/operand.h"
#include "ops/reduction.h"

namespace meshfuse {

// sum((x - mean)^2) / max(0, n - correction). correction: 0 for a whole population, 1 (true) for a sample. With at most `correction`
// elements the result is NaN or infinite. UserError if `correction` is negative.
TensorView* variance(TensorView* x, const Axes& axes, int64_t correction = 1, bool keep_dim = false);
TensorView* standard_deviation(TensorView* x, const Axes& axes, int64_t correction = 1, bool keep_dim = false);

struct VarMeanResult {
  TensorView* var = nullptr;
  TensorView* mean = nullptr;
};
VarMeanResult variance_mean(TensorView* x, const Axes& axes, int64_t correction = 1, bool keep_dim = false);

struct WelfordResult {
  TensorView* avg = nullptr;
  TensorView* var_sum = nullptr;  // sum((x - avg)^2)
  TensorView* n = nullptr;        // Int: the number of elements
};
// Mean, sum of squared distances and count. The results also cover init_N earlier elements if init_avg, their mean, and init_var, their
// sum((x - init_avg)^2), are given: tensors of the shape of the result. init_var is no variance, but has the meaning of var_sum. init_N is
// a number, a scalar, or a tensor of that shape; it is not read without the others. UserError `[Welford]` if only one of the tensors is
// given, or if they have another number of dims than the result.
WelfordResult Welford(TensorView* x, const Axes& axes, TensorView* init_avg = nullptr, TensorView* init_var = nullptr,
                      Operand init_N = 0);

// Int: the position of the largest (smallest) element along dim; the first of equal elements, and the first NaN if there is one. Without
// dim: the position among all elements, in row-major order. Of Bool elements true is the larger (PyTorch refuses Bool). UserError if the
// dim is known to have no elements. If this is found only at the call, the result is the largest Int.
TensorView* argmax(TensorView* x, std::optional<int64_t> dim = std::nullopt, bool keep_dim = false);
TensorView* argmin(TensorView* x, std::optional<int64_t> dim = std::nullopt, bool keep_dim = false);

}  // namespace meshfuse
