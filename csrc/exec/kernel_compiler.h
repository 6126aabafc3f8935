// The compiler of CPU kernels that all caches of a process share, and the machine it compiles for.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "jit/orc/cpu_compiler.h"
#include "schedule/group.h"

namespace meshfuse {

// MESHFUSE_CACHE_DIR names the directory of the disk cache; without it ~/.cache/meshfuse; "off": none.
[[nodiscard]] CpuCompiler& kernelCompiler();
[[nodiscard]] std::vector<std::shared_ptr<const CpuKernel>> compileKernels(std::span<const tile::Program> programs);
// This machine's caches and vectors.
[[nodiscard]] DeviceInfo hostDevice();

}  // namespace meshfuse
