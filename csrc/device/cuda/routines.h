// Which ops are routines on a GPU.
#pragma once

#include <optional>
#include <string_view>

namespace meshfuse {

class Expr;

// What computes the op, for messages; nothing for ops that only a routine of the CPU computes.
[[nodiscard]] std::optional<std::string_view> cudaRoutineName(const Expr& op);
// UserError with the name of the op if only a routine computes it, and there is none on a GPU.
void expectCudaRoutine(const Expr& op);

}  // namespace meshfuse
