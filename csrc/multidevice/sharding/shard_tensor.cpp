#include "multidevice/sharding/shard_tensor.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/error.h"
#include "base/rounding.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

namespace {

// An even part inside the whole tensor.
struct EvenPart {
  Tensor places;                    // one dim for each local digit
  std::vector<int64_t> localShape;  // one size for each dim
};

EvenPart evenPart(const Tensor& whole, const ShardState& state, int64_t rank) {
  const std::vector<int64_t> coordinates = state.mesh.coordinates(rank);
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  std::vector<int64_t> localShape;
  int64_t offset = 0;
  for (int64_t k = 0; k < std::ssize(state.dims); k++) {
    int64_t& local = localShape.emplace_back(1);
    for (const Digit& d : state.dims[k].digits()) {
      const int64_t size = d.size.constValue();
      const int64_t step = d.stride.constValue() * whole.strides()[k];
      if (d.owner.isDevice()) {
        offset += coordinates[d.owner.axis] / d.owner.below.constValue() % size * step;
      } else {
        sizes.push_back(size);
        strides.push_back(step);
        local *= size;
      }
    }
  }
  return {whole.asStrided(sizes, strides, offset), std::move(localShape)};
}

// Copies the elements of an uneven part run by run; `copy(part, places)` gets a run of the part and its positions in the whole tensor.
void forEachRun(const Tensor& part, const Tensor& whole, const Part& held,
                const std::function<void(Tensor part, Tensor places)>& copy, int64_t dim = 0) {
  if (dim == part.dim()) {
    copy(part, whole);
    return;
  }
  int64_t at = 0;
  for (const IndexRun& r : held.dims[dim]) {
    forEachRun(part.slice(dim, at, at + r.count), whole.slice(dim, r.start, r.last() + 1, r.step), held, copy, dim + 1);
    at += r.count;
  }
}

// The state of `tv` for a global tensor of this shape.
ShardState stateFor(const TensorView* tv, std::span<const int64_t> shape) {
  const std::vector<IntExpr> extents = tv->shape();
  check(shape.size() == extents.size(), "[shardTensor] {} has {} dims, the tensor {}; give the whole tensor",
        tv->toString(), extents.size(), shape.size());
  Fusion scratch;
  FusionCloner cloner(tv->fusion(), scratch, [&](const IntExpr& e) {
    return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
      const auto names = [&](const IntExpr& extent) { return extent.isSymbol() && extent.symbolName() == symbol; };
      const auto dim = std::ranges::find_if(extents, names);
      return dim == extents.end() ? std::nullopt : std::optional<IntExpr>(shape[dim - extents.begin()]);
    });
  });
  const TensorView* bound = cloner.clone(tv);
  for (const LoopTransform& t : bound->loopTransforms()) {
    for (const IntExpr& size : t.sizes) {
      check(
          size.isConst(),
          "[shardTensor] a part of {} has the size {}, which is known only at run time; slice the tensor for each rank",
          tv->toString(), size.toString());
    }
  }
  const ShardState state = shardState(bound);
  for (int64_t k = 0; k < std::ssize(shape); k++) {
    check(bound->shape()[k].isConst(shape[k]),
          "[shardTensor] dim {} of {} is {}, the tensor has {}; give the whole tensor", k, tv->toString(),
          extents[k].toString(), shape[k]);
    check(!state.dims[k].isOpaque(),
          "[shardTensor] the splits of dim {} of {} (size {}) do not nest, so it has no parts that can be cut; bind "
          "one split of the dim to each mesh axis",
          k, tv->toString(), shape[k]);
  }
  return state;
}

Tensor part(const Tensor& tensor, const ShardState& state, int64_t rank) {
  check(state.mesh.contains(rank), "[shardTensor] rank {} is not in mesh {}; only its ranks hold parts", rank,
        state.mesh.toString());
  if (!isRagged(state)) {
    const EvenPart even = evenPart(tensor, state, rank);
    return even.places.contiguous().view(even.localShape);
  }
  const Part held = heldPart(state, rank);
  Tensor out = Tensor::empty(held.sizes(), tensor.dtype(), tensor.device());
  forEachRun(out, tensor, held, [](Tensor mine, const Tensor& places) { mine.copyFrom(places); });
  return out.withGlobalShape({tensor.sizes().begin(), tensor.sizes().end()});
}

// UserError if part k of a whole tensor has other sizes than these.
void checkSizes(const Tensor& part, int64_t k, std::span<const int64_t> sizes) {
  for (int64_t d = 0; d < std::ssize(sizes); d++) {
    check(part.sizes()[d] == sizes[d],
          "[unshardTensor] part {} has {} elements along dim {}, expected {}; give the parts in the order of the mesh",
          k, part.sizes()[d], d, sizes[d]);
  }
}

