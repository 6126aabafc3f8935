// Random memory order, loop transforms and bindings on one of some meshes.
#pragma once

#include <random>
#include <vector>

#include "ir/tensor_view.h"

namespace meshfuse {

void transformAtRandom(TensorView* tensor, const std::vector<DeviceMesh>& meshes, std::mt19937_64& random);

}  // namespace meshfuse
