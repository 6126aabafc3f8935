// Which ops take no work at run time, and which are left to the reference interpreter.
#pragma once

#include "schedule/group.h"

namespace meshfuse {

struct LocalContext;

// Whether an operand or the result of an op has no elements.
[[nodiscard]] bool touchesEmpty(const Expr& e);
// Whether the result of an op is its operand's memory, whatever surrounds it.
[[nodiscard]] bool isAlwaysView(const Expr& e, const LocalContext& context);
// Whether all results of a group that no other op joined are views of its only input.
[[nodiscard]] bool isView(const Group& group);

}  // namespace meshfuse
