// Which ops an update in place may be made of.
#pragma once

namespace meshfuse {

class Expr;

// Every element of the result depends on the element at the same place of each operand only.
[[nodiscard]] bool isElementwise(const Expr& e);

}  // namespace meshfuse
