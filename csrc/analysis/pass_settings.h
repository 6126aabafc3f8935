// What a user may set of the passes.
#pragma once

#include <cstdint>

namespace meshfuse {

struct PassSettings {
  bool optimizeReshards = true;  // false: redistributions stay where decompose-reshardings puts them
  // What one more collective must save, in bytes that a rank no longer writes: about what it writes while a call synchronizes.
  int64_t callBytes = int64_t{64} << 10;
};

}  // namespace meshfuse
