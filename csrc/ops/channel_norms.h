// Norms whose statistics are kept by channel: batch, instance and group norm with their backward forms, as compositions.
//
// x is [N, C, ..], or [N, .., C] with channels_last. weight, bias, running_mean, running_var: [C] or null. All compute in Float for
// 16-bit operands (Double stays) and give that type. Two passes: the variance is the mean of (x - mean)^2.
//
// Running statistics are inputs of the fusion, or casts of inputs. Where statistics of x are taken, they become
// running * (1 - momentum) + (those of x) * momentum, of the variance with n - 1 in place of n, in place: outputs that alias the inputs.
#pragma once

#include <array>
#include <cstdint>

#include "ops/normalization.h"

namespace meshfuse {

// Over all dims but C. training: by the statistics of x, which are returned as [C] tensors; otherwise by the running ones, which must be
// given, and mean and invstd of the result are null.
ForwardNormResult batch_norm(TensorView* x, TensorView* weight, TensorView* bias, TensorView* running_mean,
                             TensorView* running_var, bool training, Operand momentum, Operand eps,
                             bool channels_last = false);
// save_mean, save_invstd: of batch_norm; read with training only. Otherwise the running ones are, with eps.
BackwardNormResult batch_norm_backward(TensorView* x, TensorView* dy, TensorView* weight, TensorView* running_mean,
                                       TensorView* running_var, TensorView* save_mean, TensorView* save_invstd,
                                       bool training, Operand eps,
                                       const std::array<bool, 3>& output_mask = {true, true, true},
                                       bool channels_last = false);

// Over all dims but N and C; there is at least one other; mean and invstd are [N, C]. use_input_stats: as training of batch_norm.
// The running statistics take the mean over N.
ForwardNormResult instance_norm(TensorView* x, TensorView* weight, TensorView* bias, TensorView* running_mean,
                                TensorView* running_var, bool use_input_stats, Operand momentum, Operand eps,
                                bool channels_last = false);
BackwardNormResult instance_norm_backward(TensorView* x, TensorView* dy, TensorView* weight, TensorView* running_mean,
                                          TensorView* running_var, TensorView* save_mean, TensorView* save_invstd,
                                          bool use_input_stats, Operand eps,
                                          const std::array<bool, 3>& output_mask = {true, true, true},
                                          bool channels_last = false);

// x is [N, C, ..]: over each of num_groups runs of C / num_groups channels and all dims after them (Wu and He, 2018); mean and invstd are
// [N, num_groups]. UserError unless num_groups divides C.
ForwardNormResult group_norm(TensorView* x, int64_t num_groups, TensorView* weight, TensorView* bias, Operand eps);
BackwardNormResult group_norm_backward(TensorView* dy, TensorView* x, int64_t num_groups, TensorView* mean,
                                       TensorView* invstd, TensorView* weight,
                                       const std::array<bool, 3>& output_mask = {true, true, true});

}  // namespace meshfuse
