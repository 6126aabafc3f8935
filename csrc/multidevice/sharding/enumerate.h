// The edge relation by enumeration: every index of a small result with constant sizes, every device. For what the digits of
// relation.h do not show: splits and merges that do not nest, windows that cut a digit.
#pragma once

#include <optional>

#include "multidevice/sharding/relation.h"

namespace meshfuse {

// Aligned or Local if no rank lacks anything it needs, else Comm; nullopt where a size is symbolic or large, a window has steps, or the
// producer is a partial sum. It gives no `needed` state: what reads the operand must be able to index it as it is.
[[nodiscard]] std::optional<EdgeRelation> enumerateEdge(const Expr* expr, int operand, const TensorView* result);

}  // namespace meshfuse
