#include "base/refused_index.h"

namespace meshfuse {

namespace {

thread_local RefusedIndex* current = nullptr;

}  // namespace

void RefusedIndex::record(int64_t index, int64_t extent) noexcept {
  if (!taken_.exchange(true, std::memory_order_relaxed)) {
    index_ = index;
    extent_ = extent;
  }
}

RefusedIndexScope::RefusedIndexScope(RefusedIndex& record) noexcept : outer_(current) { current = &record; }

RefusedIndexScope::~RefusedIndexScope() { current = outer_; }

void refuseIndex(int64_t index, int64_t extent) noexcept {
  if (current != nullptr) {
    current->record(index, extent);
  }
}

}  // namespace meshfuse
