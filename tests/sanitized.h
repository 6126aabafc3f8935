// Whether this build looks for faults as it runs. It is many times slower, so tests of many random cases take a part of them there: their
// figures are those of the other builds.
#pragma once

namespace meshfuse {

#if defined(MESHFUSE_SANITIZE_ADDRESS) || defined(MESHFUSE_SANITIZE_THREAD)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace meshfuse
