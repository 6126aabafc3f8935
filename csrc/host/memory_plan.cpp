#include "host/memory_plan.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/exact.h"
#include "base/ranges.h"

namespace meshfuse {

int64_t MemoryBlock::end() const {
  return addExact(offset, addExact(bytes, kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
}

namespace {

// Each block at the lowest free offset, in this order.
int64_t placeInOrder(const std::vector<MemoryBlock*>& order) {
  std::vector<MemoryBlock*> placed;  // by offset
  int64_t size = 0;
  for (MemoryBlock* block : order) {
    block->offset = 0;
    for (const MemoryBlock* other : placed) {
      if (block->meets(*other)) {
        if (block->end() <= other->offset) {
          break;
        }
        block->offset = std::max(block->offset, other->end());
      }
    }
    size = std::max(size, block->end());
    placed.insert(std::ranges::upper_bound(placed, block->offset, {}, &MemoryBlock::offset), block);
  }
  return size;
}

// The bytes of the blocks that are alive in the fullest step.
int64_t fullestStep(const std::vector<MemoryBlock>& blocks) {
  int64_t steps = 0;
  for (const MemoryBlock& block : blocks) {
    steps = std::max(steps, block.lastStep + 1);
  }
  std::vector<int64_t> change(steps + 1, 0);
  for (MemoryBlock block : blocks) {
    block.offset = 0;
    change[block.firstStep] = addExact(change[block.firstStep], block.end());
    change[block.lastStep + 1] = addExact(change[block.lastStep + 1], -block.end());
  }
  int64_t alive = 0;
  int64_t most = 0;
  for (const int64_t bytes : change) {
    alive = addExact(alive, bytes);
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace

int64_t planMemory(std::vector<MemoryBlock>& blocks) {
  using Key = double (*)(const MemoryBlock&);
  constexpr Key kKeys[] = {
      [](const MemoryBlock& b) { return static_cast<double>(b.bytes); },
      [](const MemoryBlock& b) {
        return static_cast<double>(b.bytes) * static_cast<double>(b.lastStep - b.firstStep + 1);
      },
      [](const MemoryBlock& b) { return static_cast<double>(b.firstStep); },
  };
  const int64_t least = fullestStep(blocks);
  int64_t best = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets;
  for (const Key key : kKeys) {
    std::vector<MemoryBlock*> order = mapped(blocks, [](MemoryBlock& block) { return &block; });
    std::ranges::stable_sort(order, std::greater(), [&](const MemoryBlock* b) { return key(*b); });
    const int64_t size = placeInOrder(order);
    if (size < best) {
      best = size;
      offsets = mapped(blocks, &MemoryBlock::offset);
    }
    if (best == least) {
      break;
    }
  }
  for (const int64_t k : indices(blocks)) {
    blocks[k].offset = offsets[k];
  }
  return best;
}

}  // namespace meshfuse
