// Pictures of meshes, and of tensors as the tiles that ranks hold.
#pragma once

#include <string>

#include "exec/explain.h"

namespace meshfuse {

// The hue of each rank, as style rules.
[[nodiscard]] std::string rankColours(const Explanation& e);
// Ranks in a grid, the last axis across.
[[nodiscard]] std::string meshPicture(const ExplainedMesh& mesh);
// A tensor drawn to its proportions in at most width x height: two of its dims, those that are cut first. Empty where its parts follow no
// digits, or are too many.
[[nodiscard]] std::string tensorPicture(const ExplainedTensor& tensor, double width, double height, bool labels);

}  // namespace meshfuse
