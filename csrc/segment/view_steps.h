// Which ops take no work at run time, and which are left to the reference interpreter.
#pragma once

#include "schedule/group.h"

namespace meshfuse {

struct LocalContext;

// Whether an operand or the result of an op has no elements.
[[nodiscard]] bool touchesEmpty(const Expr& e);
// Whether the result of an op is its operand's memory, whatever surrounds it.
[[nodiscard]] bool isAlwaysView(const Expr& e, const LocalContext& context);
// Whether the ops of a group only give the memory of its only input other shapes: all tensors are row-major, all results are outputs, and
// the input is no input of the fusion.
[[nodiscard]] bool isView(const Group& group);

}  // namespace meshfuse
