// The first CUDA device of this machine, and memory on it. Through the driver API, loaded at run time.
//
//   CudaDevice device;                        // DeviceError if there is no device
//   CudaMemory x(bytes);
//   x.write(host, bytes);
//   CudaKernel(cubin, entry).launch(shape, slots, nullptr);
//   device.synchronize();
//   x.read(host, bytes);
#pragma once

#include <cstdint>
#include <string>

namespace meshfuse {

// The context of the device is current on the thread that created the object, until that thread destroys it. Destroy kernels and memory
// first.
class CudaDevice {
 public:
  CudaDevice();
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const std::string& architecture() const { return architecture_; }  // such as sm_90
  int majorCapability() const { return major_; }
  // Waits for all work in the context. DeviceError if a kernel failed.
  void synchronize() const;

 private:
  int device_ = 0;  // CUdevice
  int major_ = 0;
  std::string architecture_;
};

// Memory of the device whose context is current when it is made. Its address is a multiple of 256.
class CudaMemory {
 public:
  explicit CudaMemory(int64_t bytes);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  uint64_t address() const { return address_; }  // 0 where it has no bytes
  int64_t bytes() const { return bytes_; }
  // Copies with the host, complete on return and after all earlier work of the default stream.
  void write(const void* from, int64_t bytes, int64_t offset = 0);
  void read(void* to, int64_t bytes, int64_t offset = 0) const;

 private:
  void expectInside(int64_t bytes, int64_t offset) const;

  uint64_t address_ = 0;  // CUdeviceptr
  int64_t bytes_ = 0;
};

}  // namespace meshfuse
