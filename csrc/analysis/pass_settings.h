// What a user may set of the passes.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/planner_settings.h"

namespace meshfuse {

struct PassSettings {
  std::optional<PlannerSettings> planner = {};  // in the place of those of the fusion
  // Partial sums of 16-bit types that ranks combine travel as Float, and are rounded once: bytes for exactness. By default they travel as
  // what the op gives.
  bool reduceInFloat = false;
  bool optimizeReshards = true;  // false: redistributions stay where decompose-reshardings puts them
  // What one more collective must save, in bytes that a rank no longer writes: about what it writes while a call synchronizes.
  int64_t callBytes = int64_t{64} << 10;
  // Independent collectives of one kind are one where they together have no more bytes; 0: each is its own. A packed byte may be
  // written and read twice more than an unpacked one, so that this much costs no more than the call it saves.
  int64_t bucketBytes = int64_t{16} << 10;
};

}  // namespace meshfuse
