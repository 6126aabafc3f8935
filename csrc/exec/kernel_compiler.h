// The compiler of CPU kernels, the properties of the machine that it compiles for, and the disk cache: all executor caches of a process
// share them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "jit/orc/cpu_compiler.h"
#include "schedule/group.h"

namespace meshfuse {

// The disk cache of compiled kernels of every kind; null if MESHFUSE_CACHE_DIR is "off". The directory is MESHFUSE_CACHE_DIR, by
// default ~/.cache/meshfuse.
[[nodiscard]] const std::shared_ptr<DiskCache>& kernelDiskCache();
[[nodiscard]] CpuCompiler& kernelCompiler();
[[nodiscard]] std::vector<std::shared_ptr<const CpuKernel>> compileKernels(std::span<const tile::Program> programs);
// Replaces compileKernels() for host programs that are printed but never run: needs no LLVM. Running one is an InternalError.
[[nodiscard]] std::vector<std::shared_ptr<const CpuKernel>> placeholderKernels(std::span<const tile::Program> programs);
// The sizes of this machine's caches and vectors, and its library for contractions.
[[nodiscard]] DeviceInfo hostDevice();

}  // namespace meshfuse
