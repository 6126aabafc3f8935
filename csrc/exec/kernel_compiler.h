// What all caches of a process share: the compiler of CPU kernels, the machine it compiles for, the disk cache.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "jit/orc/cpu_compiler.h"
#include "schedule/group.h"

namespace meshfuse {

// The disk cache of compiled kernels of every kind; null if there is none. MESHFUSE_CACHE_DIR names its directory; without
// it ~/.cache/meshfuse; "off": none.
[[nodiscard]] const std::shared_ptr<DiskCache>& kernelDiskCache();
[[nodiscard]] CpuCompiler& kernelCompiler();
[[nodiscard]] std::vector<std::shared_ptr<const CpuKernel>> compileKernels(std::span<const tile::Program> programs);
// In place of compileKernels() for host programs that are looked at and never run: needs no LLVM. Running one is an
// InternalError.
[[nodiscard]] std::vector<std::shared_ptr<const CpuKernel>> standInKernels(std::span<const tile::Program> programs);
// This machine's caches and vectors.
[[nodiscard]] DeviceInfo hostDevice();

}  // namespace meshfuse
