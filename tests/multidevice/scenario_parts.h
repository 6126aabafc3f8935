// What scenarios are written with: one axis, annotated outputs, and the bytes that collectives move.
#pragma once

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/scenario.h"

namespace meshfuse {

// The least multiple of n that is not below size: n ranks have equal parts of it.
inline int64_t multipleOf(int64_t n, int64_t size) { return (size + n - 1) / n * n; }

inline DeviceMesh axisX(int64_t n) { return DeviceMesh::create({{"x", n}}); }

// An output with its own annotation: whole on the mesh.
inline TensorView* output(Fusion& f, TensorView* tv, const DeviceMesh& mesh) {
  f.addOutput(tv);
  tv->setDeviceMesh(mesh);
  return tv;
}

// What a rank receives of an all-reduce of `elements` among n.
inline int64_t allReduceBytes(int64_t elements, int64_t n, int64_t size = 4) {
  return 2 * elements * size * (n - 1) / n;
}

}  // namespace meshfuse
