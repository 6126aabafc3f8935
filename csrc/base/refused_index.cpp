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

void throwRefusedIndex(std::string_view step, int64_t index, int64_t extent) {
  throw RefusedIndexError(fmt::format("[run] {}: index {} is out of range for an extent of {}; give 0 <= index < {}",
                                      step, index, extent, extent),
                          index, extent);
}

void refuseIndex(int64_t index, int64_t extent) noexcept {
  if (current != nullptr) {
    current->record(index, extent);
  }
}

}  // namespace meshfuse
