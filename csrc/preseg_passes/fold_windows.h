// fold_windows: replaces a slice of a pad by one pad.
//
//   T1 = pad(T0[8], 1, 1), T2 = slice(T1, 2:10)     T2 = pad(T0, -1, 1): one window, so ranks need one halo exchange
//
// Conditions: in every dim some element of the pad's operand remains, steps are 1, sizes are known, no dim of the slice is broadcast, the
// user did not shard the pad, and the pad is no output and has no memory order.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool foldWindows(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
