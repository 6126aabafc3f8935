#pragma once

namespace meshfuse {

// For a thread that mostly waits, and whose peers wait for it: from now on it runs soon after it wakes, also while other threads use all
// processors. The system gives it the same share of the processors in shorter slices, as Linux 6.12 and later can; elsewhere nothing changes.
void takeShortSlices() noexcept;

}  // namespace meshfuse
