#include "multidevice/sharding/shard_tensor.h"

#include <vector>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

namespace {

// The elements of a part inside the whole: one dim a local digit.
struct PartView {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  std::vector<int64_t> localShape;
};

PartView viewOf(const Tensor& whole, const ShardState& state, const std::vector<int64_t>& coordinates) {
  PartView view;
  for (size_t k = 0; k < state.dims.size(); k++) {
    const int64_t stride = whole.strides()[k];
    int64_t local = 1;
    for (const Digit& d : state.dims[k].digits()) {
      const int64_t size = d.size.constValue();
      const int64_t step = d.stride.constValue() * stride;
      if (d.owner.isDevice()) {
        view.offset += coordinates[d.owner.axis] / d.owner.below.constValue() % size * step;
      } else {
        view.sizes.push_back(size);
        view.strides.push_back(step);
        local *= size;
      }
    }
    view.localShape.push_back(local);
  }
  return view;
}

// The state of `tv` for a global tensor of this shape.
ShardState stateFor(const TensorView* tv, std::span<const int64_t> shape) {
  const std::vector<IntExpr> extents = tv->shape();
  check(shape.size() == extents.size(), "[shardTensor] {} has {} dims, the tensor {}; give the whole tensor",
        tv->toString(), extents.size(), shape.size());
  Fusion scratch;
  FusionCloner cloner(tv->fusion(), scratch, [&](const IntExpr& e) {
    return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
      for (size_t k = 0; k < extents.size(); k++) {
        if (extents[k].isSymbol() && extents[k].symbolName() == symbol) {
          return IntExpr(shape[k]);
        }
      }
      return std::nullopt;
    });
  });
  const TensorView* bound = cloner.clone(tv);
  const ShardState state = shardState(bound);
  for (size_t k = 0; k < shape.size(); k++) {
    check(bound->shape()[k].isConst(shape[k]),
          "[shardTensor] dim {} of {} is {}, the tensor has {}; give the whole tensor", k, tv->toString(),
          extents[k].toString(), shape[k]);
    check(!state.dims[k].isOpaque(),
          "[shardTensor] dim {} of {} has {} elements, which its axes do not divide; pad it or choose another mesh", k,
          tv->toString(), shape[k]);
  }
  return state;
}

Tensor part(const Tensor& tensor, const ShardState& state, int64_t rank) {
  check(state.mesh.contains(rank), "[shardTensor] rank {} is not in mesh {}; only its ranks hold parts", rank,
        state.mesh.toString());
  const PartView view = viewOf(tensor, state, state.mesh.coordinates(rank));
  return tensor.asStrided(view.sizes, view.strides, view.offset).contiguous().view(view.localShape);
}

}  // namespace

Tensor shardTensor(const Tensor& tensor, int64_t axis, const DeviceMesh& mesh, int64_t rank) {
  check(axis >= -tensor.dim() && axis < tensor.dim(), "[shardTensor] axis {} of a tensor with {} dims", axis,
        tensor.dim());
  const int dim = static_cast<int>(axis < 0 ? axis + tensor.dim() : axis);
  const int meshAxis = mesh.numAxes() - 1;
  const int64_t n = mesh.axisSize(meshAxis).constValue();
  const int64_t extent = tensor.size(dim);
  check(extent % n == 0,
        "[shardTensor] dim {} has {} elements, which axis {} of {} does not divide; pad it or choose another mesh", dim,
        extent, mesh.axisName(meshAxis), n);
  ShardState state = ShardState::replicated(mesh, std::vector<IntExpr>(tensor.sizes().begin(), tensor.sizes().end()));
  state.dims[dim] = fillLocal(dim, extent, {{dim, extent / n, n, Owner::device(meshAxis)}});
  return part(tensor, state, rank);
}

Tensor shardTensor(const Tensor& tensor, const TensorView* tv, int64_t rank) {
  return tv->hasDeviceMesh() ? part(tensor, stateFor(tv, tensor.sizes()), rank) : tensor;
}

Tensor unshardTensor(std::span<const Tensor> parts, const TensorView* tv) {
  check(!parts.empty(), "[unshardTensor] got no parts, expected one a device");
  if (!tv->hasDeviceMesh()) {
    return parts[0];
  }
  const DeviceMesh& mesh = tv->getDeviceMesh();
  check(static_cast<int64_t>(parts.size()) == mesh.numDevices(),
        "[unshardTensor] got {} parts for mesh {}; expected one a device", parts.size(), mesh.toString());
  std::vector<int64_t> shape = globalShape(tv, parts[0].sizes());
  const ShardState state = stateFor(tv, shape);
  Tensor whole = Tensor::empty(shape, parts[0].dtype());
  for (size_t k = 0; k < parts.size(); k++) {
    const PartView view = viewOf(whole, state, mesh.coordinates(mesh.devices()[k]));
    whole.asStrided(view.sizes, view.strides, view.offset).copyFrom(parts[k].contiguous().view(view.sizes));
  }
  return whole;
}

}  // namespace meshfuse
