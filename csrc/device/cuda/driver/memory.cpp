#include "device/cuda/driver/memory.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/error.h"
#include "device/cuda/driver/library.h"

namespace meshfuse {

// Bytes of the GPU, whose context is current.
static std::pair<size_t, size_t> freeAndTotal(const CudaContext& context) {
  size_t free = 0;
  size_t total = 0;
  succeed(loadedDriver().memoryInfo(&free, &total), "cuMemGetInfo", "{}", context.name());
  return {free, total};
}

CudaMemory::CudaMemory(const CudaContext& context, CudaStreams& queues)
    : context_(context), queues_(queues), allocating_(context), freeing_(context), copying_(context) {
  const DriverLibrary& d = loadedDriver();
  const cuda::PoolProperties properties{
      .type = cuda::AllocationType::Pinned,
      .location = {.type = cuda::LocationType::Device, .id = static_cast<int>(context.index())}};
  succeed(d.poolCreate(&pool_, &properties), "cuMemPoolCreate", "{}", context.name());
  uint64_t keepAll = std::numeric_limits<uint64_t>::max();
  succeed(d.poolSetAttribute(pool_, cuda::PoolAttribute::ReleaseThreshold, &keepAll), "cuMemPoolSetAttribute", "{}",
          context.name());
  letPeersAccess();
}

void CudaMemory::letPeersAccess() {
  const DriverLibrary& d = loadedDriver();
  const auto own = static_cast<int>(context_.index());
  int count = 0;
  succeed(d.deviceGetCount(&count), "cuDeviceGetCount", "{}", context_.name());
  for (int peer = 0; peer < count; peer++) {
    int can = 0;
    if (peer != own) {
      succeed(d.deviceCanAccessPeer(&can, peer, own), "cuDeviceCanAccessPeer", "cuda:{} of {}", peer, context_.name());
    }
    if (can != 0) {
      const cuda::PoolAccess access{{cuda::LocationType::Device, peer}, cuda::AccessFlags::ReadWrite};
      succeed(d.poolSetAccess(pool_, &access, 1), "cuMemPoolSetAccess", "cuda:{} to {}", peer, context_.name());
    }
  }
}

CudaMemory::~CudaMemory() {
  try {
    const CurrentContext current(context_);
    driverLibrary().poolDestroy(pool_);
  } catch (const DeviceError&) {  // the device is gone, and the pool with it
  }
}

std::shared_ptr<void> CudaMemory::allocate(int64_t bytes) {
  const DriverLibrary& d = loadedDriver();
  const CurrentContext current(context_);
  cuda::DevicePointer memory = 0;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  cuda::Result status = d.memoryAllocateAsync(&memory, size, pool_, allocating_.get());
  if (status == cuda::Result::OutOfMemory) {  // what is being given back may suffice
    freeing_.synchronize(context_.name());
    {
      const std::lock_guard lock(reclaimMutex_);
      for (const std::function<void()>& reclaim : reclaims_) {
        reclaim();
      }
    }
    status = d.memoryAllocateAsync(&memory, size, pool_, allocating_.get());
  }
  if (status == cuda::Result::OutOfMemory) {
    const auto [free, total] = freeAndTotal(context_);
    throwUserError(
        fmt::format("[cuda] {} has no memory for {} bytes: {} of {} are free; use smaller tensors or more devices",
                    context_.name(), bytes, free, total));
  }
  succeed(status, "cuMemAllocFromPoolAsync", "{} bytes on {}", bytes, context_.name());
  allocating_.synchronize(context_.name());  // so that every stream may use it
  return {std::bit_cast<void*>(memory), [this](void* m) { free(m); }};
}

std::shared_ptr<void> CudaMemory::reclaimWith(std::function<void()> reclaim) {
  const std::lock_guard lock(reclaimMutex_);
  const auto at = reclaims_.insert(reclaims_.end(), std::move(reclaim));
  return {nullptr, [this, at](void*) {
            const std::lock_guard removing(reclaimMutex_);
            reclaims_.erase(at);
          }};
}

void CudaMemory::free(void* memory) {
  try {
    const CurrentContext current(context_);
    queues_.orderBefore(freeing_.get());
    loadedDriver().memoryFreeAsync(std::bit_cast<cuda::DevicePointer>(memory), freeing_.get());
  } catch (const DeviceError&) {  // the device is gone, and the memory with it
  }
}

void CudaMemory::read(void* host, const void* memory, int64_t bytes) {
  const CurrentContext current(context_);
  queues_.orderBefore(copying_.get());
  succeed(loadedDriver().copyToHostAsync(host, std::bit_cast<cuda::DevicePointer>(memory), bytes, copying_.get()),
          "cuMemcpyDtoHAsync", "{} bytes of {}", bytes, context_.name());
  copying_.synchronize(context_.name());
}

void CudaMemory::write(void* memory, const void* host, int64_t bytes) {
  const CurrentContext current(context_);
  queues_.orderBefore(copying_.get());
  succeed(loadedDriver().copyToDeviceAsync(std::bit_cast<cuda::DevicePointer>(memory), host, bytes, copying_.get()),
          "cuMemcpyHtoDAsync", "{} bytes of {}", bytes, context_.name());
  copying_.synchronize(context_.name());
}

void CudaMemory::expectOwn(const void* address) const {
  const DriverLibrary& d = loadedDriver();
  const CurrentContext current(context_);
  const auto pointer = std::bit_cast<cuda::DevicePointer>(address);
  int type = 0;
  int ordinal = 0;
  const bool isKnown =
      d.pointerGetAttribute(&type, cuda::PointerAttribute::MemoryType, pointer) == cuda::Result::Success &&
      d.pointerGetAttribute(&ordinal, cuda::PointerAttribute::DeviceOrdinal, pointer) == cuda::Result::Success;
  check(isKnown && type == static_cast<int>(cuda::MemoryType::Device),
        "[cuda] the address {} is not in the memory of a GPU; pass memory of {}, or copy the tensor with to()", address,
        context_.name());
  check(ordinal == context_.index(), "[cuda] the address {} is in the memory of cuda:{}, expected {}", address, ordinal,
        context_.name());
}

int64_t CudaMemory::bytes(cuda::PoolAttribute attribute) const {
  uint64_t value = 0;
  succeed(loadedDriver().poolGetAttribute(pool_, attribute, &value), "cuMemPoolGetAttribute", "{}", context_.name());
  return value;
}

int64_t CudaMemory::takeMost() const {
  most_ = std::max(most_, bytes(cuda::PoolAttribute::UsedMost) + other_);
  uint64_t zero = 0;  // the pool takes no other value, and begins with what is in use
  succeed(loadedDriver().poolSetAttribute(pool_, cuda::PoolAttribute::UsedMost, &zero), "cuMemPoolSetAttribute", "{}",
          context_.name());
  return most_;
}

int64_t CudaMemory::totalBytes() const {
  const CurrentContext current(context_);
  return freeAndTotal(context_).second;
}

MemoryUse CudaMemory::use() const {
  const CurrentContext current(context_);
  freeing_.synchronize(context_.name());
  const std::lock_guard lock(countMutex_);
  return {bytes(cuda::PoolAttribute::UsedNow) + other_, takeMost()};
}

void CudaMemory::resetMost() {
  const CurrentContext current(context_);
  freeing_.synchronize(context_.name());
  const std::lock_guard lock(countMutex_);
  takeMost();
  most_ = 0;
}

void CudaMemory::countOther(int64_t bytes) {
  const CurrentContext current(context_);
  const std::lock_guard lock(countMutex_);
  takeMost();
  other_ += bytes;
}

void CudaMemory::settle() const {
  const CurrentContext current(context_);
  succeed(loadedDriver().contextSynchronize(), "cuCtxSynchronize", "{}", context_.name());
}

}  // namespace meshfuse
