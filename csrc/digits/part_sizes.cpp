#include "digits/part_sizes.h"

#include <algorithm>

namespace meshfuse {

IntExpr largestOf(std::span<const IntExpr> sizes) {
  IntExpr largest = sizes.empty() ? IntExpr(0) : sizes[0];
  for (const IntExpr& size : sizes) {
    largest = max(largest, size);
  }
  return largest;
}

bool areBlocks(std::span<const IntExpr> sizes) {
  IntExpr left = sumOf(sizes);
  const IntExpr block = max(1, ceilDiv(left, std::max<int64_t>(std::ssize(sizes), 1)));
  return std::ranges::all_of(sizes, [&](const IntExpr& size) {
    const IntExpr expected = min(block, left);
    left = left - size;
    return size == expected;
  });
}

}  // namespace meshfuse
