#include "multidevice/sharding/coordinates.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

bool agree(const DeviceMesh& a, int64_t axisOfA, const DeviceMesh& b, int64_t axisOfB) {
  return a.axisSize(axisOfA) == b.axisSize(axisOfB) && std::ranges::all_of(a.devices(), [&](int64_t rank) {
           return !b.contains(rank) || a.coordinates(rank)[axisOfA] == b.coordinates(rank)[axisOfB];
         });
}

}  // namespace

CoordinateSymbols::CoordinateSymbols(const Fusion& global) {
  for (const TensorView* tv : global.tensors()) {
    if (tv->hasDeviceMesh() && !contains(meshes_, tv->getDeviceMesh())) {
      meshes_.push_back(tv->getDeviceMesh());
    }
  }
  std::map<std::string, int64_t> used;
  for (int64_t m = 0; m < std::ssize(meshes_); m++) {
    const DeviceMesh& mesh = meshes_[m];
    for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
      const std::string plain = "coord." + mesh.axisName(axis);
      auto known = std::ranges::find_if(symbols_, [&](const Symbol& s) {
        return std::ranges::all_of(s.axes, [&](const Axis& other) {
          const DeviceMesh& there = meshes_[other.mesh];
          return there.axisName(other.axis) == mesh.axisName(axis) && agree(there, other.axis, mesh, axis);
        });
      });
      if (known == symbols_.end()) {
        const int64_t number = used[plain]++;
        symbols_.push_back({number == 0 ? plain : fmt::format("{}.{}", plain, number), {}});
        known = symbols_.end() - 1;
      }
      known->axes.push_back({m, axis});
    }
  }
}

IntExpr CoordinateSymbols::of(const DeviceMesh& mesh, int64_t axis) const {
  for (const Symbol& s : symbols_) {
    for (const Axis& a : s.axes) {
      if (a.axis == axis && meshes_[a.mesh] == mesh) {
        return IntExpr::symbol(s.name, {.lower = 0, .upper = mesh.axisSize(axis).constValue() - 1});
      }
    }
  }
  throwInternalError(fmt::format("[localize] no tensor of the program is on mesh {}", mesh.toString()));
}

IntExpr CoordinateSymbols::of(const DeviceMesh& mesh, const AtomOrigin& origin, int64_t size) const {
  return mod(floorDiv(of(mesh, origin.axis), origin.below), size);
}

std::map<std::string, int64_t, std::less<>> CoordinateSymbols::valuesOn(int64_t rank) const {
  std::map<std::string, int64_t, std::less<>> values;
  for (const Symbol& s : symbols_) {
    for (const Axis& a : s.axes) {
      if (meshes_[a.mesh].contains(rank)) {
        values[s.name] = meshes_[a.mesh].coordinates(rank)[a.axis];
      }
    }
  }
  return values;
}

}  // namespace meshfuse
