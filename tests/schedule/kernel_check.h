// Runs a fusion as one scheduled kernel through the tile interpreter and compares it with the reference interpreter.
#pragma once

#include <string>
#include <vector>

#include "ir/fusion.h"
#include "schedule/group.h"
#include "tensor/argument.h"
#include "tile/interpreter.h"

namespace meshfuse {

struct KernelCheck {
  std::string difference;  // empty: the results agree
  KernelPlan plan;
  tile::Interpretation traffic;
};

// The whole fusion as one group.
[[nodiscard]] Group wholeGroup(const Fusion& fusion);
// Why no template takes the fusion as one kernel; empty if one does.
[[nodiscard]] std::string refusal(const Fusion& fusion, const DeviceInfo& device);
// UserError if no template takes it. inputs: contiguous or strided tensors and scalars.
[[nodiscard]] KernelCheck checkKernel(const Fusion& fusion, const DeviceInfo& device,
                                      const std::vector<Argument>& inputs);

}  // namespace meshfuse
