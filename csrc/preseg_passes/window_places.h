// Windows that only another mesh reads, taken there.
//
//   T0[8, 3] S0(x) on [0..3], T1 = slice(T0, 4:5), T2 = squeeze(T1), T3 = neg(T2) on [2]     T1 and T2 are on [2] too: nothing moves
#pragma once

namespace meshfuse {

class Fusion;
class PlanMemo;

// Before reshardings are decomposed: places windows that the user did not, and the changes of shape after them, with their reader
// where less is moved then.
bool placeWindowsWithReaders(Fusion& fusion, PlanMemo& plans);

}  // namespace meshfuse
