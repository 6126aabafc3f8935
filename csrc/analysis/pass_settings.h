// Settings of the passes.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/planner_settings.h"

namespace meshfuse {

struct PassSettings {
  std::optional<PlannerSettings> planner = {};  // replaces the settings of the fusion
  // true: ranks combine partial sums of 16-bit types as Float and round once, which doubles the bytes. false: in the type of the op's
  // result.
  bool reduceInFloat = false;
  bool optimizeReshards = true;  // false: redistributions stay where decompose-reshardings puts them
  // optimize-reshards adds a collective only if it saves at least this many bytes of memory writes on a rank: about the bytes that a rank
  // writes in the time of one synchronization.
  int64_t callBytes = int64_t{64} << 10;
  // Independent collectives of one kind are packed into one if they have at most this many bytes together; 0: no packing. Packing may
  // write and read each byte twice more; at the default, this costs no more than the saved call.
  int64_t bucketBytes = int64_t{16} << 10;
  bool overlapCommunication =
      true;            // collectives may run beside kernels, on threads of their own; false: all steps on one queue
  bool verify = true;  // the program after each pass; false: for a program that is planned, but never run
};

}  // namespace meshfuse
