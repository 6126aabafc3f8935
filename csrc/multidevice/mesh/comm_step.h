// CommStep: one step of a redistribution plan, as data. Peers, counts and bytes follow from it and the extents of the tensor.
//
//   mesh {x: 2}, T[8, 6]    all_gather(x)  [2:x 4, 6] -> [8, 6]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "multidevice/mesh/collective.h"
#include "multidevice/mesh/device_mesh.h"
#include "multidevice/mesh/plan_state.h"

namespace meshfuse {

// A mesh in which some axes are cut into parts, the atoms. It has the devices of the original mesh, in the same order.
struct RefinedMesh {
  DeviceMesh mesh;                  // of the tensor
  DeviceMesh atoms;                 // its axes are the atoms
  std::vector<AtomOrigin> origins;  // by atom

  static RefinedMesh whole(const DeviceMesh& mesh);  // each axis is an atom
  // cuts: for each axis the sizes of the inner parts, ascending from 1 to the size of the axis; each divides the next. An axis x that is
  // cut at 2 becomes x_2, the outer part, and x_1, the inner part.
  static RefinedMesh cut(const DeviceMesh& mesh, const std::vector<std::vector<int64_t>>& cuts);
  friend bool operator==(const RefinedMesh&, const RefinedMesh&) = default;
};

struct CommStep {
  // Local: a rank keeps a part of its elements; or, if `after` is a partial sum and `before` is not, its contribution to the sum.
  Collective kind = Collective::Local;
  RefinedMesh on;
  std::vector<int64_t> axes;  // the team: atoms, ascending
  PlanState before;
  PlanState after;
  // Transfer as a permutation: for each device of the mesh (row-major) the position of the device that sends its whole part to it.
  std::vector<int64_t> sources;
  // Set for a direct transfer that is no permutation: the mesh of `after`, which may differ from the mesh of `before`. Each rank receives
  // the elements of its new part that it lacks.
  std::optional<RefinedMesh> to;

  bool communicates() const { return kind != Collective::Local; }
  std::string toString() const;  // all_gather(x)
  friend bool operator==(const CommStep&, const CommStep&) = default;
};

// slice, permute, transfer, all_gather, ...: the first word of toString().
[[nodiscard]] std::string_view verbOf(const CommStep& step);
// Whether all ranks of the team exchange blocks of one size, on a tensor of these extents.
[[nodiscard]] bool isEven(const CommStep& step, const std::vector<int64_t>& extents);

}  // namespace meshfuse
