// The costs of a plan as expressions in the sizes of mesh axes.
//
//   Float[6, 8] combined over tp       commBytes  tp*384 - 384
//   Float[16, 8] cut over tp           part of peakMemory  ceilDiv(16, tp)*32
//
// The expressions are made from a plan for some sizes, and are exact for all sizes that lead to the same steps. Steps differ if an axis
// has one device, or if an axis does not divide a dim that it cuts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "digits/int_expr.h"
#include "multidevice/mesh/device_mesh.h"

namespace meshfuse {

struct CompiledProgram;

struct SymbolicCosts {
  IntExpr commBytes;  // the bytes that all ranks together receive in one call, as the transport counts them
  // In bytes: arguments, results and arena of rank 0. With parts of given sizes other ranks may need more.
  IntExpr peakMemory;
  // Terms that have no expression: the two expressions contain their values at the sizes of the plan.
  std::vector<std::string> constants;

  // Values of the expressions; UserError if `sizes` lacks an axis.
  int64_t commBytesAt(const MeshSizes& sizes) const;
  int64_t peakMemoryAt(const MeshSizes& sizes) const;
};

// `openAxes`: names of the axes whose sizes are symbols in the expressions.
[[nodiscard]] SymbolicCosts symbolicCosts(const CompiledProgram& compiled, std::span<const std::string> openAxes);

}  // namespace meshfuse
