// Memory for tensors on a host: 64-byte aligned, pooled, in 2 MB pages for large blocks.
//
//   PooledAllocator pool;
//   void* p = pool.allocate(bytes);
//   pool.deallocate(p, bytes);        the size that was asked for: blocks carry no header
//
// A block goes back to the free list of its size class, so a program that runs again finds the pages of its last run mapped
// and warm: first touch of fresh pages costs three times the work of a bandwidth-bound kernel.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace meshfuse {

inline constexpr size_t kTensorAlignment = 64;

struct AllocatorStatistics {
  int64_t allocations = 0;  // calls of allocate
  int64_t systemCalls = 0;  // allocations that asked the system for memory
  int64_t bytesInUse = 0;   // allocated and not yet deallocated, as asked for; blocks are as large as their class
  int64_t peakBytesInUse = 0;
  int64_t bytesCached = 0;  // on free lists
};

// Thread-safe: one short lock per size class.
class PooledAllocator {
 public:
  // If the free blocks would have more than `cacheLimit` bytes in total, a block of 1 MiB or more goes back to the system when it is freed.
  explicit PooledAllocator(size_t cacheLimit = size_t{8} << 30);
  ~PooledAllocator();
  PooledAllocator(const PooledAllocator&) = delete;
  PooledAllocator& operator=(const PooledAllocator&) = delete;

  // At least `bytes` bytes with unspecified contents, aligned to kTensorAlignment; not null, even for 0 bytes. UserError if
  // the system has no more memory.
  void* allocate(size_t bytes);
  // `bytes` as given to allocate. Null is ignored.
  void deallocate(void* block, size_t bytes);
  // Gives the free blocks of 1 MiB or more back to the system.
  void trim();
  AllocatorStatistics statistics() const;
  // Sets the peak to the bytes that are in use now.
  void resetPeak();
  // Counts memory for tensors from other sources as in use; negative if it is released.
  void countInUse(int64_t bytes);

 private:
  struct SizeClass {
    std::atomic_flag locked;
    std::vector<void*> free;
  };
  static constexpr int64_t kClasses = 4 * 42;

  void* carve(size_t bytes);

  size_t cacheLimit_;
  std::array<SizeClass, kClasses> classes_;
  std::mutex slabMutex_;
  std::vector<char*> slabs_;
  char* slabNext_ = nullptr;
  char* slabEnd_ = nullptr;
  std::atomic<int64_t> allocations_{0};
  std::atomic<int64_t> systemCalls_{0};
  std::atomic<int64_t> bytesInUse_{0};
  std::atomic<int64_t> peakBytesInUse_{0};
  std::atomic<int64_t> bytesCached_{0};
};

// The allocator of all tensors in host memory. Never destroyed: tensors may outlive any other static object.
PooledAllocator& hostPool();

}  // namespace meshfuse
