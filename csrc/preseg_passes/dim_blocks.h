// The blocks of a dim that mesh axes cut.
//
//   dim 1 of T0 [6, 10], S1(x), x of 4:   4 parts of 3 elements, the last with 1; digits [4:x], with a stride of 3
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

struct DimBlocks {
  std::vector<Digit> digits;  // owned, the most significant first
  int64_t parts = 1;
  IntExpr length = 1;  // elements of a part; the last parts may have fewer or none
  IntExpr extent = 1;  // of the dim

  bool isEven() const { return parts * length == extent; }
  bool hasEmptyParts() const { return provenLessEqual(extent, (parts - 1) * length); }
  [[nodiscard]] std::vector<int64_t> axes() const;  // of the mesh, ascending
  // The digits of dim number `dim` in which even parts of `length` elements lie; with a length of 1, of a dim with one element a part.
  [[nodiscard]] DigitList even(int64_t dim, const IntExpr& length) const;
};

// Nothing if no axis cuts the dim, if it is empty, if its parts are not blocks of one size over whole axes of known sizes, or if the parts of
// any dim are unknown. An extent that is a symbol is a multiple of the number of parts: 4*n elements are 4 parts of n.
[[nodiscard]] std::optional<DimBlocks> blocksOf(const ShardState& state, int64_t dim);

}  // namespace meshfuse
