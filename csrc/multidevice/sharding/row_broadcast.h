// Row broadcast: takes one row of a sharded dim by an index that every rank knows at run time. The rank that holds the row broadcasts it.
//
//   mesh {x: 4}, T0[8, 3] S0(x), T1 = index_select(T0, 0, [i]), R     broadcast(x) from the rank at i / 2
#pragma once

#include <optional>

#include "digits/int_expr.h"
#include "multidevice/sharding/halo_exchange.h"

namespace meshfuse {

// The index of the only row that an IndexSelect takes, as an expression over Int inputs of the fusion; valid for rows that exist.
[[nodiscard]] std::optional<IntExpr> rowNumber(const Expr* expr);
// The broadcast of that row as a HaloExchange whose lists of parts (`needs`, `messages`, `kept`) are empty. Nothing if it does not give
// every rank its part of the result.
[[nodiscard]] std::optional<HaloExchange> rowBroadcast(const Expr* expr);

}  // namespace meshfuse
