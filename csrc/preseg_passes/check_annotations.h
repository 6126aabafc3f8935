// check_annotations: checks the rules for the shardings that users write, and reports all violations as one UserError.
//
// A bound loop dim has the extent of its axis; an axis is bound once in a tensor among iteration dims; a bound index is made of
// whole digits of logical dims, so that digits describe a rank's part; a partial sum is combined before any other op reads it. Changes
// nothing. Sizes that are still symbols are not checked. Before: any fusion. After: in the shardState() of a tensor on a mesh without
// symbolic axes, no dim of constant extent is opaque.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool checkAnnotations(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
