// Ops that a pass adds with the sharding of their operands: the axes of the operands propagate to the result.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"
#include "preseg_passes/dim_blocks.h"

namespace meshfuse {

class PlacedOps {
 public:
  PlacedOps(Fusion& fusion, const DeviceMesh& mesh) : fusion_(fusion), mesh_(mesh) {}

  // Operands are scalars and tensors with equally many dims, which may be stretched. The type is that of the last tensor unless given.
  TensorView* point(PointOp op, const std::vector<Val*>& operands, std::optional<DataType> type = std::nullopt);
  TensorView* number(PointOp op, TensorView* tv, ScalarConst with);
  TensorView* where(TensorView* condition, TensorView* tv, Val* otherwise);
  TensorView* sum(TensorView* tv, const std::vector<bool>& reduced) { return reduce(tv, reduced, ReduceOp::Sum); }
  TensorView* reduce(TensorView* tv, const std::vector<bool>& reduced, ReduceOp op);
  TensorView* broadcast(TensorView* tv, const std::vector<bool>& isNew);
  TensorView* cast(TensorView* tv, DataType type);
  // The second has the sharding `dim`; the first is whole.
  TensorView* iota(const IntExpr& length, const IntExpr& start, const IntExpr& step);
  TensorView* iota(const IntExpr& length, const IntExpr& start, const IntExpr& step, const DigitList& dim);
  TensorView* reshape(TensorView* tv, const std::vector<IntExpr>& shape);
  TensorView* scan(TensorView* tv, int64_t dim, ReduceOp op);
  // One element of each line: the dim becomes a broadcast dim.
  TensorView* element(TensorView* tv, int64_t dim, const IntExpr& position);
  // The positions of the first `count` elements along a dim, in the order of `like`.
  TensorView* orderLike(const Expr& like, TensorView* tv, int64_t dim, const IntExpr& count);
  TensorView* takeAlongAxis(TensorView* table, TensorView* index, int64_t dim);
  // The blocks of a dim in place of the dim: [.., parts, length, ..], uneven ones filled at the end.
  TensorView* inBlocks(TensorView* tv, int64_t dim, const DimBlocks& blocks, ScalarConst fill);
  // From the result of inBlocks to the dim again.
  TensorView* outOfBlocks(TensorView* tv, int64_t dim, const DimBlocks& blocks, const ShardState& state);
  TensorView* moved(TensorView* tv, const ShardState& to);

  // True if no added op needs communication.
  [[nodiscard]] bool areLocal() const;
  // Removes all added ops.
  void remove();

 private:
  TensorView* padEnd(TensorView* tv, int64_t dim, const IntExpr& more, ScalarConst fill, const ShardState& state);
  // The result of an added op in this state.
  TensorView* placed(TensorView* out, const ShardState& state);
  // The result of an added op, which gets the axes of the operands.
  TensorView* placed(TensorView* out);

  Fusion& fusion_;
  const DeviceMesh mesh_;
  std::vector<Expr*> made_;
};

}  // namespace meshfuse
