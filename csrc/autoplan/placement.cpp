#include "autoplan/placement.h"

#include <algorithm>

#include "base/ranges.h"
#include "base/rounding.h"

namespace meshfuse {

namespace {

// By dim, the number of blocks.
Sizes blocksOf(const Placement& placement, const Sizes& shape, const Sizes& axes) {
  Sizes blocks(shape.size(), 1);
  for (int64_t axis = 0; axis < std::ssize(placement); axis++) {
    if (placement[axis] != kUncut) {
      blocks[placement[axis]] *= axes[axis];
    }
  }
  return blocks;
}

}  // namespace

bool fits(const Placement& placement, const Sizes& shape, const Sizes& axes, Division division) {
  const Sizes counts = blocksOf(placement, shape, axes);
  return std::ranges::all_of(indices(shape), [&](int64_t dim) {
    const int64_t n = counts[dim];
    const int64_t extent = shape[dim];
    return n == 1 || (extent >= n && extent % n == 0) ||
           (division == Division::Uneven && divideUp(extent, n) * (n - 1) < extent);
  });
}

std::vector<Placement> placementsOf(const Sizes& shape, const Sizes& axes, Division division) {
  std::vector<Placement> all{Placement(axes.size(), kUncut)};
  for (int64_t axis = 0; axis < std::ssize(axes); axis++) {
    std::vector<Placement> longer;
    for (const Placement& shorter : all) {
      for (int64_t dim = kUncut; dim < std::ssize(shape); dim++) {
        Placement next = shorter;
        next[axis] = static_cast<int8_t>(dim);
        if (fits(next, shape, axes, division)) {
          longer.push_back(std::move(next));
        }
      }
    }
    all = std::move(longer);
  }
  return all;
}

double localElements(const Placement& placement, const Sizes& shape, const Sizes& axes) {
  const Sizes counts = blocksOf(placement, shape, axes);
  double elements = 1;
  for (int64_t dim = 0; dim < std::ssize(shape); dim++) {
    elements *= static_cast<double>(divideUp(shape[dim], counts[dim]));
  }
  return elements;
}

ShardState stateOf(const Placement& placement, const Sizes& shape, const DeviceMesh& mesh) {
  ShardState state{mesh, {}, {}};
  const Sizes axes = mesh.axisSizes();
  const Sizes counts = blocksOf(placement, shape, axes);
  for (int64_t dim = 0; dim < std::ssize(shape); dim++) {
    std::vector<Digit> owned;
    int64_t stride = std::max<int64_t>(1, divideUp(shape[dim], counts[dim]));
    for (int64_t axis = std::ssize(axes) - 1; axis >= 0; axis--) {
      if (placement[axis] == dim && axes[axis] > 1) {
        owned.push_back({dim, stride, axes[axis], Owner::device(axis)});
        stride *= axes[axis];
      }
    }
    state.dims.push_back(owned.empty() ? DigitList::whole(dim, shape[dim]) : fillRagged(dim, shape[dim], owned));
  }
  return state;
}

std::optional<Placement> placementOf(const ShardState& state) {
  if (!state.isConstant() || !state.partial.empty()) {
    return std::nullopt;
  }
  Placement placement(state.mesh.numAxes(), kUncut);
  for (int64_t dim = 0; dim < std::ssize(state.dims); dim++) {
    for (const Digit& d : state.dims[dim].digits()) {
      if (d.owner.isDevice()) {
        placement.at(d.owner.axis) = static_cast<int8_t>(dim);
      }
    }
  }
  const bool isSame = provenEqual(stateOf(placement, state.constantShape(), state.mesh), state);
  return isSame ? std::optional(placement) : std::nullopt;
}

}  // namespace meshfuse
