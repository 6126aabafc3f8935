// Agreement: before anything runs, all ranks compare what they planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace meshfuse {

// Begins a line that says what is taken to be so: ranks in which it differs made a UserError.
inline constexpr std::string_view kAssumedSizes = "with even parts, ";

class Communicator;
class Fusion;
struct DeviceInfo;

// Whether some rank communicates in a planned program.
[[nodiscard]] bool communicates(const Fusion& global);

// What they must have alike beside the program, one line each: the version of this library, what kernels are compiled for, and how
// many plans are kept, which decides about the calls that compile. What may differ (processors, layouts, verification, kernels
// at hand) is not part of it.
[[nodiscard]] std::string platformText(std::string_view libraryVersion, const DeviceInfo& device, size_t maxPlans);

struct SharedText {
  std::string platform;
  std::string
      program;  // the planned global one, which says all that ranks must do alike; local programs and kernels differ
  std::string
      assumed;  // lines that begin with kAssumedSizes: ranks may differ in them, but not if they differ in the program
};

// Compares the hash of (call number, platform, program) on all ranks, before anything runs. UserError on every rank, with the same
// text, that names the ranks that differ and the first line in which they do; another call may follow.
// If a rank refuses the call (sayNo), the others get a DeviceError that names it and carries its text.
void agreeOnPlan(Communicator& communicator, const SharedText& shared, int64_t call);

// Tells the peers that this rank refuses a call: in the comparison, if they come to it or refuse as well; those that have begun
// to run fail, with this text. Never throws.
void sayNo(Communicator& communicator, std::string_view why) noexcept;

}  // namespace meshfuse
