// Ops that only move inputs. The best place of such an op is right before its first reader: the input occupies memory in any case, and the
// result only from the op on.
#pragma once

#include <cstdint>
#include <set>
#include <span>

namespace meshfuse {

class Expr;

// The ids of the exprs that may stand right before their first reader: redistributions of inputs, and the casts and layout ops before and
// after these redistributions. An expr whose result has no reader is not among them. `exprs` are in topological order.
[[nodiscard]] std::set<int64_t> movedInputs(std::span<Expr* const> exprs);

}  // namespace meshfuse
