#include "multidevice/transport/host/heap.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/rounding.h"

namespace meshfuse {

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kPage = 4096;
constexpr size_t kSmallestSegment = size_t{1} << 20;
constexpr size_t kLargestSegment = size_t{64} << 20;

}  // namespace

std::shared_ptr<void> SharedHeap::allocate(size_t bytes) {
  // Large blocks do not share pages, so two ranks never write to the same page.
  const size_t alignment = bytes >= kPage ? kPage : kAlignment;
  const size_t needed = roundUp(std::max<size_t>(bytes, 1), alignment);
  const size_t offset = take(needed, alignment);
  if (offset == kNone) {
    return nullptr;
  }
  // Not under the lock: without memory for its counters, the pointer releases the block at once.
  return {memory_.data() + offset,
          [heap = shared_from_this(), offset, needed](void*) { heap->release(offset, needed); }};
}

size_t SharedHeap::take(size_t needed, size_t alignment) {
  auto fits = [&](const std::pair<const size_t, size_t>& block) {
    return roundUp(block.first, alignment) + needed <= block.first + block.second;
  };
  std::lock_guard lock(mutex_);
  auto best = free_.end();
  for (int64_t attempt = 0; attempt < 2 && best == free_.end(); ++attempt) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (fits(*it) && (best == free_.end() || it->second < best->second)) {
        best = it;
      }
    }
    if (best == free_.end() && (attempt > 0 || !grow(needed + alignment))) {
      return kNone;
    }
  }
  const auto [begin, size] = *best;
  const size_t offset = roundUp(begin, alignment);
  if (begin + size > offset + needed) {
    free_.emplace(offset + needed, begin + size - offset - needed);  // may throw: nothing has changed before
  }
  if (offset > begin) {
    best->second = offset - begin;
  } else {
    free_.erase(best);
  }
  return offset;
}

// The heap grows by segments proportional to its size: few system calls, and at most a third is unused.
bool SharedHeap::grow(size_t bytes) {
  const size_t wish = std::clamp(std::bit_ceil(backed_ / 2 + 1), kSmallestSegment, kLargestSegment);
  for (size_t segment : {std::max(wish, roundUp(bytes, kPage)), roundUp(bytes, kPage)}) {
    if (segment <= memory_.bytes() - backed_ && memory_.reserve(backed_, backed_ + segment)) {
      addFree(backed_, segment);
      backed_ += segment;
      return true;
    }
  }
  return false;
}

void SharedHeap::release(size_t offset, size_t bytes) {
  std::lock_guard lock(mutex_);
  addFree(offset, bytes);
}

void SharedHeap::addFree(size_t offset, size_t bytes) {
  auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      free_.erase(previous);
    }
  }
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    free_.erase(next);
  }
  free_.emplace(offset, bytes);
}

}  // namespace meshfuse
