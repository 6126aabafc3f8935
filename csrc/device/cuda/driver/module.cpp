#include "device/cuda/driver/module.h"

#include <limits>

#include "base/error.h"
#include "device/cuda/driver/library.h"

namespace meshfuse {

namespace {

constexpr int64_t kSharedWithoutAsking = 48 << 10;  // dynamic shared memory that every kernel may have

void loadKernel(const DriverLibrary& d, cuda::Module module, const std::string& entry, int64_t sharedBytes,
                cuda::Function* function) {
  succeed(d.moduleGetFunction(function, module, entry.c_str()), "cuModuleGetFunction", "kernel {}", entry);
  if (sharedBytes > kSharedWithoutAsking) {
    succeed(d.functionSetAttribute(*function, cuda::FunctionAttribute::MaxDynamicSharedBytes, sharedBytes),
            "cuFuncSetAttribute", "kernel {}: {} bytes of shared memory a block", entry, sharedBytes);
  }
}

}  // namespace

CudaModule::CudaModule(const CudaContext& context, std::string_view cubin, const std::string& entry,
                       int64_t sharedBytes)
    : context_(context), entry_(entry) {
  const DriverLibrary& d = loadedDriver();
  const CurrentContext current(context);
  succeed(d.moduleLoadData(&module_, cubin.data()), "cuModuleLoadData", "kernel {}", entry);
  try {
    loadKernel(d, module_, entry, sharedBytes, &function_);
  } catch (...) {
    d.moduleUnload(module_);
    throw;
  }
}

CudaModule::~CudaModule() {
  try {
    const CurrentContext current(context_);
    driverLibrary().moduleUnload(module_);
  } catch (const DeviceError&) {  // the device is gone, and the module with it
  }
}

void CudaModule::launch(const CudaLaunchShape& shape, std::span<const uint64_t> slots, cuda::Stream stream) const {
  if (shape.blocks == 0) {
    return;
  }
  expectGrid(shape);
  cuda::LaunchAttribute cluster = {};
  cluster.id = cuda::LaunchAttributeId::ClusterDimension;
  cluster.value.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  cuda::LaunchConfig config = {};
  config.gridX = static_cast<unsigned>(shape.blocks);
  config.gridY = config.gridZ = 1;
  config.blockX = static_cast<unsigned>(shape.threads);
  config.blockY = config.blockZ = 1;
  config.sharedBytes = static_cast<unsigned>(shape.sharedBytes);
  config.stream = stream;
  config.attributes = &cluster;
  config.attributeCount = shape.cluster > 1 ? 1 : 0;
  // The kernel takes the slots as one struct by value.
  void* parameters[] = {const_cast<uint64_t*>(slots.data())};
  succeed(loadedDriver().launchKernel(&config, function_, parameters, nullptr), "cuLaunchKernelEx", "kernel {}",
          entry_);
}

void CudaModule::set(cuda::GraphExec graph, cuda::GraphNode node, const CudaLaunchShape& shape,
                     std::span<const uint64_t> slots) const {
  expectGrid(shape);
  void* parameters[] = {const_cast<uint64_t*>(slots.data())};
  cuda::KernelNodeParameters parameter = {};
  parameter.function = function_;
  parameter.gridX = static_cast<unsigned>(shape.blocks);
  parameter.gridY = parameter.gridZ = 1;
  parameter.blockX = static_cast<unsigned>(shape.threads);
  parameter.blockY = parameter.blockZ = 1;
  parameter.sharedBytes = static_cast<unsigned>(shape.sharedBytes);
  parameter.parameters = parameters;
  succeed(loadedDriver().graphSetKernelNode(graph, node, &parameter), "cuGraphExecKernelNodeSetParams", "kernel {}",
          entry_);
}

void CudaModule::expectGrid(const CudaLaunchShape& shape) const {
  check(shape.blocks <= std::numeric_limits<int32_t>::max(),
        "[cuda] kernel {} needs {} blocks, a grid has at most 2147483647; use larger parts", entry_, shape.blocks);
}

}  // namespace meshfuse
