// Checks which ranks hold the contributions to a partial sum.
#pragma once

#include <string>

#include "digits/prover.h"

namespace meshfuse {

class TensorView;

// Device axes must own the Partial dim of a tensor and have as many ranks as the dim has contributions, so that each rank holds one.
// Returns the violation, or "" if there is none or the tensor has no such dim.
[[nodiscard]] std::string wrongContributions(const TensorView* tv, const Prover& prover = {});

}  // namespace meshfuse
