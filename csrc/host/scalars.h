// Values of scalars in a call: arguments, constants, and what scalar ops make of them.
#pragma once

#include <cstdint>
#include <span>

#include "ir/fusion.h"
#include "tensor/argument.h"

namespace meshfuse {

// An integer expression over the fusion's Int inputs.
[[nodiscard]] int64_t integerValue(const Fusion& fusion, const IntExpr& expr, std::span<const Argument> inputs);
// `val` as the 8-byte slot of a kernel argument of type `type` (tile/tile.h).
[[nodiscard]] uint64_t scalarBits(const Fusion& fusion, const Val* val, DataType type, std::span<const Argument> inputs);

}  // namespace meshfuse
