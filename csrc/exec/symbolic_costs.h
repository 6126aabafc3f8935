// What a plan costs, as expressions in the sizes of mesh axes.
//
//   Float[6, 8] combined over tp       commBytes  tp*384 - 384
//   Float[16, 8] cut over tp           part of peakMemory  ceilDiv(16, tp)*32
//
// Made from a plan for some sizes, for whose steps they hold: exact wherever sizes give these steps, and so at the plan's own. Steps
// differ where an axis has one device, and where it does not divide what it cuts.
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
  IntExpr commBytes;  // that all ranks together receive in one call, as the transport counts
  // In bytes: arguments, results and arena of rank 0, from its plan; where sizes of parts are given, others may have more.
  IntExpr peakMemory;
  // What has no such expression, and stands in the above as it is at the plan's own sizes.
  std::vector<std::string> constants;

  // Their values; UserError if an axis has no size here.
  int64_t commBytesAt(const MeshSizes& sizes) const;
  int64_t peakMemoryAt(const MeshSizes& sizes) const;
};

// `openAxes`: names of the axes whose sizes are symbols in the expressions.
[[nodiscard]] SymbolicCosts symbolicCosts(const CompiledProgram& compiled, std::span<const std::string> openAxes);

}  // namespace meshfuse
