#include "memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "../protocol.h"

namespace simgpu {

namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kRedZone = 256;
constexpr int kFresh = 0xc5;
constexpr int kFree = 0xd5;

void* mapShared(void* at, uint64_t bytes) {
  const int fixed = at != nullptr ? MAP_FIXED_NOREPLACE : 0;
  void* const p = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("simulated GPU: mmap of device memory");
    std::exit(1);
  }
  return p;
}

uint64_t rounded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Memory::Memory(uint64_t device, uint64_t bytes)
    : base_(kDeviceBase + device * kDeviceStride),
      total_(bytes),
      written_(static_cast<unsigned char*>(mapShared(nullptr, bytes / 8 + 1))) {
  mapShared(reinterpret_cast<void*>(base_), bytes);
}

std::optional<uint64_t> Memory::allocate(uint64_t bytes, uint64_t process, std::string call) {
  if (bytes > total_) {
    return std::nullopt;
  }
  const uint64_t needed = rounded(bytes) + kRedZone;
  uint64_t at = base_;
  for (const auto& [begin, a] : allocations_) {
    if (needed <= begin - at) {
      break;
    }
    at = begin + rounded(a.bytes) + kRedZone;
  }
  if (needed > total_ || at > base_ + total_ - needed) {
    return std::nullopt;
  }
  allocations_[at] = {.bytes = bytes, .process = process, .call = std::move(call)};
  used_ += bytes;
  std::memset(reinterpret_cast<void*>(at + bytes), kFree, needed - bytes);
  return at;
}

Allocation* Memory::at(uint64_t address) {
  const auto it = allocations_.find(address);
  return it == allocations_.end() ? nullptr : &it->second;
}

const Allocation* Memory::owner(uint64_t address) const {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) {
    return nullptr;
  }
  --it;
  return address < it->first + it->second.bytes ? &it->second : nullptr;
}

void Memory::poison(uint64_t address) {
  const uint64_t bytes = allocations_.at(address).bytes;
  std::memset(reinterpret_cast<void*>(address), kFresh, bytes);
  std::memset(written_ + (address - base_) / 8, 0, rounded(bytes) / 8);
}

void Memory::free(uint64_t address) {
  const auto it = allocations_.find(address);
  std::memset(reinterpret_cast<void*>(address), kFree, it->second.bytes);
  used_ -= it->second.bytes;
  allocations_.erase(it);
}

std::string Memory::refusal(uint64_t begin, uint64_t end) const {
  auto it = allocations_.upper_bound(begin);
  if (it != allocations_.begin()) {
    --it;
    const auto& [from, a] = *it;
    if (begin < from + a.bytes && end <= from + a.bytes) {
      return a.isLive ? "" : "the memory of " + a.call + " is not allocated at this place of the stream";
    }
    if (begin < from + rounded(a.bytes) + kRedZone) {
      return "bytes " + std::to_string(begin - from) + " to " + std::to_string(end - from) + " of the " +
             std::to_string(a.bytes) + " bytes of " + a.call;
    }
  }
  return "no allocation has the address " + std::to_string(begin);
}

void Memory::noteWritten(uint64_t begin, uint64_t end) {
  for (uint64_t i = begin - base_; i < end - base_;) {
    if (i % 8 == 0 && i + 8 <= end - base_) {
      const uint64_t whole = (end - base_ - i) / 8;
      std::memset(written_ + i / 8, 0xff, whole);
      i += 8 * whole;
    } else {
      written_[i / 8] |= static_cast<unsigned char>(1U << i % 8);
      i++;
    }
  }
}

std::optional<uint64_t> Memory::unwritten(uint64_t begin, uint64_t end) const {
  for (uint64_t i = begin - base_; i < end - base_;) {
    if (i % 8 == 0 && i + 8 <= end - base_ && written_[i / 8] == 0xff) {
      i += 8;
    } else if ((written_[i / 8] >> i % 8 & 1) == 0) {
      return base_ + i;
    } else {
      i++;
    }
  }
  return std::nullopt;
}

}  // namespace simgpu
