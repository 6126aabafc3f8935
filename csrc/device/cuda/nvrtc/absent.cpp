// Replaces the folder in builds without CUDA headers.
#include "base/error.h"
#include "device/cuda/nvrtc/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "device/cuda/nvrtc/device_memory.h"
#include "device/cuda/nvrtc/driver.h"

namespace meshfuse {

namespace {

constexpr const char* kWhy = "this build has no CUDA: its headers were missing when it was configured";

[[noreturn]] void throwWithoutCompiler() {
  throwDeviceError(std::string("[nvrtc] CUDA kernels cannot be compiled: ") + kWhy);
}

}  // namespace

CudaCapabilities cudaCapabilities() {
  return {.nvrtc = false, .nvrtcNote = kWhy, .driver = false, .driverNote = kWhy, .devices = {}};
}

Cubin NvrtcCompiler::compileCubin(std::string_view, std::string_view) { throwWithoutCompiler(); }

std::string NvrtcCompiler::compilePtx(std::string_view, std::string_view) { throwWithoutCompiler(); }

std::vector<int> NvrtcCompiler::architectures() { throwWithoutCompiler(); }

void NvrtcCompiler::expectArchitecture(std::string_view) { throwWithoutCompiler(); }

NvrtcCounters NvrtcCompiler::counters() const { return {}; }

CudaKernel::CudaKernel(std::string_view, const std::string& entry, int64_t) {
  throwDeviceError("[cuda] kernel " + entry + " cannot run: " + kWhy);
}

CudaKernel::~CudaKernel() = default;

void CudaKernel::launch(const CudaLaunchShape&, std::span<const uint64_t>, void*) const {}

CudaDevice::CudaDevice() { throwDeviceError(std::string("[cuda] no device can be used: ") + kWhy); }

CudaDevice::~CudaDevice() = default;

void CudaDevice::synchronize() const {}

CudaMemory::CudaMemory(int64_t) { throwDeviceError(std::string("[cuda] no device can be used: ") + kWhy); }

CudaMemory::~CudaMemory() = default;

void CudaMemory::write(const void*, int64_t, int64_t) {}

void CudaMemory::read(void*, int64_t, int64_t) const {}

}  // namespace meshfuse
