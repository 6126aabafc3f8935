// The first index out of range that the kernels of a run find.
//
//   RefusedIndex refused;
//   { RefusedIndexScope scope(refused); kernel->run(...); }   // on every thread that runs a part
//   if (refused.any()) ...
//
// Compiled code cannot throw: it calls refuseIndex, continues with index 0, and the caller of the kernel raises the error.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace meshfuse {

struct RefusedIndexError : UserError {
  RefusedIndexError(const std::string& message, int64_t index, int64_t extent)
      : UserError(message), index(index), extent(extent) {}
  int64_t index;
  int64_t extent;
};

class RefusedIndex {
 public:
  void record(int64_t index, int64_t extent) noexcept;  // by any thread; the first record is kept
  // Once all threads have ended:
  bool any() const { return taken_.load(std::memory_order_relaxed); }
  int64_t index() const { return index_; }
  int64_t extent() const { return extent_; }

 private:
  std::atomic<bool> taken_{false};
  int64_t index_ = 0;
  int64_t extent_ = 0;
};

// While the scope lives, an index that this thread refuses is recorded in `record`.
class RefusedIndexScope {
 public:
  explicit RefusedIndexScope(RefusedIndex& record) noexcept;
  ~RefusedIndexScope();
  RefusedIndexScope(const RefusedIndexScope&) = delete;
  RefusedIndexScope& operator=(const RefusedIndexScope&) = delete;

 private:
  RefusedIndex* outer_;
};

// RefusedIndexError of a step.
[[noreturn]] void throwRefusedIndex(std::string_view step, int64_t index, int64_t extent);

// `index` is not in [0, extent). Outside of any scope it is not reported.
void refuseIndex(int64_t index, int64_t extent) noexcept;

}  // namespace meshfuse
