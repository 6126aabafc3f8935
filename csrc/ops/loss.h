// Losses, as compositions of elementwise ops, reductions and takeAlongAxis. They compute in Float (Double operands: in Double), and the
// results have the type of the computation.
#pragma once

#include <cstdint>

#include "ops/operand.h"

namespace meshfuse {

enum class LossReduction : uint8_t { None, Mean, Sum };

struct CrossEntropyOptions {
  LossReduction reduction = LossReduction::Mean;  // Mean: over the targets that count; NaN if none does
  int64_t ignore_index = -100;                    // a target of this value counts nothing
  double label_smoothing = 0;                     // in [0, 1]: the part of the probability that all classes share
};

// The cross entropy of logits and target classes: with p = softmax(input) and e = label_smoothing, the loss of a target t is
//   -(1 - e) * log(p[t]) - e * mean of log(p) over all classes
// input: [C], or [N, C, d..] with the classes in dim 1. target: integers of the shape of input without the classes; one that is neither a
// class nor ignore_index is a UserError at the call. The result has the shape of target, or no dims if it is reduced. PyTorch's function
// without class weights and without probabilities as targets. If the classes are cut over ranks, no rank gathers them. UserError
// `[cross_entropy]` if target is not of integers or has other extents, if input has no dims, or if label_smoothing is not in [0, 1].
TensorView* cross_entropy(TensorView* input, TensorView* target, const CrossEntropyOptions& options = {});
// The gradient of input: dy * (p - (1 - e) * [class is the target] - e / C), divided by the number of targets that count for Mean; 0 where
// the target counts nothing. dy: of the shape of the result, else UserError.
TensorView* cross_entropy_backward(TensorView* dy, TensorView* input, TensorView* target,
                                   const CrossEntropyOptions& options = {});

}  // namespace meshfuse
