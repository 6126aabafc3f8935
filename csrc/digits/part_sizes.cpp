#include "digits/part_sizes.h"

#include <numeric>
#include <string>

namespace meshfuse {

std::string toString(std::span<const IntExpr> sizes) {
  std::string text;
  for (const IntExpr& size : sizes) {
    text += (text.empty() ? "" : ", ") + size.toString();
  }
  return "[" + text + "]";
}

IntExpr sumOf(std::span<const IntExpr> sizes) { return std::accumulate(sizes.begin(), sizes.end(), IntExpr(0)); }

IntExpr largestOf(std::span<const IntExpr> sizes) {
  IntExpr largest = sizes.empty() ? IntExpr(0) : sizes[0];
  for (const IntExpr& size : sizes) {
    largest = max(largest, size);
  }
  return largest;
}

bool areBlocks(std::span<const IntExpr> sizes) {
  const IntExpr block = max(1, ceilDiv(sumOf(sizes), std::ssize(sizes)));
  IntExpr left = sumOf(sizes);
  for (const IntExpr& size : sizes) {
    if (size != min(block, left)) {
      return false;
    }
    left = left - size;
  }
  return true;
}

}  // namespace meshfuse
