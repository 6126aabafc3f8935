// The edge relation by enumeration of every index of a small result with constant sizes, on every device. It covers the cases that the
// digits of relation.h cannot prove: splits and merges that do not nest, windows that cut a digit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "multidevice/sharding/relation.h"

namespace meshfuse {

// Aligned or Local if every rank holds the elements that it needs, else Comm; nullopt if a size is symbolic or large, a window has steps, or
// the producer is a partial sum. It returns no `needed` state, so the reader must be able to index the operand as it is.
[[nodiscard]] std::optional<EdgeRelation> enumerateEdge(const Expr* expr, int operand, const TensorView* result);

[[nodiscard]] int64_t product(const std::vector<int64_t>& sizes);
// The index of an element from its row-major number.
[[nodiscard]] std::vector<int64_t> unflatten(int64_t flat, const std::vector<int64_t>& sizes);

}  // namespace meshfuse
