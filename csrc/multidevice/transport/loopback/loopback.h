// Virtual ranks: the threads of one process as the ranks of a program. The reference for every other transport.
//
// Results do not depend on scheduling. Every call is compared with its peers' (kind, team, type, count, operation, root); a
// difference, a deadlock, a rank that throws or leaves early and an expired deadline all become a DeviceError on every rank that names the
// ranks and their calls. If Communicator::programs() describes the difference, it is a DisagreementError instead. Faults can be injected.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

struct LoopbackFault {
  enum class Kind : uint8_t {
    Delay,            // the rank sleeps before the call
    Drop,             // the rank skips the call: its buffers stay as they are
    Throw,            // the rank throws a UserError instead of making the call
    CorruptExchange,  // the call, an exchange, sends a message with one bit changed
  };
  Kind kind = Kind::Delay;
  int64_t rank = 0;
  int64_t call = 0;  // the rank's calls, counted from 0; an exchange and a group of transfers are one call each
  std::chrono::milliseconds delay{0};
};

// The time that a call takes beside its copies: `delay`, and the bytes that the rank receives. The thread sleeps, so the link takes no
// processor.
struct LoopbackLink {
  std::chrono::microseconds delay{0};
  double bytesPerSecond = 0;  // 0: no limit
};

struct LoopbackOptions {
  std::chrono::milliseconds deadline{300'000};  // of every wait, while no awaited rank is busy
  std::vector<LoopbackFault> faults = {};
  LoopbackLink link = {};
  uint64_t jitterSeed = 0;  // not 0: each rank sleeps for a random time, up to 200 us, before some of its calls
  // As TransportOptions::flightDirectory.
  std::string flightDirectory = {};
  // If set: receives the calls of each rank in order, one line each, as `all-reduce(sum) of 64 Float in team {0, 1}`.
  std::vector<std::vector<std::string>>* trace = nullptr;
};

// Runs `body` as every one of `ranks` ranks at once, each on a thread whose default world is its communicator. Returns when
// all have ended; if some threw, rethrows the first exception.
void runLoopback(int64_t ranks, const std::function<void(Communicator&)>& body, const LoopbackOptions& options = {});

}  // namespace meshfuse
