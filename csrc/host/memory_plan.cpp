#include "host/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace meshfuse {

int64_t planMemory(std::vector<MemoryBlock>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  auto rounded = [](int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; };
  std::vector<size_t> placed;  // by offset
  int64_t size = 0;
  for (size_t b : order) {
    MemoryBlock& block = blocks[b];
    int64_t bytes = rounded(block.bytes);
    int64_t at = 0;
    for (size_t p : placed) {
      const MemoryBlock& other = blocks[p];
      bool meets = other.firstStep <= block.lastStep && block.firstStep <= other.lastStep;
      if (!meets) {
        continue;
      }
      if (at + bytes <= other.offset) {
        break;
      }
      at = std::max(at, other.offset + rounded(other.bytes));
    }
    block.offset = at;
    size = std::max(size, at + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                   [&](size_t x, size_t y) { return blocks[x].offset < blocks[y].offset; }),
                  b);
  }
  return size;
}

}  // namespace meshfuse
