#include "exec/rank_classes.h"

#include <algorithm>
#include <map>

#include "base/ranges.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "multidevice/sharding/held_part.h"

namespace meshfuse {

RankClasses rankClasses(const Fusion& planned, int64_t ranks) {
  std::vector<ShardState> unlike;  // ranks hold parts of different sizes, or none
  for (const TensorView* tv : planned.tensors()) {
    if (tv->hasDeviceMesh()) {
      ShardState state = shardState(tv);
      if (state.mesh.numDevices() < ranks || isRagged(state)) {
        unlike.push_back(std::move(state));
      }
    }
  }
  RankClasses result;
  std::map<std::vector<std::vector<int64_t>>, int64_t> known;
  for (int64_t rank = 0; rank < ranks; rank++) {
    const auto sizes = mapped(unlike, [&](const ShardState& s) { return heldPart(s, rank).sizes(); });
    const auto [place, isNew] = known.try_emplace(sizes, std::ssize(result.firstRanks));
    if (isNew) {
      result.firstRanks.push_back(rank);
    }
    result.classOf.push_back(place->second);
  }
  return result;
}

bool mayExchangeUnlikeBlocks(const HostProgram& program) {
  return std::ranges::any_of(program.steps, [](const Step& s) {
    return s.kind == HostStepKind::Communicate && (s.comm.kind == Collective::Transfer || !s.comm.received.empty());
  });
}

}  // namespace meshfuse
