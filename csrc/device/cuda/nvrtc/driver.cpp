#include "device/cuda/nvrtc/driver.h"

#include <limits>

#include "base/error.h"
#include "device/cuda/nvrtc/library.h"

namespace meshfuse {

namespace {

constexpr int64_t kWithoutAsking = 48 << 10;  // bytes of dynamic shared memory

}  // namespace

CudaKernel::CudaKernel(std::string_view cubin, const std::string& entry, int64_t sharedBytes) : entry_(entry) {
  const DriverLibrary& d = driverLibrary();
  deviceCheck(d.usable, "[cuda] kernel {} cannot run: {}; CUDA devices need the NVIDIA driver", entry, d.reason);
  CUmodule module = nullptr;
  succeed(d.moduleLoadData(&module, cubin.data()), "cuModuleLoadData", "kernel {}", entry);
  module_ = module;
  CUfunction function = nullptr;
  CUresult status = d.moduleGetFunction(&function, module, entry.c_str());
  if (status == CUDA_SUCCESS && sharedBytes > kWithoutAsking) {
    status =
        d.funcSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(sharedBytes));
  }
  if (status != CUDA_SUCCESS) {
    d.moduleUnload(module);
    module_ = nullptr;
    succeed(status, "cuModuleGetFunction or cuFuncSetAttribute", "kernel {}", entry);
  }
  function_ = function;
}

CudaKernel::~CudaKernel() {
  if (module_ != nullptr) {
    driverLibrary().moduleUnload(static_cast<CUmodule>(module_));
  }
}

void CudaKernel::launch(const CudaLaunchShape& shape, std::span<const uint64_t> slots, void* stream) const {
  if (shape.blocks == 0) {
    return;
  }
  const DriverLibrary& d = driverLibrary();
  check(shape.blocks <= std::numeric_limits<int32_t>::max(),
        "[cuda] kernel {} needs {} blocks, a grid has at most 2147483647; use larger parts", entry_, shape.blocks);
  auto function = static_cast<CUfunction>(function_);
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(shape.blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(shape.threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(shape.sharedBytes);
  config.hStream = static_cast<CUstream>(stream);
  config.attrs = &attribute;
  config.numAttrs = shape.cluster > 1 ? 1 : 0;
  // The kernel takes the slots as one struct by value.
  void* parameters[] = {const_cast<uint64_t*>(slots.data())};
  succeed(d.launchKernelEx(&config, function, parameters, nullptr), "cuLaunchKernelEx", "kernel {}", entry_);
}

}  // namespace meshfuse
