// Overlaps in memory among the arguments and results of a call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tensor/argument.h"

namespace meshfuse {

// True if two positions of a tensor have one address, as in an expanded tensor or overlapping windows.
[[nodiscard]] bool repeatsElements(const Tensor& tensor);

// UserError if a result shares elements with another result, or is written into an input that shares elements with another input.
// Returns false if some result shares memory with an input that is only read: it must be computed elsewhere and copied. aliasOf: for
// each output the input that it is written into, if any. outputs: supplied by the caller, or empty; ignored where aliasOf has an input.
// A second call with the same number of tensors allocates nothing.
[[nodiscard]] bool checkOverlaps(std::span<const std::optional<int64_t>> aliasOf, std::span<const Argument> inputs,
                                 std::span<const Tensor> outputs);

}  // namespace meshfuse
