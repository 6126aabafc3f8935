// Sized steps: the steps of a plan, which is made for one size, on tensors of other sizes.
//
//   mesh {x: 4}, all_gather(x)     T[48, 6], as planned   [4:x 12, 6] -> [48, 6]
//                                  T[i0, 6]               [4:x i0/4, 6] -> [i0, 6], if 4 divides i0
//
// In each state a symbolic dim has one local digit, whose size is the rest of the extent; owned digits have the sizes of their axes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "digits/int_expr.h"
#include "multidevice/mesh/comm_step.h"

namespace meshfuse {

struct SizedDigit {
  IntExpr stride = 1;
  IntExpr size = 1;
  int64_t atom = kLocal;
};

using SizedDim = std::vector<SizedDigit>;

// The digits of a dim of this extent. A constant extent is the planned one. InternalError unless whyOfOneSize() is empty.
[[nodiscard]] SizedDim digitsFor(const PlanDim& dim, const IntExpr& extent);
// Why the steps do not hold for all values of the symbols in the extents of the tensor; empty if they do.
[[nodiscard]] std::string whyOfOneSize(std::span<const CommStep> steps, const std::vector<IntExpr>& extents);
// The extents of the tensor for which a step was planned, whose dims have these extents now.
[[nodiscard]] std::vector<int64_t> plannedExtents(const CommStep& step, const std::vector<IntExpr>& extents);
// The steps of a tensor whose extents have these values.
[[nodiscard]] std::vector<CommStep> stepsFor(std::vector<CommStep> steps, const std::vector<IntExpr>& extents,
                                             const std::vector<int64_t>& values);

}  // namespace meshfuse
