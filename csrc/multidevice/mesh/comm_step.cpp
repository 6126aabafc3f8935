#include "multidevice/mesh/comm_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "base/ranges.h"

namespace meshfuse {

RefinedMesh RefinedMesh::whole(const DeviceMesh& mesh) {
  return {mesh, mesh, mapped(std::views::iota(int64_t{0}, mesh.numAxes()), [](int64_t axis) {
            return AtomOrigin{axis, 1};
          })};
}

namespace {

// x_2: the digit of axis x with stride 2.
std::string partName(const DeviceMesh& mesh, int64_t axis, int64_t below) {
  std::string name = fmt::format("{}_{}", mesh.axisName(axis), below);
  const auto hasName = [&](int64_t a) { return mesh.axisName(a) == name; };
  while (std::ranges::any_of(std::views::iota(int64_t{0}, mesh.numAxes()), hasName)) {
    name += "_";
  }
  return name;
}

}  // namespace

RefinedMesh RefinedMesh::cut(const DeviceMesh& mesh, const std::vector<std::vector<int64_t>>& cuts) {
  RefinedMesh refined{mesh, mesh, {}};
  std::vector<DeviceMesh::Axis> axes;
  for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
    const std::vector<int64_t>& at = cuts[axis];
    if (at.size() <= 2) {
      refined.origins.push_back({axis, 1});
      axes.emplace_back(mesh.axisName(axis), mesh.axisSize(axis).constValue());
      continue;
    }
    for (int64_t i = std::ssize(at) - 1; i > 0; i--) {
      refined.origins.push_back({axis, at[i - 1]});
      axes.emplace_back(partName(mesh, axis, at[i - 1]), at[i] / at[i - 1]);
    }
  }
  if (std::ssize(refined.origins) != mesh.numAxes()) {
    refined.atoms = DeviceMesh::create(axes, mesh.devices());
  }
  return refined;
}

std::string_view verbOf(const CommStep& step) {
  if (step.kind == Collective::Local) {
    return step.after.partial == step.before.partial ? "slice" : "to_partial";
  }
  return step.sources.empty() ? identifier(step.kind) : kPermute;
}

std::string CommStep::toString() const {
  if (to && on.atoms.devices() != to->atoms.devices()) {
    return fmt::format("transfer({} -> {})", on.atoms.toString(), to->atoms.toString());
  }
  // If the two sides have different atoms, the step prints the axes of the tensor instead.
  const bool byAxes = to && !(on.atoms == to->atoms);
  const std::string names = byAxes ? joined(std::views::iota(int64_t{0}, on.mesh.numAxes()), ", ",
                                            [&](int64_t axis) { return on.mesh.axisName(axis); })
                                   : joined(axes, ", ", [&](int64_t axis) { return on.atoms.axisName(axis); });
  return fmt::format("{}({})", verbOf(*this), names);
}

bool isEven(const CommStep& step, const std::vector<int64_t>& extents) {
  if (isUneven(step.before, extents) || isUneven(step.after, extents)) {
    return false;
  }
  // The new digits of the team are cut from local digits, so every pair of its ranks exchanges the same number of elements.
  if (!traits(step.kind).operandHasBlocks) {
    return true;
  }
  for (int64_t k = 0; k < std::ssize(step.after.dims); k++) {
    for (const PlanDigit& d : step.after.dims[k]) {
      const bool isNew = d.atom != kLocal && contains(step.axes, d.atom);
      if (isNew && !isCutFromLocal(d, step.before.dims[k])) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace meshfuse
