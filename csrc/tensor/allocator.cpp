#include "tensor/allocator.h"

#include <sys/mman.h>

#include <bit>
#include <cstdint>

#include "base/error.h"
#include "base/rounding.h"

namespace meshfuse {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLargest = size_t{1} << 46;
// Blocks from here on are mapped one by one, smaller ones cut from slabs.
constexpr size_t kLarge = size_t{1} << 20;

// Four classes a doubling: 64 80 96 112 128 160 ... multiples of 64 below 256.
int64_t classOf(size_t bytes) {
  size_t n = bytes < 64 ? 64 : bytes;
  int64_t octave = std::bit_width(n - 1) - 1;  // 2^octave < n <= 2^(octave + 1)
  size_t low = size_t{1} << octave;
  size_t quarter = (n - low + low / 4 - 1) / (low / 4);  // 1..4
  return (octave - 5) * 4 + static_cast<int64_t>(quarter) - 1;
}

size_t classBytes(int64_t index) {
  size_t low = size_t{1} << (index / 4 + 5);
  size_t bytes = low + (low / 4) * static_cast<size_t>(index % 4 + 1);
  size_t unit = bytes > kHugePage ? kHugePage : kTensorAlignment;
  return roundUp(bytes, unit);
}

// Pages aligned to 2 MB, so that the kernel can back them with huge ones.
char* mapPages(size_t bytes) {
  size_t whole = roundUp(bytes, kHugePage);
  void* p = mmap(nullptr, whole + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(p != MAP_FAILED, "[allocate] no memory for {} bytes; free tensors or use smaller ones", bytes);
  char* begin = static_cast<char*>(p);
  size_t lead = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (lead > 0) {
    munmap(begin, lead);
  }
  munmap(begin + lead + whole, kHugePage - lead);
  madvise(begin + lead, whole, MADV_HUGEPAGE);  // a wish: without huge pages all works, slower
  return begin + lead;
}

void unmapPages(void* p, size_t bytes) { munmap(p, roundUp(bytes, kHugePage)); }

class SpinGuard {
 public:
  explicit SpinGuard(std::atomic_flag& flag) : flag_(flag) {
    while (flag_.test_and_set(std::memory_order_acquire)) {
      flag_.wait(true, std::memory_order_relaxed);
    }
  }
  ~SpinGuard() {
    flag_.clear(std::memory_order_release);
    flag_.notify_one();
  }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  std::atomic_flag& flag_;
};

}  // namespace

PooledAllocator::PooledAllocator(size_t cacheLimit) : cacheLimit_(cacheLimit) {}

PooledAllocator::~PooledAllocator() {
  trim();
  for (char* slab : slabs_) {
    unmapPages(slab, kHugePage);
  }
}

void* PooledAllocator::allocate(size_t bytes) {
  check(bytes <= kLargest, "[allocate] got a request for {} bytes, expected at most {}; check the sizes of the tensor",
        bytes, kLargest);
  int64_t index = classOf(bytes);
  size_t size = classBytes(index);
  allocations_.fetch_add(1, std::memory_order_relaxed);
  countInUse(bytes);
  SizeClass& c = classes_[index];
  {
    SpinGuard guard(c.locked);
    if (!c.free.empty()) {
      void* block = c.free.back();
      c.free.pop_back();
      bytesCached_.fetch_sub(size, std::memory_order_relaxed);
      return block;
    }
  }
  if (size >= kLarge) {
    systemCalls_.fetch_add(1, std::memory_order_relaxed);
    return mapPages(size);
  }
  return carve(size);
}

void* PooledAllocator::carve(size_t bytes) {
  std::lock_guard lock(slabMutex_);
  if (slabEnd_ - slabNext_ < static_cast<ptrdiff_t>(bytes)) {
    // The rest of the old slab, below one block of this class, is lost until the pool ends.
    slabNext_ = mapPages(kHugePage);
    slabEnd_ = slabNext_ + kHugePage;
    slabs_.push_back(slabNext_);
    systemCalls_.fetch_add(1, std::memory_order_relaxed);
  }
  char* block = slabNext_;
  slabNext_ += bytes;
  return block;
}

void PooledAllocator::deallocate(void* block, size_t bytes) {
  if (block == nullptr) {
    return;
  }
  int64_t index = classOf(bytes);
  size_t size = classBytes(index);
  countInUse(-static_cast<int64_t>(bytes));
  int64_t cached = bytesCached_.load(std::memory_order_relaxed) + static_cast<int64_t>(size);
  if (size >= kLarge && cached > static_cast<int64_t>(cacheLimit_)) {
    unmapPages(block, size);
    return;
  }
  bytesCached_.fetch_add(size, std::memory_order_relaxed);
  SizeClass& c = classes_[index];
  SpinGuard guard(c.locked);
  c.free.push_back(block);
}

void PooledAllocator::trim() {
  for (int64_t index = 0; index < kClasses; index++) {
    size_t size = classBytes(index);
    if (size < kLarge) {
      continue;
    }
    SizeClass& c = classes_[index];
    std::vector<void*> blocks;
    {
      SpinGuard guard(c.locked);
      blocks.swap(c.free);
    }
    for (void* block : blocks) {
      bytesCached_.fetch_sub(size, std::memory_order_relaxed);
      unmapPages(block, size);
    }
  }
}

AllocatorStatistics PooledAllocator::statistics() const {
  return {.allocations = allocations_.load(),
          .systemCalls = systemCalls_.load(),
          .bytesInUse = bytesInUse_.load(),
          .peakBytesInUse = peakBytesInUse_.load(),
          .bytesCached = bytesCached_.load()};
}

void PooledAllocator::countInUse(int64_t bytes) {
  const int64_t used = bytesInUse_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peakBytesInUse_.load(std::memory_order_relaxed);
  while (used > peak && !peakBytesInUse_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
}

void PooledAllocator::resetPeak() { peakBytesInUse_.store(bytesInUse_.load()); }

PooledAllocator& hostPool() {
  static PooledAllocator* pool = new PooledAllocator();
  return *pool;
}

}  // namespace meshfuse
