// Which results may be written straight into the input they alias.
#pragma once

#include <map>
#include <vector>

#include "segment/segment.h"

namespace meshfuse {

// Moves segments that nobody waits for and that write an aliased output behind those that still read the input. Then: output
// Val id -> input Val id, for every alias of the fusion whose writer is the last reader of the input and reads it, if at all,
// only at the element it writes. The other aliases are written elsewhere and copied at the end.
[[nodiscard]] std::map<int, int> arrangeInPlace(const Fusion& fusion, std::vector<Segment>& segments);

}  // namespace meshfuse
