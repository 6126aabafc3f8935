// The graph passes in order, after concretize and before localize.
#pragma once

#include <span>

#include "base/pass_runner.h"

namespace meshfuse {

class Fusion;
class PassContext;

// Name and function of each pass, and the reason for its position; printPasses() of the table documents the order.
[[nodiscard]] std::span<const PassRow<Fusion, PassContext>> presegPasses();

// Runs the table; afterwards every edge is aligned or local, or its consumer is a Redistribute. UserError from
// check-annotations; InternalError if a pass leaves a wrong fusion.
void runPresegPasses(Fusion& fusion, PassContext& context);

// The passes up to propagate-shardings, which need no sizes; after them, specialize.h replaces symbolic sizes of axes.
void runPassesBeforeSizes(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
