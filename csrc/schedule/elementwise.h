// Elementwise ops: an update in place may consist of these ops.
#pragma once

namespace meshfuse {

class Expr;

// Every element of the result depends on the element at the same place of each operand only.
[[nodiscard]] bool isElementwise(const Expr& e);

}  // namespace meshfuse
