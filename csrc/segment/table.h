// The passes over a local fusion, in order. The fusion is then cut into steps.
#pragma once

#include <span>

#include "base/pass_runner.h"

namespace meshfuse {

class Fusion;
struct LocalContext;

// Name and function of each pass, and the reason for its position; printPasses() of the table documents the order.
[[nodiscard]] std::span<const PassRow<Fusion, LocalContext>> localPasses();

// Runs the table. Afterwards every Matmul and Linear is a library call, and each op gets operands in the memory order that it needs. InternalError
// if a pass leaves a wrong fusion.
void runLocalPasses(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
