// Groups for the reference interpreter.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ir/fusion_cloner.h"
#include "schedule/group.h"

namespace meshfuse {

// The group as a fusion of its own. Its inputs are the tensors that the group reads, then all scalar inputs of `fusion`; extents and
// offsets are rewritten by `bound`.
[[nodiscard]] std::shared_ptr<const Fusion> referenceOf(const Fusion& fusion, const Group& group,
                                                        const FusionCloner::Rewrite& bound);
// The same with these values in place of its symbols: the sizes of the tensors that it reads need not determine the symbols.
[[nodiscard]] std::shared_ptr<const Fusion> referenceWith(const std::shared_ptr<const Fusion>& reference,
                                                          const std::map<std::string, int64_t>& values);

}  // namespace meshfuse
