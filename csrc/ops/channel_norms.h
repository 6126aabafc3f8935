// Norms with statistics for each channel: batch, instance and group norm with their backward forms, as compositions.
//
// x is [N, C, ..], or [N, .., C] with channels_last. weight, bias, running_mean, running_var: [C] or null. All compute in Float (Double
// operands: in Double), and the results have the type of the computation. Backward forms take the gradient of the result first. Two passes:
// the variance is the mean of (x - mean)^2.
//
// Running statistics are inputs of the fusion, or casts of inputs. If a norm uses the statistics of x, it also updates the running
// statistics to running * (1 - momentum) + (statistic of x) * momentum, where the variance divides by n - 1. The updates are outputs that
// alias the inputs. UserError `[op]` if x has fewer than 2 dims (instance norm: 3), if a parameter or statistic has another shape, if only
// one of the running statistics is given, or if one that is updated is neither an input nor the cast of one.
#pragma once

#include <array>
#include <cstdint>

#include "ops/normalization.h"

namespace meshfuse {

// Normalizes over all dims except C. With training, by the statistics of x, which are returned as [C] tensors. Without, by the running
// statistics, which must be given; mean and invstd of the result are then null.
ForwardNormResult batch_norm(TensorView* x, TensorView* weight, TensorView* bias, TensorView* running_mean,
                             TensorView* running_var, bool training, Operand momentum, Operand eps,
                             bool channels_last = false);
// save_mean, save_invstd: results of batch_norm, read only with training. Without training, the running statistics and eps are read.
BackwardNormResult batch_norm_backward(TensorView* dy, TensorView* x, TensorView* weight, TensorView* running_mean,
                                       TensorView* running_var, TensorView* save_mean, TensorView* save_invstd,
                                       bool training, Operand eps,
                                       const std::array<bool, 3>& output_mask = {true, true, true},
                                       bool channels_last = false);

// Normalizes over all dims except N and C; there must be at least one other. mean and invstd are [N, C]. use_input_stats: as training of
// batch_norm. The update of the running statistics uses the mean over N.
ForwardNormResult instance_norm(TensorView* x, TensorView* weight, TensorView* bias, TensorView* running_mean,
                                TensorView* running_var, bool use_input_stats, Operand momentum, Operand eps,
                                bool channels_last = false);
BackwardNormResult instance_norm_backward(TensorView* dy, TensorView* x, TensorView* weight, TensorView* running_mean,
                                          TensorView* running_var, TensorView* save_mean, TensorView* save_invstd,
                                          bool use_input_stats, Operand eps,
                                          const std::array<bool, 3>& output_mask = {true, true, true},
                                          bool channels_last = false);

// x is [N, C, ..]. Normalizes each of num_groups groups of C / num_groups consecutive channels, with all dims after them (Wu and He,
// 2018); mean and invstd are [N, num_groups]. UserError unless num_groups divides C.
ForwardNormResult group_norm(TensorView* x, int64_t num_groups, TensorView* weight, TensorView* bias, Operand eps);
BackwardNormResult group_norm_backward(TensorView* dy, TensorView* x, int64_t num_groups, TensorView* mean,
                                       TensorView* invstd, TensorView* weight,
                                       const std::array<bool, 3>& output_mask = {true, true, true});

}  // namespace meshfuse
