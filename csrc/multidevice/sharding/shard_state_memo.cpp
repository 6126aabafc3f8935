#include "multidevice/sharding/shard_state_memo.h"

#include <algorithm>

#include "base/hash.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

bool hasSymbolicSizes(const TensorView* tv) {
  const auto isSymbolic = [](const IterDomain* id) { return !id->extent().isConst(); };
  return (tv->hasDeviceMesh() && tv->getDeviceMesh().isSymbolic()) ||
         std::ranges::any_of(tv->getLogicalDomain(), isSymbolic) ||
         std::ranges::any_of(tv->getLoopDomain(), isSymbolic);
}

}  // namespace

size_t ShardStateMemo::KeyHash::operator()(const Key& key) const {
  uint64_t hash = key.dims.size();
  for (const auto& [extent, type] : key.dims) {
    hash = hashCombine(hash, static_cast<uint64_t>(extent) + static_cast<uint64_t>(type));
  }
  for (const LoopTransform& t : key.loops) {
    const auto axis = static_cast<uint64_t>(t.axis);
    const auto meshAxis = static_cast<uint64_t>(t.type.axisFromLast());
    hash = hashCombine(hash, axis << 32 | meshAxis << 8 | static_cast<uint64_t>(t.kind));
  }
  return hash;
}

ShardState ShardStateMemo::state(const TensorView* tv) {
  if (hasSymbolicSizes(tv)) {
    return shardState(tv);
  }
  const auto dimOf = [](const IterDomain* id) { return std::pair(id->extent().constValue(), id->iterType()); };
  Key key{mapped(tv->getLogicalDomain(), dimOf), tv->loopTransforms(), tv->getDeviceMesh()};
  if (const auto known = states_.find(key); known != states_.end()) {
    return known->second;
  }
  return states_.emplace(std::move(key), shardState(tv)).first->second;
}

}  // namespace meshfuse
