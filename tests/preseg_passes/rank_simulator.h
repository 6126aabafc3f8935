// Runs the local fusion of every rank side by side: each op by the reference interpreter, each collective by its definition.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/fusion.h"
#include "tensor/tensor.h"

namespace meshfuse {

// The part of a global tensor that the device at position `device` of its mesh holds, and back.
[[nodiscard]] Tensor localPart(const Tensor& global, const TensorView* tv, int64_t device);

// programs[rank], which are one unless parts are uneven, and inputs[rank][k]; the result is outputs[rank][k]. Ranks are positions in
// `mesh`, whose axes the coordinates count.
[[nodiscard]] std::vector<std::vector<Tensor>> simulateRanks(const std::vector<const Fusion*>& programs,
                                                             const DeviceMesh& mesh,
                                                             const std::vector<std::vector<Tensor>>& inputs);

// The collectives of a local fusion, sorted: "all_gather(x)".
[[nodiscard]] std::vector<std::string> communications(const Fusion& local);

}  // namespace meshfuse
