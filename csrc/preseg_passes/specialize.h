// specialize: sizes for mesh axes that have a symbol for one.
//
//   mesh M0 {tp: tp} []          T0 : Float[512, 128] mesh M0 outer_split(0, tp) parallelize(0, DIDx)         sizes tp=4
//   mesh M0 {tp: 4} [0, 1, 2, 3] T0 : Float[512, 128] mesh M0 outer_split(0, 4) parallelize(0, DIDx)
//
// A copy of a fusion after propagate-shardings, or before it, with the same numbers: the size takes the symbol's place wherever that
// stands, in splits, extents and operands. Shardings stay as they are, so one propagation serves every count. Where a size does not
// divide what its axis cuts, the same split makes uneven parts; a tensor that propagation placed becomes whole on every rank
// if its parts would no longer be rectangles. The passes that follow plan for the sizes; an axis of size 1 owns nothing for them.
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
// a size below 1. After: no mesh is symbolic. `asWritten`: the fusion before propagation, which tells what that placed; without it,
// that is taken to be all but inputs and outputs.
[[nodiscard]] std::unique_ptr<Fusion> specialize(const Fusion& fusion, const MeshSizes& sizes,
                                                 const Fusion* asWritten = nullptr);

// `given`, and for a mesh with one axis left open the size that makes it of `ranks` ranks. UserError where that is no number, and
// where more than one axis is open.
[[nodiscard]] MeshSizes sizesForRanks(const Fusion& fusion, int64_t ranks, const MeshSizes& given = {});

}  // namespace meshfuse
