// DeviceMemory: the memory of a device, as tensors use it. Device (device/device.h) adds kernels and queues.
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/device_id.h"

namespace meshfuse {

struct GpuStream;

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual DeviceId id() const = 0;
  // 64-byte aligned; not null, even for 0 bytes. UserError if the device has no more memory.
  virtual std::shared_ptr<void> allocate(int64_t bytes) = 0;
  // Copy bytes of the device to the host, and back. They begin when the work that the device has accepted has ended, and return when the
  // bytes are there.
  virtual void read(void* host, const void* memory, int64_t bytes) = 0;
  virtual void write(void* memory, const void* host, int64_t bytes) = 0;
  // Checks an address that meshfuse did not allocate, such as one given to Tensor::wrap(). UserError if the address is not in the memory of
  // the device, whoever allocated it there; the default implementation accepts every address.
  virtual void expectOwn(const void* /*address*/) const {}
  // Returns when all work has ended that the device has got from anybody in this process.
  virtual void settle() {}
  // Later work of the stream begins when the work that the device has accepted so far has ended. UserError if the device has no streams.
  virtual void orderBefore(GpuStream stream);
  // Later work of the device begins when the work of the stream so far has ended. UserError if the device has no streams.
  virtual void orderAfter(GpuStream stream);
};

// Makes a device known by its id, until the process ends. UserError if the id is taken, or is that of the CPU. Thread-safe.
void registerDevice(std::shared_ptr<DeviceMemory> memory);
// How a device is made when it is first asked for; null for ids that only registerDevice makes known. Set before main().
using DeviceOpener = std::shared_ptr<DeviceMemory> (*)(DeviceId id);
void openDevicesWith(DeviceOpener opener);
// UserError that lists the devices if there is no such device; what the opener throws. Thread-safe.
[[nodiscard]] DeviceMemory& registeredDevice(DeviceId id);

// The device of tensors that are made without one: the CPU, if no other is set. One for all threads. UserError if there is no such device.
void setDefaultDevice(DeviceId id);
[[nodiscard]] DeviceId defaultDevice();

}  // namespace meshfuse
