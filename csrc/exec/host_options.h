// What a compiled program takes from its planned program, the ranks and the device.
#pragma once

#include <memory>

#include "host/build.h"

namespace meshfuse {

class Communicator;
struct SegmentedProgram;

[[nodiscard]] BuildOptions hostOptions(const SegmentedProgram& program, const Communicator& communicator,
                                       const std::shared_ptr<Device>& device);

}  // namespace meshfuse
