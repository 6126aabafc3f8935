#include "host/arena_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/rounding.h"

namespace meshfuse {

namespace {

constexpr int64_t kMostRounded = int64_t{1} << 40;
constexpr int64_t kSmall = 64 << 10;  // bytes

// The next of 1, 1.25, 1.5 and 1.75 times a power of two; more than any memory is not rounded.
int64_t roundedUp(int64_t bytes) {
  if (bytes > kMostRounded) {
    return bytes;
  }
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(bytes, 4))));
  return roundUp(bytes, power / 4);
}

}  // namespace

std::shared_ptr<void> ArenaPool::take(int64_t bytes, const Allocate& allocate) {
  Piece piece;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(free_, [&](const Piece& p) { return p.bytes >= bytes; });
    if (found != free_.end() && found->bytes <= std::max(kSmall, 2 * std::min(bytes, kMostRounded))) {
      piece = std::move(*found);
      free_.erase(found);
    }
  }
  if (piece.memory == nullptr) {
    const int64_t capacity = roundedUp(bytes);
    piece = {allocate(capacity), capacity};
  }
  void* const address = piece.memory.get();
  const auto putBack = [pool = shared_from_this(), piece](void*) { pool->putBack(piece); };
  return {address, putBack};
}

void ArenaPool::putBack(Piece piece) {
  const std::lock_guard lock(mutex_);
  free_.insert(std::ranges::upper_bound(free_, piece.bytes, {}, &Piece::bytes), std::move(piece));
  if (std::ssize(free_) > kMostFree) {
    free_.erase(free_.begin());
  }
}

}  // namespace meshfuse
