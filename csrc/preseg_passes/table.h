// The graph passes in order, after concretize and before localize.
#pragma once

#include <span>

#include "base/pass_runner.h"

namespace meshfuse {

class Fusion;
class PassContext;

// Name, function and the reason why it stands where it does; printPasses() of it is the documentation of the order.
[[nodiscard]] std::span<const PassRow<Fusion, PassContext>> presegPasses();

// Runs the table; afterwards every edge is aligned or local, or its consumer is a Redistribute. UserError from
// check-annotations; InternalError if a pass leaves a wrong fusion.
void runPresegPasses(Fusion& fusion, PassContext& context);

// Those up to propagate-shardings, which do without sizes: afterwards specialize.h gives axes of symbolic size theirs.
void runPassesBeforeSizes(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
