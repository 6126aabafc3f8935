// ShardStateMemo: keeps the states of the tensors of one fusion, so that each is computed once. A state follows from the sizes, the loops
// and the mesh of its tensor, and is kept with these: a tensor whose sharding has changed has another entry, and tensors that are alike
// share one.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/tensor_view.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

class ShardStateMemo {
 public:
  static constexpr std::string_view kName = "shard-state-memo";

  // shardState(tv). It is computed each time while a size is a symbol: the text of a symbol does not tell the facts about it.
  ShardState state(const TensorView* tv);

  int64_t size() const { return std::ssize(states_); }

 private:
  struct Key {
    std::vector<std::pair<int64_t, IterType>> dims;  // of the logical domain
    std::vector<LoopTransform> loops;
    DeviceMesh mesh;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };

  std::unordered_map<Key, ShardState, KeyHash> states_;
};

}  // namespace meshfuse
