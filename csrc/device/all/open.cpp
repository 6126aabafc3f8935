#include "device/open.h"

#include <optional>
#include <string>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/cublaslt/library.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/named_cuda_device.h"
#include "device/cuda/nccl/library.h"
#include "device/device.h"
#include "meshfuse_config.h"

namespace meshfuse {

namespace {

std::shared_ptr<DeviceMemory> openCuda(DeviceId id) {
  return id.kind == DeviceId::Kind::Cuda ? makeCudaDevice(id.index) : nullptr;
}

[[maybe_unused]] const bool kOpensCuda = (openDevicesWith(openCuda), true);

// Why GPUs run no kernels of this build, if they have what it takes.
std::optional<std::string> refusalOf(const CudaCapabilities& cuda) {
  try {
    return cuda.driver && cuda.nvrtc ? refusalOfKernels() : std::nullopt;
  } catch (const DeviceError& why) {  // of the driver
    return why.what();
  }
}

}  // namespace

std::shared_ptr<Device> openDevice(DeviceId id, const DeviceOptions& options) {
  if (id == DeviceId::cpu()) {
    return makeCpuDevice(options);
  }
  auto* const device = dynamic_cast<Device*>(&registeredDevice(id));
  check(device != nullptr, "[device] {} has memory, but runs no programs; copy the tensors to another device",
        id.toString());
  return {std::shared_ptr<void>(), device};
}

std::shared_ptr<Device> namedDevice(std::string_view architecture) {
  if (architecture == "cpu") {
    return makeCpuDevice({.threads = 1});
  }
  return makeNamedCudaDevice(architecture);
}

Gpus gpusOfThisMachine() {
  const CudaCapabilities cuda = cudaCapabilities();
  if (!cuda.driver || !cuda.nvrtc) {
    return {.missing = cuda.driver ? cuda.nvrtcNote : cuda.driverNote};
  }
  return {.count = std::ssize(cuda.devices)};
}

std::vector<Capability> deviceCapabilities() {
  const CudaCapabilities cuda = cudaCapabilities();
  const CublasLtLibrary& products = cublasLtLibrary();
  const NcclLibrary& collectives = ncclLibrary();
  const std::optional<std::string> refusal = refusalOf(cuda);
  return {
      {"CPU kernels", kHasLlvm, kHasLlvm ? "LLVM" : "built without LLVM"},
      {"CPU matrix products", kHasOneDnn, kHasOneDnn ? "oneDNN" : "built without oneDNN: kernels compute them"},
      {"GPUs", cuda.driver, cuda.driverNote},
      {"GPU kernels", cuda.nvrtc && !refusal, refusal.value_or(cuda.nvrtcNote)},
      {"GPU matrix products", products.usable(),
       products.usable() ? fmt::format("cuBLASLt {} from {}", products.version(), products.name())
                         : fmt::format("{}: kernels compute them", products.reason())},
      {"GPU collectives", collectives.usable(),
       collectives.usable() ? fmt::format("NCCL {} from {}, {}", collectives.number, collectives.name(),
                                          ncclRegistersMemory() ? "which registers the arenas of programs"
                                                                : "which registers no memory: NCCL_LOCAL_REGISTER is 0")
                            : fmt::format("{}: they go through host memory", collectives.reason())}};
}

}  // namespace meshfuse
