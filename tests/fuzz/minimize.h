// Makes a failing program smaller while it still fails.
#pragma once

#include <functional>

#include "fuzz/program.h"

namespace meshfuse::fuzz {

// `fails` says whether a candidate still shows the failure; it is called at most `budget` times. Drops outputs, cuts tensors off as
// inputs with the values the reference gives them, skips ops, and drops shardings.
[[nodiscard]] Program minimize(const Program& program, const std::function<bool(const Program&)>& fails,
                               int budget = 400);

}  // namespace meshfuse::fuzz
