// check_annotations: what users may say of shardings; every violation at once, as one UserError.
//
// A bound loop dim has the extent of its axis; an axis is bound once in a tensor among iteration dims; a bound index is made of
// whole digits of logical dims, so that a rank's part is a rectangle; partial sums are added up before anything else is made of them.
// Changes nothing. Sizes that are still symbols are not judged. Before: any fusion. After: shardState() of every tensor has no opaque dim.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool checkAnnotations(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
