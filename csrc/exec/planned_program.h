// The planned program of a call: for a class of sizes, or for its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "exec/compile.h"

namespace meshfuse {

// Plans the program for result.sizes: sets `planned`, its remarks and reasons, and returns the program of the rank. The sizes become constants
// if no plan holds for the class, or if its redistributions are not those of `constant`, the fusion with the sizes of the call.
[[nodiscard]] std::shared_ptr<Fusion> planProgram(SegmentedProgram& result, const Fusion& fusion,
                                                  std::shared_ptr<Fusion> constant, int64_t rank,
                                                  const PassSettings& passes);
// The same for constant sizes with the redistributions of a class, whose values are in result.sizes.
[[nodiscard]] std::shared_ptr<Fusion> programFor(SegmentedProgram& result, const SegmentedProgram& ofClass,
                                                 int64_t rank);
// A planned program of a class with these values in place of symbols.
[[nodiscard]] std::shared_ptr<const Fusion> plannedFor(const Fusion& planned, const SymbolValues& values);

}  // namespace meshfuse
