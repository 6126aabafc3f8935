// KernelAxes: the dims of a group's iteration space gathered into at most three axes of a kernel.
//
//   n   the vector axis: the longest run of innermost dims that every access can traverse as one dim. Reduced or not
//   k   the other reduced dims
//   m   the other dims
//
//   sum over [A, r{B}, C]    m = A     k = B   n = C        softmax over the last of [A, B, C]   m = A*B      n = C
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/coordinates.h"
#include "schedule/lowering.h"

namespace meshfuse {

struct KernelAxes {
  std::vector<int64_t> m, k, n;  // reference dims, outermost in the order of the coordinates first
  bool innerReduced = false;
  IntExpr M = 1, K = 1, N = 1;

  // The reference dims as expressions of the coordinates m, k and n. The expression given for an absent axis is not used.
  std::vector<IntExpr> dims(const Coordinates& c, const IntExpr& m, const IntExpr& k, const IntExpr& n) const;
};

// All choices of n, longest first; at least one. Dims of extent 1 belong to no axis.
[[nodiscard]] std::vector<KernelAxes> axesChoices(const Coordinates& coordinates);

// The position of a tensor at the given reference dims.
[[nodiscard]] Lowering::Position positionOf(const Coordinates& coordinates, const TensorView* tensor,
                                            const std::vector<IntExpr>& dims);

// True if every access of the program is contiguous, constant or strided along the named axis, without a division of its coordinate.
[[nodiscard]] bool runsThrough(const tile::Program& program, const std::string& axis);

}  // namespace meshfuse
