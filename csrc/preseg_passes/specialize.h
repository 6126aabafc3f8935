// specialize: replaces symbolic sizes of mesh axes by numbers.
//
//   mesh M0 {tp: tp} []          T0 : Float[512, 128] mesh M0 outer_split(0, tp) parallelize(0, DIDx)         sizes tp=4
//   mesh M0 {tp: 4} [0, 1, 2, 3] T0 : Float[512, 128] mesh M0 outer_split(0, 4) parallelize(0, DIDx)
//
// Copies a fusion after or before propagate-shardings; tensors keep their numbers. The size replaces the symbol in splits, extents and
// operands. Shardings do not change, so one propagation is enough for all sizes. If a size does not divide a dim that its axis cuts, the same
// split makes uneven parts. A tensor that propagation placed becomes whole on every rank if no digits describe its parts (docs/sharding.md:
// opaque). The following passes plan for the sizes; an axis of size 1 owns no digits in them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "multidevice/mesh/device_mesh.h"

namespace meshfuse {

class Fusion;

// Names of mesh axes whose sizes are symbols, in order of appearance.
[[nodiscard]] std::vector<std::string> openAxes(const Fusion& fusion);

// Before: every symbolic axis has a size in `sizes`. UserError otherwise, on a name that no axis has, on one with another size, and on
// a size below 1. After: no mesh is symbolic. `asWritten`: the fusion before propagation, which shows the tensors that propagation
// placed; without it, these are taken to be all tensors except inputs and outputs.
[[nodiscard]] std::unique_ptr<Fusion> specialize(const Fusion& fusion, const MeshSizes& sizes,
                                                 const Fusion* asWritten = nullptr);

// `given`, and for each mesh with one axis without a size, the size that gives the mesh `ranks` ranks. UserError if that size is not an
// integer, or if more than one axis has no size.
[[nodiscard]] MeshSizes sizesForRanks(const Fusion& fusion, int64_t ranks, const MeshSizes& given = {});

}  // namespace meshfuse
