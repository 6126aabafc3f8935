// Which index ranges of a tensor each rank holds, from the digits of its dims.
#include <algorithm>

#include "exec/explain_parts.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

namespace {

// Adds the ranges of the indices from `begin` on. Digits before `k` are fixed, those from `k` on take all values.
void addRanges(std::span<const Digit> digits, size_t k, const std::vector<int64_t>& coordinates, int64_t begin,
               int64_t extent, ExplainedRanges& ranges) {
  const bool open = std::none_of(digits.begin() + k, digits.end(), [](const Digit& d) { return d.owner.isDevice(); });
  if (open) {
    const int64_t length = k == digits.size() ? 1 : digits[k].stride.constValue() * digits[k].size.constValue();
    const int64_t end = std::min(begin + length, extent);
    if (begin >= end) {
      return;
    }
    if (!ranges.list.empty() && ranges.list.back().second == begin) {
      ranges.list.back().second = end;
    } else if (ranges.list.size() < kMostExplainedRanges) {
      ranges.list.push_back({begin, end});
    } else {
      ranges.more = true;
    }
    return;
  }
  const Digit& d = digits[k];
  const int64_t stride = d.stride.constValue();
  const int64_t size = d.size.constValue();
  if (d.owner.isDevice()) {
    const int64_t value = coordinates[d.owner.axis] / d.owner.below.constValue() % size;
    addRanges(digits, k + 1, coordinates, begin + value * stride, extent, ranges);
    return;
  }
  for (int64_t value = 0; value < size && !ranges.more; value++) {
    addRanges(digits, k + 1, coordinates, begin + value * stride, extent, ranges);
  }
}

}  // namespace

std::vector<ExplainedTile> explainTiles(const ShardState& state, const std::vector<int64_t>& sizes) {
  std::vector<ExplainedTile> tiles;
  if (state.hasOpaqueDim()) {
    return tiles;
  }
  for (const int64_t rank : state.mesh.devices()) {
    const std::vector<int64_t> coordinates = state.mesh.coordinates(rank);
    ExplainedTile& tile = tiles.emplace_back();
    tile.rank = rank;
    for (size_t k = 0; k < sizes.size(); k++) {
      ExplainedRanges& ranges = tile.dims.emplace_back();
      if (state.dims[k].hasParts()) {
        for (const IndexRun& r : heldRuns(state.dims[k], coordinates)) {  // axes own parts, whole
          ranges.more = ranges.list.size() >= kMostExplainedRanges;
          if (ranges.more) {
            break;
          }
          ranges.list.push_back({r.start, r.start + r.count});
        }
        continue;
      }
      addRanges(state.dims[k].digits(), 0, coordinates, 0, sizes[k], ranges);
    }
  }
  return tiles;
}

}  // namespace meshfuse
