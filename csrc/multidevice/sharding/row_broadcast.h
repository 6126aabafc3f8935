// Row broadcast: takes one row of a sharded dim by an index that every rank knows at run time. The rank that holds the row broadcasts it.
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
  std::vector<int> axes;  // mesh axes that cut the dim; ranks along them get the row
  IntExpr root;           // position of the owner among these ranks
  int64_t elements = 0;   // elements of the row on the rank that holds most
  double cost = 0;        // in the units of a plan's cost
};

// The index of the only row that an IndexSelect takes, as an expression over Int inputs of the fusion; valid for rows that exist.
[[nodiscard]] std::optional<IntExpr> rowNumber(const Expr* expr);
// Empty if a broadcast of the owner's row does not give every rank its part of the result.
[[nodiscard]] std::optional<RowBroadcast> rowBroadcast(const Expr* expr);

}  // namespace meshfuse
