#include "exec/kernel_compiler.h"

#include <unistd.h>

#include "base/disk_cache.h"
#include "base/error.h"
#include "library/cpu/contraction.h"

namespace meshfuse {

namespace {

int64_t cacheBytes(int64_t name, int64_t otherwise) {
  long bytes = sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

}  // namespace

const std::shared_ptr<DiskCache>& kernelDiskCache() {
  static const std::shared_ptr<DiskCache> cache = [] {
    const std::string directory = defaultCacheDirectory();
    return directory.empty() || directory == "off" ? nullptr : std::make_shared<DiskCache>(directory);
  }();
  return cache;
}

CpuCompiler& kernelCompiler() {
  // a handle of loaded code and an open directory
  static CpuCompiler compiler({.disk = kernelDiskCache()});
  return compiler;
}

std::vector<std::shared_ptr<const CpuKernel>> compileKernels(std::span<const tile::Program> programs) {
  return kernelCompiler().compile(programs);
}

std::vector<std::shared_ptr<const CpuKernel>> placeholderKernels(std::span<const tile::Program> programs) {
  CpuKernel kernel;
  kernel.run = [](const uint64_t*, int64_t, int64_t, void*) {
    throwInternalError("[kernels] a host program with placeholder kernels was run; compile it with compileKernels");
  };
  kernel.scratchBytes = [](const uint64_t*) -> int64_t { return 0; };
  return {programs.size(), std::make_shared<const CpuKernel>(std::move(kernel))};
}

DeviceInfo hostDevice() {
  DeviceInfo d;
  d.target = tile::Target::Cpu;
  d.l1Bytes = cacheBytes(_SC_LEVEL1_DCACHE_SIZE, d.l1Bytes);
  d.l2Bytes = cacheBytes(_SC_LEVEL2_CACHE_SIZE, d.l2Bytes);
  d.lastCacheBytes = cacheBytes(_SC_LEVEL3_CACHE_SIZE, d.lastCacheBytes);
  d.refuseContraction = Contraction::refuse;
  return d;
}

}  // namespace meshfuse
