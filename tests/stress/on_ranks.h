// A fusion on loopback ranks, every step verified, each rank's part held against the reference on whole tensors.
#pragma once

#include <functional>
#include <vector>

#include "exec/fusion_executor_cache.h"
#include "ir/fusion.h"

namespace meshfuse {

using BuildOnRanks = std::function<void(Fusion&, int64_t ranks)>;
using ShardLayout = std::function<Tensor(const Tensor& shard)>;  // how a rank lays out its shard

// Arguments as whole tensors, and each shard's place in memory; as it comes where there is no layout.
struct RankCall {
  std::vector<Argument> inputs;
  ShardLayout layout = nullptr;
};

// Cuts dim `dim` of x over all ranks.
TensorView* cut(TensorView* x, int dim, int64_t ranks);

// On 2 and on 4 ranks: one program a rank, called with each of `calls` twice. Inputs that outputs alias have their new values in
// the second call: such updates must be exact.
void expectAgreesOnRanks(const BuildOnRanks& build, const std::vector<RankCall>& calls, Verify verify = Verify::Always);

}  // namespace meshfuse
