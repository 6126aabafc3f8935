// The sharding helpers for the rank of this thread's default world.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace meshfuse {

class DeviceMesh;
class TensorView;

// This rank's part of `tensor` when dim `axis` is cut in blocks over the last axis of `mesh`. Errors as the form with a rank.
[[nodiscard]] Tensor shardTensor(const Tensor& tensor, int64_t axis, const DeviceMesh& mesh);
// This rank's part under the sharding of `tv`.
[[nodiscard]] Tensor shardTensor(const Tensor& tensor, const TensorView* tv);
// The whole of which every rank holds its part under the sharding of `tv`, on every rank. Collective over the default world.
[[nodiscard]] Tensor unshardTensor(const Tensor& part, const TensorView* tv);

}  // namespace meshfuse
