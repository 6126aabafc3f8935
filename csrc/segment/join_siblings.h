// Joins kernels that do not read each other:
//
//   y = exp(x)    z = tanh(x)            one kernel, x is read once
//   y = exp(x)    z = tanh(w)            one kernel if x and w are small and alike: one launch less
//
// Runs when every op has its step, since only then all candidates are known, and before steps are put in order. It joins two kernels that
// are faster as one (judge_siblings.h), unless one waits for the other, or communication would be delayed.
//
// Quadratic in the number of kernels. Not tried are pairs with more than 128 ops or kMaxKernelTensors tensors, further pairs of a kernel
// after eight refused ones, and programs of more than 16384 steps.
#pragma once

namespace meshfuse {

class StepGraph;
struct LocalContext;

void joinSiblings(StepGraph& graph, const LocalContext& context);

}  // namespace meshfuse
