// Halo exchanges that a plan may have, for the passes that plan. Everything else reads the steps of the plan: halo_exchange.h.
#pragma once

#include <cstdint>
#include <optional>

#include "multidevice/sharding/halo_exchange.h"

namespace meshfuse {

// The exchange of one operand, with the cost model of the fusion's planner settings. Empty if sizes or offsets are not constant, or if
// the operand is a partial sum. For an IndexSelect `messages` is empty: the sender is known only at run time.
[[nodiscard]] std::optional<HaloExchange> haloExchange(const Expr* expr, int64_t operand);
// One transfer that brings what two transfers of one operand bring. Empty if they go to different meshes, or if their parts have gaps.
[[nodiscard]] std::optional<HaloExchange> together(const TensorView* operand, const HaloExchange& a,
                                                   const HaloExchange& b);

}  // namespace meshfuse
