// An argument of a call of a fusion: a tensor, or a number for a scalar input.
#pragma once

#include <cstdint>
#include <variant>

#include "tensor/tensor.h"

namespace meshfuse {

using Argument = std::variant<Tensor, double, int64_t, bool>;

}  // namespace meshfuse
