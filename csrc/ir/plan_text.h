// The plan of a redistribution as text: the value of the attribute `plan`.
//
//   [all_to_all(x) on M0 [4:x 2, 6] -> [8, 2:x 3], slice(y) on M0 [8, 2:x 3] -> [2:y 4, 2:x 3]]
//
// A step names its team, its mesh, and the states before and after. A state is a list of dims, a dim the sizes of its digits, the
// outermost first; `2:x` is owned by axis x. `P(x)` after the dims: ranks along x hold terms of a sum. A dim in parts of given sizes
// ends with `parts [2, 3, 4]`. If a step runs over parts of axes, `M0 {x_2: 3, x_1: 2}` lists the parts. A permutation ends with
// `sources [1, 0]`; a transfer of tiles names the mesh of its second state: `transfer(x) on M0 [2:x 4] -> M1 [4:a 2]`.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expr.h"

namespace meshfuse {

// mesh: the number by which the text names a mesh.
[[nodiscard]] std::string planText(std::span<const CommStep> plan,
                                   const std::function<int64_t(const DeviceMesh&)>& mesh);
// UserError if the text is not a plan on these meshes.
[[nodiscard]] std::vector<CommStep> parsePlan(std::string_view text, std::span<const DeviceMesh> meshes);

// Text of a halo exchange step: `transfer(x)` or `slice`.
[[nodiscard]] std::string toString(const HaloStep& step);
[[nodiscard]] HaloStep parseHaloStep(std::string_view text);

}  // namespace meshfuse
