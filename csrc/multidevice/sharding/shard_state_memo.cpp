#include "multidevice/sharding/shard_state_memo.h"

#include <algorithm>

#include "base/hash.h"

namespace meshfuse {

namespace {

bool hasSymbolicSizes(const TensorView* tv) {
  const auto isSymbolic = [](const IterDomain* id) { return !id->extent().isConst(); };
  return (tv->hasDeviceMesh() && tv->getDeviceMesh().isSymbolic()) ||
         std::ranges::any_of(tv->getLogicalDomain(), isSymbolic) ||
         std::ranges::any_of(tv->getLoopDomain(), isSymbolic);
}

bool sameTransform(const LoopTransform& a, const LoopTransform& b) {
  return a.kind == b.kind && a.axis == b.axis && a.factor == b.factor && a.innerSplit == b.innerSplit &&
         a.order == b.order && a.type == b.type && a.sizes == b.sizes;
}

}  // namespace

bool ShardStateMemo::areEqual(const Key& a, const Key& b) {
  return a.dims == b.dims && a.mesh == b.mesh && std::ranges::equal(a.loops, b.loops, sameTransform);
}

uint64_t ShardStateMemo::hashOf(const Key& key) {
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
  Key key{{}, tv->loopTransforms(), tv->getDeviceMesh()};
  for (const IterDomain* id : tv->getLogicalDomain()) {
    key.dims.emplace_back(id->extent().constValue(), id->iterType());
  }
  const uint64_t hash = hashOf(key);
  const auto [first, last] = states_.equal_range(hash);
  const auto known = std::find_if(first, last, [&](const auto& entry) { return areEqual(entry.second.key, key); });
  if (known != last) {
    return known->second.state;
  }
  return states_.emplace(hash, Entry{std::move(key), shardState(tv)})->second.state;
}

}  // namespace meshfuse
