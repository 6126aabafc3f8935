// Ops that a pass adds with the sharding of their operands: the axes of the operands propagate to the result.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

class PlacedOps {
 public:
  PlacedOps(Fusion& fusion, const DeviceMesh& mesh) : fusion_(fusion), mesh_(mesh) {}

  // Operands are scalars and tensors with equally many dims, which may be stretched. The type is that of the last tensor unless given.
  TensorView* point(PointOp op, const std::vector<Val*>& operands, std::optional<DataType> type = std::nullopt);
  TensorView* number(PointOp op, TensorView* tv, ScalarConst with);
  TensorView* sum(TensorView* tv, const std::vector<bool>& reduced);
  TensorView* broadcast(TensorView* tv, const std::vector<bool>& isNew);
  TensorView* cast(TensorView* tv, DataType type);
  TensorView* iota(int64_t length, int64_t start, int64_t step);
  TensorView* reshape(TensorView* tv, const std::vector<IntExpr>& shape);
  // Zeros at the end of a dim; `state` is the sharding of the result.
  TensorView* padEnd(TensorView* tv, int64_t dim, int64_t more, const ShardState& state);
  TensorView* moved(TensorView* tv, const ShardState& to);

  // True if no added op needs communication.
  [[nodiscard]] bool areLocal() const;
  // Removes all added ops.
  void remove();

 private:
  // The result of an added op, which gets the axes of the operands.
  TensorView* placed(TensorView* out);

  Fusion& fusion_;
  const DeviceMesh mesh_;
  std::vector<Expr*> made_;
};

}  // namespace meshfuse
