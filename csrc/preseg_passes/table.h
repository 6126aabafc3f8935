// The graph passes in order, after concretize and before localize.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/pass_runner.h"

namespace meshfuse {

class Fusion;
class PassContext;

// Name and function of each pass, and the reason for its position; printPasses() of the table documents the order.
[[nodiscard]] std::span<const PassRow<Fusion, PassContext>> presegPasses();

// Runs the table; afterwards every edge is aligned or local, or its consumer is a Redistribute or a window with a halo exchange. UserError
// from check-annotations, and from later passes on an indexed table without rows, a plan in the text that does not fit, or a size that has
// to be constant; InternalError if a pass leaves a wrong fusion. `values`: of size symbols, for which redistributions are planned and costs
// compared.
void runPresegPasses(Fusion& fusion, PassContext& context, const std::map<std::string, int64_t>& values = {});

// One pass of the table, for a user who wants to see or change its result: runPass(fusion, "propagate-shardings"). True if it changed the
// fusion. A later call of the fusion runs all passes; each is idempotent. UserError for an unknown name, or if the pass needs an earlier one
// that has not run; the fusion is then unchanged. `values`: as above.
bool runPass(Fusion& fusion, std::string_view pass, const std::map<std::string, int64_t>& values = {});

// The passes up to propagate-shardings, which need no sizes; after them, specialize.h replaces symbolic sizes of axes.
void runPassesBeforeSizes(Fusion& fusion, PassContext& context);
// The other passes of runPresegPasses(), after runPassesBeforeSizes() with the same context, for a fusion of constant sizes.
void runPassesAfterPropagation(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
