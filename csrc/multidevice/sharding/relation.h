// The relation of an edge producer -> consumer: compares the part of the producer that a rank needs with the part that the rank holds.
//
//   Aligned   the rank holds exactly the elements that it needs
//   Local     the rank holds more elements: it takes a slice at device coordinates, without communication
//   Comm      the rank may lack elements
//
// Between two meshes the parts of every rank of the consumer's mesh are compared: {x: 4} and {a: 2, b: 2} of the same ranks can be aligned.
//
// The default is Comm; the other two are returned only when proved. A reduction over a sharded dim needs that dim whole: it is a
// Comm edge until a pass has made the result a partial sum.
//
// Sizes of dims and axes may be symbols. A proof then holds for every value of the symbols with which the program runs, whether or not axes
// divide dims, and also for dims of one element and of none. The proofs use the facts of size_facts.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

class Expr;
class ShardStateMemo;
class TensorView;

enum class EdgeRelation : uint8_t { Aligned, Local, Comm };
[[nodiscard]] std::string_view name(EdgeRelation relation);

struct Edge {
  EdgeRelation relation = EdgeRelation::Comm;
  std::string reason;  // for Comm: the digit without a proof, and why; for Local: the dim that is sliced
  ShardState held;     // the producer's state
  std::optional<ShardState>
      needed;  // in the producer's dims, on the consumer's mesh; absent if the consumer's digits are opaque
};

// Operand number `operand` is a tensor; `result` a tensor output of the expr.
[[nodiscard]] Edge edgeRelation(const Expr* expr, int64_t operand, const TensorView* result);
// The same; if all sizes are constants, the states of operand and result are taken from `states`, and equal ones are not compared.
[[nodiscard]] Edge edgeRelation(const Expr* expr, int64_t operand, const TensorView* result, ShardStateMemo& states);
// The same under the caller's facts, which may be more than the facts of the program.
[[nodiscard]] Edge edgeRelation(const Expr* expr, int64_t operand, const TensorView* result, const Prover& prover);

// The difference between `held` and `needed` on a rank.
[[nodiscard]] EdgeRelation compare(const ShardState& held, const ShardState& needed, std::string& reason,
                                   const Prover& prover = {});

// True if some edge of the expr is Comm.
[[nodiscard]] bool isResharding(const Expr* expr);
// True if the edge from producer to consumer is Comm. If no expr reads the producer and writes the consumer: the answer for consumer =
// set(producer).
[[nodiscard]] bool haveDifferentShardings(const TensorView* producer, const TensorView* consumer);
// The tensors of `tvs` whose sharding differs from that of `ref` in some dim.
[[nodiscard]] std::vector<TensorView*> getTvsWithDifferentSharding(const TensorView* ref,
                                                                   const std::vector<TensorView*>& tvs);

}  // namespace meshfuse
