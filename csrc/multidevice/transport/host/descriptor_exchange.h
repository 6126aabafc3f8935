// The exchange of file descriptors between the ranks of a host.
//
// Descriptors travel over Unix sockets, where the system tells each side the user of the other. A process of another user gets and gives
// none. A process of the same user must know the word that a rank has told its peers through the bootstrap.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/descriptor.h"
#include "multidevice/transport/host/waiting_clock.h"

namespace meshfuse {

struct GivenDescriptors {
  int64_t process = 0;  // the id of the peer's process; 0 if this process cannot see it
  std::vector<Descriptor> descriptors;
};

struct ExchangedDescriptors {
  std::vector<GivenDescriptors> byRank;  // this rank's own are not there
  std::string problem;                   // why they are not complete
};

// Collective over the bootstrap's ranks. Each rank gives the same number of descriptors, at most kMostGiven.
constexpr int64_t kMostGiven = 8;
[[nodiscard]] ExchangedDescriptors exchangeDescriptors(Bootstrap& bootstrap, std::span<const int> mine,
                                                       WaitingClock::time_point limit);

}  // namespace meshfuse
