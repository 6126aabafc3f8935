#include "preseg_passes/dim_blocks.h"

#include <algorithm>
#include <ranges>

#include "base/ranges.h"
#include "base/rounding.h"

namespace meshfuse {

std::vector<int64_t> DimBlocks::axes() const {
  std::vector<int64_t> all = mapped(digits, [](const Digit& d) { return d.owner.axis; });
  std::ranges::sort(all);
  return all;
}

DigitList DimBlocks::even(int64_t dim, const IntExpr& ofPart) const {
  std::vector<Digit> owned;
  IntExpr stride = ofPart;
  for (const Digit& d : std::views::reverse(digits)) {
    owned.push_back({dim, stride, d.size, d.owner});
    stride *= d.size;
  }
  return fillLocal(dim, stride, owned);
}

std::optional<DimBlocks> blocksOf(const ShardState& state, int64_t dim) {
  const DigitList& list = state.dims[dim];
  if (state.hasOpaqueDim() || !list.hasOwned() || list.hasParts() || list.extent().isConst(0)) {
    return std::nullopt;
  }
  DimBlocks blocks{.digits = filtered(list.digits(), [](const Digit& d) { return d.owner.isDevice(); }),
                   .extent = list.extent()};
  for (const Digit& d : blocks.digits) {
    if (!d.size.isConst() || !(d.size == state.mesh.axisSize(d.owner.axis))) {
      return std::nullopt;
    }
    blocks.parts *= d.size.constValue();
  }
  const std::optional<IntExpr> length = blocks.extent.isConst() ? divideUp(blocks.extent.constValue(), blocks.parts)
                                                                : divideExactly(blocks.extent, blocks.parts);
  if (!length) {
    return std::nullopt;
  }
  blocks.length = *length;
  IntExpr stride = blocks.length;
  for (const Digit& d : std::views::reverse(blocks.digits)) {
    if (!(d.stride == stride)) {
      return std::nullopt;
    }
    stride *= d.size;
  }
  return blocks;
}

}  // namespace meshfuse
