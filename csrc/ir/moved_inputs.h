// Ops that only move inputs: what waits for them may as well compute them, because inputs occupy memory in any case, and results only from
// the op on.
#pragma once

#include <cstdint>
#include <set>
#include <span>

namespace meshfuse {

class Expr;

// Of exprs in topological order, the ids of those that may stand right before their first reader: communications that move an input, and the
// casts and ops without arithmetic before and after them, if something reads their results.
[[nodiscard]] std::set<int64_t> movedInputs(std::span<Expr* const> exprs);

}  // namespace meshfuse
