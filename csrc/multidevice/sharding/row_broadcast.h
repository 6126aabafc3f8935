// One row of a sharded dim, by a number that every rank knows when it runs: the rank that has the row sends it.
//
//   mesh {x: 4}, T0[8, 3] S0(x), T1 = index_select(T0, 0, [i]), R     broadcast(x) from the rank at i / 2
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "digits/int_expr.h"

namespace meshfuse {

class Expr;

struct RowBroadcast {
  std::vector<int> axes;  // that cut the dim; ranks along them get the row
  IntExpr root;           // place of the owner among them
  int64_t elements = 0;   // of the row, as the busiest rank holds it
  double cost = 0;        // as a plan's
};

// The number of the one row that an IndexSelect takes, over Int inputs of the fusion; right for rows that exist.
[[nodiscard]] std::optional<IntExpr> rowNumber(const Expr* expr);
// Nothing where the owner's row is not all that ranks lack of the result.
[[nodiscard]] std::optional<RowBroadcast> rowBroadcast(const Expr* expr);

}  // namespace meshfuse
