// Cuts tensors with data into the parts of ranks, and joins parts.
#pragma once

#include <cstdint>
#include <span>

#include "multidevice/mesh/device_mesh.h"
#include "tensor/tensor.h"

namespace meshfuse {

class TensorView;

// If all parts are even, a part that is contiguous in the tensor (rows of a matrix) shares its memory. All other parts are copies. clone()
// the part, or the tensor, before either is written.

// The part of `tensor` that `rank` holds when dim `axis` (from the end when negative) is cut in blocks over the last mesh axis,
// contiguous. UserError if the rank is not in the mesh. Uneven parts have a global shape, see Tensor::withGlobalShape.
[[nodiscard]] Tensor shardTensor(const Tensor& tensor, int64_t axis, const DeviceMesh& mesh, int64_t rank);
[[nodiscard]] inline Tensor shardTensor1D(const Tensor& tensor, int64_t axis, const DeviceMesh& mesh, int64_t rank) {
  return shardTensor(tensor, axis, mesh, rank);  // nvFuser's name
}
// The part of `tensor` that `rank` holds under the sharding of `tv`. `tensor` has the global shape of `tv`, with any sizes for its symbols.
// The tensor itself if `tv` has no mesh; a tensor without elements, with a global shape, if the rank is not in the mesh. UserError if the
// tensor has another shape than `tv`, or if the parts of `tv` depend on values that are known only at run time.
[[nodiscard]] Tensor shardTensor(const Tensor& tensor, const TensorView* tv, int64_t rank);
// The whole tensor; parts[k] is the part that device number k of the mesh of `tv` holds (row-major). UserError unless there is one part for
// each device, each with the sizes that `tv` gives it.
[[nodiscard]] Tensor unshardTensor(std::span<const Tensor> parts, const TensorView* tv);

}  // namespace meshfuse
