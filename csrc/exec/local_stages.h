// The context of a rank's stages, from its local program to its steps.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/pass_settings.h"
#include "segment/local_context.h"
#include "tensor/argument.h"

namespace meshfuse {

class Fusion;
struct SegmentedProgram;

// `local`: the part of rank `rank` of `program`, whose plan the ranks have agreed on. If the steps of this program are on disk, its passes are
// not verified again: they were when the steps were stored.
[[nodiscard]] LocalContext localContext(const SegmentedProgram& program, const Fusion& local,
                                        std::span<const Argument> inputs, int64_t rank, const DeviceInfo& device,
                                        const PassSettings& passes);

}  // namespace meshfuse
