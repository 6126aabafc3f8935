// The heap whose blocks peers can read: one contiguous range of shared address space per rank, backed with memory as it fills.
//
// Peers map the whole range once, so a block needs no registration: its offset is enough to find it. Freed blocks are kept and
// merged. Thread-safe: blocks may be freed by any thread, also after the communicator is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "multidevice/transport/host/shared_memory.h"

namespace meshfuse {

class SharedHeap : public std::enable_shared_from_this<SharedHeap> {
 public:
  explicit SharedHeap(SharedMemory memory) : memory_(std::move(memory)) {}

  // Null if the range or the machine's memory is used up.
  std::shared_ptr<void> allocate(size_t bytes);
  // Offset of the block [p, p + bytes); -1 if it is not within the heap.
  int64_t offsetOf(const void* p, int64_t bytes) const {
    const auto at = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(memory_.data());
    return at < memory_.bytes() && static_cast<size_t>(bytes) <= memory_.bytes() - at ? static_cast<int64_t>(at) : -1;
  }
  SharedMemory& memory() { return memory_; }

 private:
  static constexpr size_t kNone = ~size_t{0};

  // The offset of a block, which is no longer free; kNone if there is none.
  size_t take(size_t bytes, size_t alignment);
  void release(size_t offset, size_t bytes);
  bool grow(size_t bytes);
  void addFree(size_t offset, size_t bytes);

  std::mutex mutex_;
  SharedMemory memory_;
  std::map<size_t, size_t> free_;  // offset -> bytes
  size_t backed_ = 0;              // [0, backed_) is memory
};

}  // namespace meshfuse
