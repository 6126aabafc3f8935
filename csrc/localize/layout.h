// Moving digits inside one rank: slices at coordinates, packs and unpacks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/fusion.h"
#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/coordinates.h"
#include "multidevice/sharding/held_part.h"
#include "ops/add_view.h"

namespace meshfuse {

struct SizedDigit;

// The rank whose program is written, and the symbols for its coordinates if all ranks have one program.
struct LocalRank {
  int64_t rank = 0;
  const CoordinateSymbols* coordinates = nullptr;
};

// All indices of each dim.
[[nodiscard]] std::vector<SymbolicRun> wholeRuns(const TensorView* tv);
// The elements with these indices of each dim.
[[nodiscard]] TensorView* sliceRuns(TensorView* in, const std::vector<SymbolicRun>& runs);

// A dim of a local tensor. A stored dim of one element is a broadcast dim, even if it is a part of a longer global dim.
[[nodiscard]] Dim localDim(const IntExpr& extent, IterType globalType);
// Zero, or false, of a type.
[[nodiscard]] Val* zeroOf(Fusion& local, DataType dtype);

// Reshapes `in` to `pieces`, permutes the pieces to `order`, and reshapes the result to `shape`. At most one permute.
[[nodiscard]] TensorView* rearrange(TensorView* in, const std::vector<IntExpr>& pieces,
                                    const std::vector<int64_t>& order, const std::vector<IntExpr>& shape);

// The digits of a dim after a step that were local before it.
[[nodiscard]] std::vector<RankDigit> digitsIn(const PlanDim& before, const std::vector<SizedDigit>& after,
                                              const RefinedMesh& on, const LocalRank& at);
// The part of `in` that the rank keeps. Each dim consists of these digits; an owned one has its value on the rank. The parts are even.
[[nodiscard]] TensorView* sliceOwned(TensorView* in, const std::vector<std::vector<RankDigit>>& dims);

// The elements at these positions of each dim: a slice, or a concatenation of slices.
[[nodiscard]] TensorView* takePart(TensorView* in, const Part& positions);

// The part that the rank needs of `in`, its part of a tensor sharded as `held`. If a state has no mesh, every rank holds or needs the whole.
[[nodiscard]] TensorView* cut(TensorView* in, ShardState held, const ShardState& needed, const LocalRank& at);

// The dims of the part of `global`, sharded as `state`, on a rank that holds it. The extent of an even part is an expression of sizes.
[[nodiscard]] std::vector<Dim> localDims(const TensorView* global, const ShardState& state, int64_t rank);

// The dims of a tensor of these sizes.
[[nodiscard]] std::vector<Dim> localDims(const std::vector<int64_t>& sizes);
[[nodiscard]] std::vector<Dim> localDims(const std::vector<IntExpr>& sizes);
// A tensor of these sizes, some of them 0: the operand or result on a rank that holds no elements of a tensor.
[[nodiscard]] TensorView* nothing(Fusion& local, DataType dtype, const std::vector<int64_t>& sizes);

// The data of a redistribution that are the same on all ranks.
struct MovedTensor {
  DataType dtype;
  std::vector<IntExpr> extents;  // of the whole; constants if parts are uneven, or ranks send directly
  ReduceOp reduce;               // combines partial sums
  int64_t number;                // of the step among all communications
  const Fusion& program;         // the global program: its facts say which sizes are equal
};

// Emits all ops of one step of a plan on the local tensor and returns the result. The tensor is null if the rank holds no part before the
// step, the result if it holds no part after it. If parts have different sizes, or ranks send directly, the ops are for `rank` only; all
// other steps are the same on every rank that takes part.
[[nodiscard]] TensorView* emitStep(Fusion& local, TensorView* in, const CommStep& step, const MovedTensor& moved,
                                   const LocalRank& at);
// The same for a direct transfer.
[[nodiscard]] TensorView* emitTransfer(Fusion& local, TensorView* in, const CommStep& step, const MovedTensor& moved,
                                       int64_t rank);

// A direct exchange of parts between ranks, as one rank takes it.
struct PartExchange {
  DataType dtype;
  size_t dims;                      // of the tensor
  DeviceMesh mesh;                  // of the senders
  int64_t number;                   // among all communications
  std::optional<Part> held = {};    // the part of this rank; no value on a rank outside the mesh
  std::optional<Part> wanted = {};  // the part that this rank receives or keeps
  std::vector<PartMessage> messages = {};
};

// The tensor of the wanted part; null without one.
[[nodiscard]] TensorView* emitExchange(Fusion& local, TensorView* in, const PartExchange& exchange, int64_t rank);

// Replaces all collectives since expr number `first`, which have the same kind, by one collective on their operands side by side. Each of
// `results` that was the result of one of them becomes a part of the common result.
void packCommunications(Fusion& local, int64_t first, std::vector<TensorView*>& results);

}  // namespace meshfuse
