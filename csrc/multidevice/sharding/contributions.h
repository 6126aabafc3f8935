// Who holds the contributions to a partial sum.
#pragma once

#include <string>

#include "digits/prover.h"

namespace meshfuse {

class TensorView;

// Device axes own the Partial dim of a tensor, and have as many ranks as it has contributions: each rank has one. What is wrong, or "";
// "" for a tensor without such a dim.
[[nodiscard]] std::string wrongContributions(const TensorView* tv, const Prover& prover = {});

}  // namespace meshfuse
