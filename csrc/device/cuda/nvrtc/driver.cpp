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
  deviceCheck(d.usable(), "[cuda] kernel {} cannot run: {}; CUDA devices need the NVIDIA driver", entry, d.reason());
  cuda::Module module = nullptr;
  succeed(d.moduleLoadData(&module, cubin.data()), "cuModuleLoadData", "kernel {}", entry);
  module_ = module;
  cuda::Function function = nullptr;
  cuda::Result status = d.moduleGetFunction(&function, module, entry.c_str());
  if (status == cuda::Result::Success && sharedBytes > kWithoutAsking) {
    status =
        d.functionSetAttribute(function, cuda::FunctionAttribute::MaxDynamicSharedBytes, static_cast<int>(sharedBytes));
  }
  if (status != cuda::Result::Success) {
    d.moduleUnload(module);
    module_ = nullptr;
    succeed(status, "cuModuleGetFunction or cuFuncSetAttribute", "kernel {}", entry);
  }
  function_ = function;
}

CudaKernel::~CudaKernel() {
  if (module_ != nullptr) {
    driverLibrary().moduleUnload(static_cast<cuda::Module>(module_));
  }
}

void CudaKernel::launch(const CudaLaunchShape& shape, std::span<const uint64_t> slots, void* stream) const {
  if (shape.blocks == 0) {
    return;
  }
  const DriverLibrary& d = driverLibrary();
  check(shape.blocks <= std::numeric_limits<int32_t>::max(),
        "[cuda] kernel {} needs {} blocks, a grid has at most 2147483647; use larger parts", entry_, shape.blocks);
  auto function = static_cast<cuda::Function>(function_);
  cuda::LaunchAttribute attribute = {};
  attribute.id = cuda::LaunchAttributeId::ClusterDimension;
  attribute.value.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  cuda::LaunchConfig config = {};
  config.gridX = static_cast<unsigned>(shape.blocks);
  config.gridY = config.gridZ = 1;
  config.blockX = static_cast<unsigned>(shape.threads);
  config.blockY = config.blockZ = 1;
  config.sharedBytes = static_cast<unsigned>(shape.sharedBytes);
  config.stream = static_cast<cuda::Stream>(stream);
  config.attributes = &attribute;
  config.attributeCount = shape.cluster > 1 ? 1 : 0;
  // The kernel takes the slots as one struct by value.
  void* parameters[] = {const_cast<uint64_t*>(slots.data())};
  succeed(d.launchKernel(&config, function, parameters, nullptr), "cuLaunchKernelEx", "kernel {}", entry_);
}

}  // namespace meshfuse
