// Mean and variance of the elements along some dims, and where the extreme ones are: compositions of reductions and elementwise ops.
//
// Axes are those of reduction.h: {} is all dims, negative ones count from the end. 16-bit operands and integers are computed in Float,
// Double stays, and the result has that type. Sums of squares are of the distances from the mean (two passes), so that a large mean
// costs no digits.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/operand.h"
#include "ops/reduction.h"

namespace meshfuse {

// sum((x - mean)^2) / max(0, n - correction). correction: 0 of a whole population, 1 (true) of a sample; where no more elements than
// that are, the result is NaN or infinite.
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
  TensorView* n = nullptr;        // Int: how many elements
};
// Mean, sum of squared distances and count, which can be joined: with init_avg, init_var and init_N, of the shape of the result, those
// of the elements of x and of init_N elements before. All three of them or none.
WelfordResult Welford(TensorView* x, const Axes& axes, TensorView* init_avg = nullptr, TensorView* init_var = nullptr,
                      Operand init_N = 0);

// Int: where the largest (smallest) element along dim is; the first one of equal ones, and the first NaN if there is one. Without dim:
// of all elements, in row-major order. UserError if the dim has no elements; of one that turns out to have none, the largest Int.
TensorView* argmax(TensorView* x, std::optional<int64_t> dim = std::nullopt, bool keep_dim = false);
TensorView* argmin(TensorView* x, std::optional<int64_t> dim = std::nullopt, bool keep_dim = false);

}  // namespace meshfuse
