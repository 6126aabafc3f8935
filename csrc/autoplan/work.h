// The work of ops, from their rows in ir/op_rule.h.
#pragma once

#include "autoplan/machine.h"

namespace meshfuse {

class Expr;

// Of computing the whole result; without bytes, which depend on the tensors that reach memory. All sizes are constants. A view has none.
[[nodiscard]] Work workOf(const Expr& expr);

}  // namespace meshfuse
