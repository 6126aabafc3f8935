// Refuses programs with ops that their device does not compute.
#pragma once

namespace meshfuse {

class Device;
struct PlannedProgram;

// UserError with the name of the first op that only a routine computes, and for which the device has none. The
// same on all ranks: also on those whose parts of the operands are empty, which would not run the op.
// The device `cpu` computes all ops.
void checkRoutines(const PlannedProgram& program, const Device& device);

}  // namespace meshfuse
