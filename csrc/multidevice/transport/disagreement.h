// The error of all ranks if two ranks make different calls where they should make the same one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "multidevice/transport/call.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

// The user made different calls on two ranks. All ranks get the same text, and the group is closed.
class DisagreementError : public UserError {
 public:
  using UserError::UserError;
};

// The failure that closes a group.
struct GroupFailure {
  std::string text;
  bool isDisagreement = false;  // a DisagreementError on all ranks, else a DeviceError
};

[[noreturn]] void throwFailure(const GroupFailure& failure);

// The call of one of the two ranks.
struct DifferingCall {
  int64_t rank;
  CallRecord record;
  std::string_view message = {};  // of an exchange
  std::string place = {};
};

// The user's mistake, if `programs`, which may be null, finds one.
[[nodiscard]] std::optional<GroupFailure> disagreement(const Communicator::Programs* programs, const DifferingCall& a,
                                                       const DifferingCall& b);
// The user's mistake if one is found, else the difference of the two records.
[[nodiscard]] GroupFailure differenceOf(std::string_view transport, const Communicator::Programs* programs,
                                        const DifferingCall& a, const DifferingCall& b);

}  // namespace meshfuse
