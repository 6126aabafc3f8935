// The reference interpreter: runs a fusion op by op on whole tensors and ignores shardings. Every other way of running a fusion is
// compared with it, so it shares no code with them and uses the simplest algorithms.
//
// Each op is computed in double (integers and Bool in int64) from the rounded values of its operands and rounded once, to
// nearest even, to the declared type. Integer arithmetic wraps at the declared type's width. A scalar operand is rounded to the
// element type of the tensor operands.
//
// UserError "[interpret] input 1 (T3): ..." for a wrong number of arguments, or an argument whose kind, element type, number of dims or
// sizes differ from its input, and for extents of operands that disagree once the sizes are known.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ir/fusion.h"
#include "tensor/argument.h"
#include "tensor/tensor.h"

namespace meshfuse {

// The outputs, contiguous, in the order of fusion.outputs(). Tensors are global.
[[nodiscard]] std::vector<Tensor> interpret(const Fusion& fusion, std::span<const Argument> inputs);
[[nodiscard]] std::vector<Tensor> interpret(const Fusion& fusion, std::initializer_list<Argument> inputs);

// Every tensor that the outputs need, inputs included, by id.
[[nodiscard]] std::map<int64_t, Tensor> interpretAll(const Fusion& fusion, std::span<const Argument> inputs);

}  // namespace meshfuse
