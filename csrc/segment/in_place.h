// Decides which results a kernel writes directly into the input that they alias.
#pragma once

#include <vector>

#include "segment/segment.h"

namespace meshfuse {

// Moves segments that write an aliased output, and whose results no other segment reads, to the end: they run after all readers of
// the input. Then notes each aliased output whose writer is the last reader of the input and reads the input, if at all, only at the
// element that it writes: in Segment::inPlace of the writer, and in the aliases and layouts of its group. Other aliased outputs are
// computed in other memory and copied at the end of the program.
void arrangeInPlace(const Fusion& fusion, const LocalContext& context, std::vector<Segment>& segments);

}  // namespace meshfuse
