// Pass "fold-windows": what a slice leaves of a pad is one pad.
//
//   T1 = pad(T0[8], 1, 1), T2 = slice(T1, 2:10)     T2 = pad(T0, -1, 1): one window, so ranks need one halo exchange
//
// Where something of the pad's operand is left in every dim, steps are 1, sizes are known, and nobody placed the pad.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool foldWindows(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
