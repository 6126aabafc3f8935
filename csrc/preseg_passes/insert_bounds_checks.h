// insert_bounds_checks: inserts a checked_index between an op that reads or writes elements at data-dependent positions and its index.
//
//   T2 = embedding(T1, T0) of T0 [V, D]   ->   T3 = checked_index(T1, V), T2 = embedding(T3, T0)
//
// A kernel then never reads or writes outside of its tensors: an index out of range fails the run. The extent is the extent of the whole
// table, not of the part that a rank will hold. The check has the sharding of its index, so it changes no plan. All ops that read one index
// with one extent share a check. There is no check if the index provably fits, or if the op reads zero, or writes nothing, outside of the
// range. Before: shardings have propagated, since a check gets that of its index; sizes may be symbols. After: no op reads or writes by an
// index that may be out of range. UserError if a table has no elements along the indexed dim. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool insertBoundsChecks(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
