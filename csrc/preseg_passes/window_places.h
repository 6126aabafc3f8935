// If only ops on another mesh read a window, computes the window on that mesh.
//
//   T0[8, 3] S0(x) on [0..3], T1 = slice(T0, 4:5), T2 = squeeze(T1), T3 = neg(T2) on [2]     T1 and T2 are on [2] too: nothing moves
#pragma once

namespace meshfuse {

class Fusion;
class PlanMemo;

// Runs before reshardings are decomposed. A window that the user did not shard, and the shape ops after it, get the sharding of their
// reader if fewer bytes are then moved.
bool placeWindowsWithReaders(Fusion& fusion, PlanMemo& plans);

}  // namespace meshfuse
