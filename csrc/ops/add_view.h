// Shape ops with constant or symbolic parameters, as passes add them: the result has exactly the given shape.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/fusion.h"

namespace meshfuse {

// `in` reshaped to these sizes, with the same number of elements; `in` itself if it has these sizes already.
TensorView* addReshape(TensorView* in, const std::vector<IntExpr>& shape);
TensorView* addReshape(TensorView* in, const std::vector<int64_t>& shape);
// order[new dim] = old dim; `in` itself if nothing moves.
TensorView* addPermute(TensorView* in, const std::vector<int64_t>& order);
// One start, stop and step for each dim: 0 <= start <= stop <= extent.
TensorView* addSlice(TensorView* in, const std::vector<IntExpr>& starts, const std::vector<IntExpr>& stops,
                     const std::vector<IntExpr>& steps);
// One width for each dim and side; negative widths cut. Added elements are `fill`.
TensorView* addPad(TensorView* in, Val* fill, const std::vector<IntExpr>& before, const std::vector<IntExpr>& after);

}  // namespace meshfuse
