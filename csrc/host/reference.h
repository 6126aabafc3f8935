// Groups for the reference interpreter.
#pragma once

#include <memory>

#include "ir/fusion_cloner.h"
#include "schedule/group.h"

namespace meshfuse {

// The group as a fusion of its own. Its inputs are the tensors that the group reads, then all scalar inputs of `fusion`; extents and
// offsets are rewritten by `bound`.
[[nodiscard]] std::shared_ptr<const Fusion> referenceOf(const Fusion& fusion, const Group& group,
                                                        const FusionCloner::Rewrite& bound);

}  // namespace meshfuse
