// insert_bounds_checks: between an op that reads or writes elements at data-dependent positions and its index stands a checked_index.
//
//   T2 = embedding(T1, T0) of T0 [V, D]   ->   T3 = checked_index(T1, V), T2 = embedding(T3, T0)
//
// A kernel then touches no foreign memory: an index out of range fails the run. The extent is that of the whole table, whatever part
// a rank will hold. A check stands where its index does, so that it changes no plan. One for all ops that read one index with one
// extent; none where the index provably fits, or where the op counts what is outside as zero or skips it. Before: a fusion of constant sizes
// with final shardings; after: no op reads or writes by an index that may be out of range. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool insertBoundsChecks(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
