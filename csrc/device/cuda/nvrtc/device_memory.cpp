#include "device/cuda/nvrtc/device_memory.h"

#include <fmt/core.h>

#include "base/error.h"
#include "device/cuda/nvrtc/library.h"

namespace meshfuse {

namespace {

const DriverLibrary& loadedDriver() {
  const DriverLibrary& d = driverLibrary();
  deviceCheck(d.usable(), "[cuda] no device can be used: {}; CUDA devices need the NVIDIA driver", d.reason());
  return d;
}

}  // namespace

CudaDevice::CudaDevice() {
  const DriverLibrary& d = loadedDriver();
  succeed(d.deviceGet(&device_, 0), "cuDeviceGet", "device 0");
  int minor = 0;
  succeed(d.deviceGetAttribute(&major_, cuda::DeviceAttribute::ComputeCapabilityMajor, device_), "cuDeviceGetAttribute",
          "device 0");
  succeed(d.deviceGetAttribute(&minor, cuda::DeviceAttribute::ComputeCapabilityMinor, device_), "cuDeviceGetAttribute",
          "device 0");
  architecture_ = fmt::format("sm_{}{}", major_, minor);
  cuda::Context context = nullptr;
  succeed(d.primaryContextRetain(&context, device_), "cuDevicePrimaryCtxRetain", "device 0");
  cuda::Result status = d.contextPush(context);
  if (status != cuda::Result::Success) {
    d.primaryContextRelease(device_);
    succeed(status, "cuCtxPushCurrent", "device 0");
  }
}

CudaDevice::~CudaDevice() {
  const DriverLibrary& d = driverLibrary();
  cuda::Context context = nullptr;
  d.contextPop(&context);
  d.primaryContextRelease(device_);
}

void CudaDevice::synchronize() const { succeed(loadedDriver().contextSynchronize(), "cuCtxSynchronize", "device 0"); }

CudaMemory::CudaMemory(int64_t bytes) : bytes_(bytes) {
  const DriverLibrary& d = loadedDriver();
  check(bytes >= 0, "[cuda] got a request for {} bytes of memory; expected 0 or more", bytes);
  if (bytes > 0) {  // the driver refuses none
    cuda::DevicePointer address = 0;
    succeed(d.memoryAllocate(&address, bytes), "cuMemAlloc", "{} bytes", bytes);
    address_ = address;
  }
}

CudaMemory::~CudaMemory() {
  if (address_ != 0) {
    driverLibrary().memoryFree(address_);
  }
}

void CudaMemory::write(const void* from, int64_t bytes, int64_t offset) {
  expectInside(bytes, offset);
  if (bytes > 0) {
    succeed(loadedDriver().copyToDevice(address_ + static_cast<uint64_t>(offset), from, bytes), "cuMemcpyHtoD",
            "{} bytes", bytes);
  }
}

void CudaMemory::read(void* to, int64_t bytes, int64_t offset) const {
  expectInside(bytes, offset);
  if (bytes > 0) {
    succeed(loadedDriver().copyToHost(to, address_ + static_cast<uint64_t>(offset), bytes), "cuMemcpyDtoH", "{} bytes",
            bytes);
  }
}

void CudaMemory::expectInside(int64_t bytes, int64_t offset) const {
  check(offset >= 0 && bytes >= 0 && offset <= bytes_ && bytes <= bytes_ - offset,
        "[cuda] a copy of {} bytes at {} exceeds the device memory of {} bytes; copy within its bounds", bytes, offset,
        bytes_);
}

}  // namespace meshfuse
