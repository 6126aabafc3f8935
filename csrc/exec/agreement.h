// Agreement: before anything runs, all ranks compare what they planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace meshfuse {

// Begins a line that says what is taken to be so: ranks in which it differs made a UserError.
inline constexpr std::string_view kAssumedSizes = "with even parts, ";

struct CallAccount;
class Communicator;
class Error;
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
  // Ranks may differ in these, but not if they differ in the program: lines that begin with kAssumedSizes, and what the whole sizes
  // of inputs are, which the program has too.
  std::string assumed;
  std::string sizes;
};

// Among several ranks, compares the hash of (call number, platform, program) on all ranks, before anything runs. UserError on every rank, with the same
// text, that names the ranks that differ and the first line in which they do; another call may follow.
// If a rank refuses the call (refuseCall), so do the others. `account`: for ranks that make another call instead.
void agreeOnPlan(Communicator& communicator, const SharedText& shared, const CallAccount& account, int64_t call);

// Tells the peers that this rank refuses a call because of the error being handled, and throws: where they come to the comparison
// or refuse as well, and each refusal is a UserError, that of the first rank that refuses, with the same text on every rank; else
// the error itself. Peers that come to the comparison get a DeviceError then. Where peers run the plan that they have, all ranks fail
// with the text of a refusal that is the user's (DisagreementError), or the peers with a DeviceError.
[[noreturn]] void refuseCall(Communicator& communicator, const Error& why);

}  // namespace meshfuse
