// Pictures of meshes and of sharded tensors.
#pragma once

#include <string>

#include "exec/explain.h"

namespace meshfuse {

// Style rules: one colour for each rank.
[[nodiscard]] std::string rankColours(const Explanation& e);
// Ranks in a grid, the last axis in rows.
[[nodiscard]] std::string meshPicture(const ExplainedMesh& mesh);
struct PictureOptions {
  double width;  // at most
  double height;
  bool labels = true;  // the ranks that hold each piece
};
// Draws two dims of a tensor to scale; sharded dims are preferred. Empty if no digits describe the shards, or if there are too many.
[[nodiscard]] std::string tensorPicture(const ExplainedTensor& tensor, const PictureOptions& options);

}  // namespace meshfuse
