// The value of a scalar that ops compute.
#pragma once

#include <span>

#include "ir/fusion.h"
#include "tensor/argument.h"

namespace meshfuse {

// `val`: a scalar with a definition; inputs: the arguments of `fusion`. It interprets a new fusion in each call, so it is slow.
[[nodiscard]] double interpretScalar(const Fusion& fusion, const Val* val, std::span<const Argument> inputs);
// True if `val` depends on no input: its value is the same in every call.
[[nodiscard]] bool isInputFree(const Val* val);

}  // namespace meshfuse
