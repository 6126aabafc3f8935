// Calls of two ranks that should have met and are not the same: whose mistake that is, and what the group is told.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "multidevice/transport/call.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

// Ranks were asked for different things: their user's mistake, with the same text on all of them. The group is dead then.
class DisagreementError : public UserError {
 public:
  using UserError::UserError;
};

// What ends a group.
struct GroupFailure {
  std::string text;
  bool isDisagreement = false;  // a DisagreementError on all ranks, else a DeviceError
};

[[noreturn]] void throwFailure(const GroupFailure& failure);

// One side: what the rank calls, and where it is.
struct DifferingCall {
  int rank;
  CallRecord record;
  std::string_view message = {};  // of an exchange
  std::string place = {};
};

// Nullopt where nobody knows what the two mean. programs: may be null.
[[nodiscard]] std::optional<GroupFailure> disagreement(const Communicator::Programs* programs, const DifferingCall& a,
                                                       const DifferingCall& b);
// The same, or that the transport found the calls to be different.
[[nodiscard]] GroupFailure differenceOf(std::string_view transport, const Communicator::Programs* programs,
                                        const DifferingCall& a, const DifferingCall& b);

}  // namespace meshfuse
