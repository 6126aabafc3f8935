// The first CUDA device of this machine, and memory on it. Through the driver API, loaded at run time.
//
//   CudaDevice device;                        // DeviceError where there is none
//   CudaMemory x(bytes);
//   x.write(host, bytes);
//   CudaKernel(cubin, entry).launch(shape, slots, nullptr);
//   device.synchronize();
//   x.read(host, bytes);
#pragma once

#include <cstdint>
#include <string>

namespace meshfuse {

// Its context is current on the thread that made the object, until the object ends on that thread. Kernels and memory
// end before it.
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

// Memory of the device whose context is current when it is made. 256 bytes divide its address.
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
