#include "multidevice/transport/disagreement.h"

#include <utility>

namespace meshfuse {

void throwFailure(const GroupFailure& failure) {
  if (failure.isDisagreement) {
    throw DisagreementError(failure.text);
  }
  throwDeviceError(failure.text);
}

std::optional<GroupFailure> disagreement(const Communicator::Programs* programs, const DifferingCall& a,
                                         const DifferingCall& b) {
  if (programs == nullptr) {
    return std::nullopt;
  }
  const DifferingCall& low = a.rank < b.rank ? a : b;
  const DifferingCall& high = a.rank < b.rank ? b : a;
  const auto described = [](const DifferingCall& call) {
    const bool exchanges = call.record.kind == Collective::Exchange;
    return Communicator::Programs::Call{call.rank, exchanges ? 0 : call.record.program,
                                        exchanges ? call.message : std::string_view()};
  };
  std::optional<std::string> text = programs->difference(described(low), described(high));
  if (!text) {
    return std::nullopt;
  }
  return GroupFailure{fmt::format("{}; found between {} and {}", *text, low.place, high.place), true};
}

GroupFailure differenceOf(std::string_view transport, const Communicator::Programs* programs, const DifferingCall& a,
                          const DifferingCall& b) {
  if (std::optional<GroupFailure> known = disagreement(programs, a, b)) {
    return std::move(*known);
  }
  return {fmt::format("[{}] ranks {} and {} disagree: {}; {}, {}", transport, a.rank, b.rank,
                      difference(a.rank, a.record, b.rank, b.record), a.place, b.place)};
}

}  // namespace meshfuse
