// Memory that one process creates and others map.
//
// It has no name: others get its descriptor (descriptor_exchange.h), so no file remains, whichever process is killed and when. Its size is
// sealed: no process can cut it off while others read it.
#pragma once

#include <cstddef>

#include "multidevice/transport/host/descriptor.h"

namespace meshfuse {

class SharedMemory {
 public:
  enum class Access { ReadOnly, ReadWrite };

  SharedMemory() = default;
  // New address space of `bytes`, zero when read and not yet backed by memory. DeviceError if there is none.
  static SharedMemory create(size_t bytes);
  // Memory of another process. Not valid() if the descriptor is not of memory with a sealed size, or the memory cannot be mapped.
  static SharedMemory open(const Descriptor& descriptor, Access access);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  bool valid() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Of the process that created it; not open in the others.
  const Descriptor& descriptor() const { return descriptor_; }
  // Backs [begin, end) with memory, so that no access fails later. False if there is none left.
  bool reserve(size_t begin, size_t end);

 private:
  bool map(int fd, size_t bytes, int protection);

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Descriptor descriptor_;
};

}  // namespace meshfuse
