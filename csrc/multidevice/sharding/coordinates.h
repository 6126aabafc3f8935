// The symbols that stand for a rank's coordinates in its local program.
//
//   coord.x      the place on axis x
//   coord.x.1    the place on axis x of another mesh, on which some rank of both stands elsewhere, or whose x has another size
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
  // Of all meshes of a fusion over global shapes.
  explicit CoordinateSymbols(const Fusion& global);

  // The coordinate on an axis of one of these meshes: 0 .. size - 1.
  [[nodiscard]] IntExpr of(const DeviceMesh& mesh, int axis) const;
  // On an atom of a refinement of the mesh.
  [[nodiscard]] IntExpr of(const DeviceMesh& mesh, const AtomOrigin& origin, int64_t size) const;
  // What the symbols are on a rank, on all meshes that it is in.
  [[nodiscard]] std::map<std::string, int64_t, std::less<>> valuesOn(int64_t rank) const;

 private:
  struct Axis {
    size_t mesh;
    int axis;
  };
  struct Symbol {
    std::string name;
    std::vector<Axis> axes;  // on which no rank has two places
  };

  std::vector<DeviceMesh> meshes_;
  std::vector<Symbol> symbols_;
};

}  // namespace meshfuse
