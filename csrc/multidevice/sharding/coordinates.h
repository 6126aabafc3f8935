// The symbols that stand for a rank's coordinates in its local program.
//
//   coord.x      the coordinate on axis x
//   coord.x.1    the coordinate on axis x of another mesh, if some rank has different coordinates on the two, or if their sizes differ
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "digits/int_expr.h"
#include "multidevice/mesh/device_mesh.h"
#include "multidevice/mesh/plan_state.h"

namespace meshfuse {

class Fusion;

class CoordinateSymbols {
 public:
  // The symbols for all meshes of a fusion over global shapes.
  explicit CoordinateSymbols(const Fusion& global);

  // The coordinate on an axis of one of these meshes: 0 .. size - 1.
  [[nodiscard]] IntExpr of(const DeviceMesh& mesh, int64_t axis) const;
  // The coordinate on an atom of a refinement of the mesh.
  [[nodiscard]] IntExpr of(const DeviceMesh& mesh, const AtomOrigin& origin, int64_t size) const;
  // The values of the symbols on a rank, for all meshes that contain the rank.
  [[nodiscard]] std::map<std::string, int64_t, std::less<>> valuesOn(int64_t rank) const;

 private:
  struct Axis {
    int64_t mesh;
    int64_t axis;
  };
  struct Symbol {
    std::string name;
    std::vector<Axis> axes;  // each rank has the same coordinate on all of them
  };

  std::vector<DeviceMesh> meshes_;
  std::vector<Symbol> symbols_;
};

}  // namespace meshfuse
