// Agreement: before anything runs, all ranks compare what they planned.
#pragma once

#include <cstdint>
#include <string_view>

namespace meshfuse {

class Communicator;
class Fusion;

// Compares the hash of (call number, planned global program, communication steps) on all ranks. DeviceError on every rank, with
// the same text, that names the ranks that differ and the first line in which they do.
// If a rank has no plan (sayNoPlan), the others' error names it and carries its text.
void agreeOnPlan(Communicator& communicator, const Fusion& global, const Fusion& local, int64_t call);

// Takes this rank's part in the comparison when it failed to plan, so that nobody waits for it. Never throws.
void sayNoPlan(Communicator& communicator, std::string_view why) noexcept;

}  // namespace meshfuse
