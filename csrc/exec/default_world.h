// shardTensor and unshardTensor for the rank of this thread's default world.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace meshfuse {

class DeviceMesh;
class TensorView;

// This rank's shard of `tensor` when dim `axis` is split in blocks over the last axis of `mesh`. Errors as the form with a rank.
[[nodiscard]] Tensor shardTensor(const Tensor& tensor, int64_t axis, const DeviceMesh& mesh);
// This rank's shard under the sharding of `tv`.
[[nodiscard]] Tensor shardTensor(const Tensor& tensor, const TensorView* tv);
// The global tensor on every rank, from each rank's shard under the sharding of `tv`. Collective over the default world. UserError if a
// rank passes a tensor that is not its shard.
[[nodiscard]] Tensor unshardTensor(const Tensor& shard, const TensorView* tv);

}  // namespace meshfuse
