// ArenaPool: the memory of bindings that have ended, for later bindings of programs that allocate it alike.
//
// Fresh memory costs a page fault for each page, which is more than the rest of a binding to new sizes. Capacities are rounded up by at most a
// quarter, so that shapes of similar sizes can take over each other's arenas.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace meshfuse {

// Thread-safe; made by std::make_shared.
class ArenaPool : public std::enable_shared_from_this<ArenaPool> {
 public:
  using Allocate = std::function<std::shared_ptr<void>(int64_t bytes)>;
  // Memory of at least so many bytes, and at most twice as many unless it is small: else a small program would hold a large one's. It returns to the pool when the last reference ends.
  [[nodiscard]] std::shared_ptr<void> take(int64_t bytes, const Allocate& allocate);

 private:
  struct Piece {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };
  void putBack(Piece piece);

  static constexpr int64_t kMostFree = 2;  // pieces; the largest ones are kept
  std::mutex mutex_;
  std::vector<Piece> free_;  // in the order of their sizes
};

}  // namespace meshfuse
