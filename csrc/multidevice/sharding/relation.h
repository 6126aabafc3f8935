// The relation of an edge producer -> consumer: what a rank needs of the producer against what it holds.
//
//   Aligned   the rank holds exactly what it needs
//   Local     it holds more: an index map with device coordinates in it, no communication
//   Comm      it may lack something
//
// The default is Comm; the other two are returned only when proved. A reduction over a sharded dim needs that dim whole: it is a
// Comm edge until it has been made a partial sum.
//
// Sizes may be symbols, of dims and of axes. What is proved then holds for every value of the symbols with which the program runs: where
// axes divide dims and where they do not, for dims of one element and of none. What size_facts.h says of the symbols is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

class Expr;
class TensorView;

enum class EdgeRelation : uint8_t { Aligned, Local, Comm };
[[nodiscard]] std::string_view name(EdgeRelation relation);

struct Edge {
  EdgeRelation relation = EdgeRelation::Comm;
  std::string reason;  // for Comm: which digit failed and why; for Local: what is sliced
  ShardState held;     // the producer's state
  std::optional<ShardState>
      needed;  // in the producer's dims, on the consumer's mesh; absent if the consumer's digits are opaque
};

// Operand number `operand` is a tensor; `result` a tensor output of the expr.
[[nodiscard]] Edge edgeRelation(const Expr* expr, int operand, const TensorView* result);
// The same under facts of the caller, which may be more than the program's own.
[[nodiscard]] Edge edgeRelation(const Expr* expr, int operand, const TensorView* result, const Prover& prover);

// What a rank that holds `held` lacks of `needed`.
[[nodiscard]] EdgeRelation compare(const ShardState& held, const ShardState& needed, std::string& reason,
                                   const Prover& prover = {});

// Some edge of the expr is Comm.
[[nodiscard]] bool isResharding(const Expr* expr);
// The edge from producer to consumer, an operand and a result of one expr, is Comm. Otherwise: as if consumer = set(producer).
[[nodiscard]] bool haveDifferentShardings(const TensorView* producer, const TensorView* consumer);
// Those of `tvs` whose sharding is not that of `ref`, dim by dim.
[[nodiscard]] std::vector<TensorView*> getTvsWithDifferentSharding(const TensorView* ref,
                                                                   const std::vector<TensorView*>& tvs);

}  // namespace meshfuse
