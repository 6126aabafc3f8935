// Arguments and results of a call that meet in memory, where one of them is written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tensor/argument.h"

namespace meshfuse {

// Two positions of a tensor are one place in memory: expanded, or windows that overlap.
[[nodiscard]] bool repeatsElements(const Tensor& tensor);

// From a tensor's first element to the end of its last; 0 if it has none.
[[nodiscard]] int64_t extentBytes(const Tensor& tensor);

// UserError if a result would overwrite what it must not: an input that shares elements with another one that a result is
// written into; a result that shares elements with another result. aliasOf: for each output the input that it is written into, if
// any. outputs: those that the caller supplied, or none; where aliasOf has an input they are not looked at. False if some result
// shares memory with an input that is only read: it must be made elsewhere and copied. Allocates nothing once it has seen as many
// tensors.
[[nodiscard]] bool checkOverlaps(std::span<const std::optional<int>> aliasOf, std::span<const Argument> inputs,
                                 std::span<const Tensor> outputs);

}  // namespace meshfuse
