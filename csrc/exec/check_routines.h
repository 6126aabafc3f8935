// Refuses programs with ops that their device does not compute.
#pragma once

namespace meshfuse {

class Device;
class Fusion;

// `planned`: the global program. UserError with the name of the first op that only a routine computes, and for which the device has none. The
// same on all ranks: also on those whose parts of the operands are empty, which would not run the op.
void checkRoutines(const Fusion& planned, const Device& device);

}  // namespace meshfuse
