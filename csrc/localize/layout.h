// Moving digits inside one rank: slices at coordinates, packs and unpacks.
#pragma once

#include <vector>

#include "ir/fusion.h"
#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/coordinates.h"
#include "multidevice/sharding/local_indices.h"
#include "ops/add_view.h"

namespace meshfuse {

// Whose program is written: a rank, and the symbols that stand for its coordinates where all ranks have one program.
struct LocalRank {
  int64_t rank = 0;
  const CoordinateSymbols* coordinates = nullptr;
};

// What a rank holds at a state of a plan with even parts.
[[nodiscard]] std::vector<int64_t> localShape(const PlanState& state);

// A dim of a local tensor. As everywhere, a stored dim of one element is a broadcast dim: that it is a part of a longer one has
// no meaning on a rank.
[[nodiscard]] Dim localDim(const IntExpr& extent, IterType globalType);
// Zero, or false, of a type.
[[nodiscard]] Val* zeroOf(Fusion& local, DataType dtype);

// `in` read as [pieces..], which its dims regroup; the pieces in `order`, regrouped to `shape`. At most one permute.
[[nodiscard]] TensorView* rearrange(TensorView* in, const std::vector<int64_t>& pieces, const std::vector<int>& order,
                                    const std::vector<int64_t>& shape);

// The part of `in` (a local tensor at `before`) that is left at `after`, which owns more: coordinates[atom] are index
// expressions.
[[nodiscard]] TensorView* sliceOwned(TensorView* in, const PlanState& before, const PlanState& after,
                                     const std::vector<IntExpr>& coordinates);

// The elements at these positions of each dim: a slice, or slices put together.
[[nodiscard]] TensorView* takeBlock(TensorView* in, const IndexBlock& positions);

// Extents of what `rank` holds. Where parts are uneven they are those of this rank, else the same on all.
[[nodiscard]] std::vector<IntExpr> localExtents(const ShardState& state, int64_t rank);

// A tensor without elements, in place of one of so many dims that is on other ranks, or of the given sizes.
[[nodiscard]] TensorView* nothing(Fusion& local, DataType dtype, const std::vector<int64_t>& sizes);

// What all ranks of a program agree on about a tensor that a plan moves.
struct MovedTensor {
  DataType dtype;
  std::vector<int64_t> extents;  // of the whole
  ReduceOp reduce;               // combines partial sums
  int64_t number;                // of the step among all communications
};

// All ops of one step of a plan on the local tensor, null where the rank holds nothing; null if it holds nothing afterwards. A step
// in which ranks hold parts of different sizes, or send directly, is one of the program of `rank`, all others are the same on
// every rank that takes part.
[[nodiscard]] TensorView* emitStep(Fusion& local, TensorView* in, const CommStep& step, const MovedTensor& moved,
                                   const LocalRank& at);
// The same of a direct transfer.
[[nodiscard]] TensorView* emitTransfer(Fusion& local, TensorView* in, const CommStep& step, const MovedTensor& moved,
                                       int64_t rank);

// The collectives made since the expr number `first`, all of the same kind, become one on their operands side by side; each of
// `results` that was one of theirs is what is cut of the result for it.
void packCommunications(Fusion& local, int first, std::vector<TensorView*>& results);

}  // namespace meshfuse
