// Which index ranges of a tensor each rank holds.

#include "base/ranges.h"
#include "exec/explain_parts.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

namespace {

// Adjacent runs are one range; beyond the first kMostExplainedRanges, ranges are left out.
ExplainedRanges rangesOf(const IndexRuns& runs) {
  ExplainedRanges ranges;
  const auto add = [&](int64_t begin, int64_t end) {
    if (!ranges.list.empty() && ranges.list.back().second == begin) {
      ranges.list.back().second = end;
    } else if (ranges.list.size() < kMostExplainedRanges) {
      ranges.list.emplace_back(begin, end);
    } else {
      ranges.more = true;
    }
  };
  for (const IndexRun& r : runs) {
    const int64_t pieces = r.step == 1 ? 1 : r.count;
    for (int64_t k = 0; k < pieces && !ranges.more; k++) {
      add(r.start + k * r.step, r.start + k * r.step + r.count / pieces);
    }
  }
  return ranges;
}

}  // namespace

std::vector<ExplainedTile> explainTiles(const ShardState& state) {
  if (state.hasOpaqueDim()) {
    return {};
  }
  return mapped(state.mesh.devices(), [&](int64_t rank) {
    return ExplainedTile{rank, mapped(heldPart(state, rank).dims, rangesOf)};
  });
}

}  // namespace meshfuse
