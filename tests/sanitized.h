// Whether this build looks for faults as it runs. It is many times slower, so tests of many random cases take a part of them there: their
// figures are those of the other builds.
#pragma once

namespace meshfuse {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace meshfuse
