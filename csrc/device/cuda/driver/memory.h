// The memory of a GPU: a pool of our own, and copies with the host. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "device/cuda/api/driver.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/driver/streams.h"
#include "device/device.h"

namespace meshfuse {

class CudaMemory {
 public:
  // Both outlive this object. The context is current.
  CudaMemory(const CudaContext& context, CudaStreams& queues);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // 256-byte aligned; for any stream. Its last owner gives it back to the pool once the work has ended that the queues have at that time. The
  // pool keeps it for later allocations. UserError with the bytes that are free if there is not enough.
  std::shared_ptr<void> allocate(int64_t bytes);
  // While the result lives, allocate() calls reclaim() on the thread that called allocate(), before it throws for lack of memory. reclaim()
  // must free memory of the GPU that is outside of the pool and that nobody uses, and must not throw. reclaimWith() is thread-safe.
  [[nodiscard]] std::shared_ptr<void> reclaimWith(std::function<void()> reclaim);
  // Begin when the work that the queues have so far has ended; complete on return.
  void read(void* host, const void* memory, int64_t bytes);
  void write(void* memory, const void* host, int64_t bytes);
  // UserError unless the address is in memory of the GPU. Memory that another library allocated counts too.
  void expectOwn(const void* address) const;
  // Returns when all work of the context has ended.
  void settle() const;
  // Of the GPU.
  int64_t totalBytes() const;
  // Waits until the memory that is being given back is in the pool again, then returns the use.
  MemoryUse use() const;
  void resetMost();
  // Counts memory of the GPU that is not of the pool: so many bytes more. Thread-safe.
  void countOther(int64_t bytes);

 private:
  // NCCL reads and writes tensors of other GPUs of the process directly.
  void letPeersAccess();
  void free(void* memory);
  int64_t bytes(cuda::PoolAttribute attribute) const;
  // The most so far; the pool counts anew from now on.
  int64_t takeMost() const;

  const CudaContext& context_;
  CudaStreams& queues_;
  cuda::MemoryPool pool_ = nullptr;
  const CudaStream allocating_;
  const CudaStream freeing_;
  const CudaStream copying_;
  std::mutex reclaimMutex_;
  std::list<std::function<void()>> reclaims_;
  mutable std::mutex countMutex_;
  int64_t other_ = 0;         // bytes that are not of the pool
  mutable int64_t most_ = 0;  // before the pool counted anew
};

}  // namespace meshfuse