// For each dim, the sum over the devices that differ only in the axes, or parts of axes, that own the dim.
std::vector<int64_t> wholeShape(std::span<const Tensor> parts, const TensorView* tv) {
  const DeviceMesh& mesh = tv->getDeviceMesh();
  // Which axes own a dim does not depend on its size.
  const ShardState state = stateFor(tv, globalShape(tv, parts[0].sizes()));
  std::vector<int64_t> shape(parts[0].sizes().begin(), parts[0].sizes().end());
  for (int64_t d = 0; d < std::ssize(shape); d++) {
    if (!state.dims[d].hasOwned()) {
      continue;
    }
    shape[d] = 0;
    for (int64_t k = 0; k < std::ssize(parts); k++) {
      const std::vector<int64_t> at = mesh.coordinates(mesh.devices()[k]);
      std::vector<int64_t> others = at;  // without the digits of coordinates that belong to this dim
      for (const Digit& digit : state.dims[d].digits()) {
        if (digit.owner.isDevice()) {
          const int64_t below = digit.owner.below.constValue();
          others[digit.owner.axis] -= at[digit.owner.axis] / below % digit.size.constValue() * below;
        }
      }
      const bool counts = std::ranges::all_of(others, [](int64_t rest) { return rest == 0; });
      shape[d] += counts ? parts[k].size(d) : 0;
    }
  }
  return shape;
}

}  // namespace

Tensor shardTensor(const Tensor& tensor, int64_t axis, const DeviceMesh& mesh, int64_t rank) {
  check(axis >= -tensor.dim() && axis < tensor.dim(),
        "[shardTensor] got axis {} of a tensor with {} dims, expected {} to {}", axis, tensor.dim(), -tensor.dim(),
        tensor.dim() - 1);
  const int64_t dim = axis < 0 ? axis + tensor.dim() : axis;
  const int64_t meshAxis = mesh.numAxes() - 1;
  const int64_t n = mesh.axisSize(meshAxis).constValue();
  const int64_t extent = tensor.size(dim);
  const int64_t block = std::max<int64_t>(1, divideUp(extent, n));
  ShardState state = ShardState::replicated(mesh, std::vector<IntExpr>(tensor.sizes().begin(), tensor.sizes().end()));
  state.dims[dim] = fillLocal(dim, extent, {{dim, block, n, Owner::device(meshAxis)}});
  return part(tensor, state, rank);
}

Tensor shardTensor(const Tensor& tensor, const TensorView* tv, int64_t rank) {
  if (!tv->hasDeviceMesh()) {
    return tensor;
  }
  const ShardState state = stateFor(tv, tensor.sizes());
  if (!holds(state.mesh, rank)) {
    Tensor nothing = Tensor::empty(shapeOfNothing(tensor.sizes().size()), tensor.dtype(), tensor.device());
    return tensor.dim() == 0 ? nothing : nothing.withGlobalShape({tensor.sizes().begin(), tensor.sizes().end()});
  }
  return part(tensor, state, rank);
}

Tensor unshardTensor(std::span<const Tensor> parts, const TensorView* tv) {
  check(!parts.empty(), "[unshardTensor] got no parts; give one for each device of the mesh");
  if (!tv->hasDeviceMesh()) {
    return parts[0];
  }
  const DeviceMesh& mesh = tv->getDeviceMesh();
  check(std::ssize(parts) == mesh.numDevices(),
        "[unshardTensor] got {} parts for mesh {}; expected one for each device", parts.size(), mesh.toString());
  const int64_t dims = std::ssize(tv->shape());
  for (int64_t k = 0; k < std::ssize(parts); k++) {
    check(parts[k].dim() == dims, "[unshardTensor] part {} has {} dims, expected {}: those of {}", k, parts[k].dim(),
          dims, tv->toString());
  }
  const std::vector<int64_t> shape = wholeShape(parts, tv);
  const ShardState state = stateFor(tv, shape);
  Tensor whole = Tensor::empty(shape, parts[0].dtype(), DeviceId::cpu());
  for (int64_t k = 0; k < std::ssize(parts); k++) {
    const Tensor given = parts[k].to(DeviceId::cpu());
    const int64_t rank = mesh.devices()[k];
    if (!isRagged(state)) {
      EvenPart even = evenPart(whole, state, rank);
      checkSizes(given, k, even.localShape);
      even.places.copyFrom(given.contiguous().view({even.places.sizes().begin(), even.places.sizes().end()}));
      continue;
    }
    const Part held = heldPart(state, rank);
    checkSizes(given, k, held.sizes());
    forEachRun(given, whole, held, [](const Tensor& part, Tensor places) { places.copyFrom(part); });
  }
  return whole.to(parts[0].device());
}

}  // namespace meshfuse
