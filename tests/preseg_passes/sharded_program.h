// A program on a mesh, taken through all passes and run on simulated ranks against the interpretation of the whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/pass_settings.h"
#include "ir/fusion.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

// Splits and binds dims of `tv` to axes by name: shard(t, mesh, {{0, "x"}}) is an outer split of dim 0, x outermost first.
struct DimAxis {
  int dim;
  std::string axis;
};
void shard(TensorView* tv, const DeviceMesh& mesh, const std::vector<DimAxis>& dims = {});

// An inner split of the dim by the axis: cyclic.
void shardCyclic(TensorView* tv, const DeviceMesh& mesh, int dim, const std::string& axis);

struct ShardedRun {
  std::unique_ptr<Fusion> planned;  // after the passes
  std::unique_ptr<Fusion> local;
  std::vector<std::string> communications;  // sorted

  // Ops of the local program that are neither collectives nor views: an upper bound on kernels.
  std::vector<std::string> computations() const;
};

struct InputRange {
  double low = -1;
  double high = 1;
};

// Reshards stay where propagation leaves them.
inline constexpr PassSettings kPlainReshards{.optimizeReshards = false};

// `original` is left as it was. Inputs are reproducible; all ranks' outputs are compared with the interpreter's result, within
// its bounds.
[[nodiscard]] ShardedRun runSharded(const Fusion& original, InputRange range = {}, PassSettings settings = {});

// The cost of all tensors with a mesh and all Redistributes of a fusion of constant sizes.
[[nodiscard]] ReshardCost costOf(const Fusion& fusion);

using Steps = std::vector<std::string>;

}  // namespace meshfuse
