// Runs a compiled program and the tile interpreter on the same random inputs, and compares.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cpu/orc/cpu_compiler.h"
#include "tile/call.h"
#include "tile/programs.h"

namespace meshfuse {

// This machine, and this machine with shorter vectors.
[[nodiscard]] std::vector<CpuTarget> testedTargets();

// Parts run in ranges of one, two, three ... on two threads, with guarded scratch.
void runKernel(const CpuKernel& kernel, const std::vector<uint64_t>& slots, int64_t parts);
[[nodiscard]] int64_t partsOf(const tile::Program& program, const std::vector<int64_t>& sizes);

// GoogleTest failures unless all written tensors agree within `steps` roundings of their type, relative to the larger of the
// two values and 1e-2 of the largest in the tensor.
void compareWithInterpreter(const tile::Example& example, const CpuKernel& kernel, double steps);

}  // namespace meshfuse
