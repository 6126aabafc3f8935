// The passes over a local fusion, in order. The fusion is then cut into steps.
#pragma once

#include <span>

#include "base/pass_runner.h"

namespace meshfuse {

class Fusion;
struct LocalContext;

// Name, function and the reason why it stands where it does; printPasses() of it is the documentation of the order.
[[nodiscard]] std::span<const PassRow<Fusion, LocalContext>> localPasses();

// Runs the table. Afterwards every Matmul and Linear is a library call, and each op has its operands as it needs them. InternalError
// if a pass leaves a wrong fusion.
void runLocalPasses(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
