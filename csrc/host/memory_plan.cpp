#include "host/memory_plan.h"

#include <algorithm>
#include <functional>

#include "base/exact.h"
#include "base/ranges.h"

namespace meshfuse {

int64_t MemoryBlock::end() const {
  return addExact(offset, addExact(bytes, kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
}

int64_t planMemory(std::vector<MemoryBlock>& blocks) {
  std::vector<MemoryBlock*> order = mapped(blocks, [](MemoryBlock& block) { return &block; });
  std::ranges::stable_sort(order, std::greater(), &MemoryBlock::bytes);
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

}  // namespace meshfuse
