// The GPUs for which tests compile kernels. Under sanitizers one: NVRTC, which takes most of the time, is not instrumented.
#pragma once

#include <array>

#include "sanitized.h"

namespace meshfuse {

inline constexpr auto kArchitectures = [] {
  if constexpr (kSanitized) {
    return std::array{"sm_90a"};
  } else {
    return std::array{"sm_80", "sm_90a", "sm_100"};
  }
}();

}  // namespace meshfuse
