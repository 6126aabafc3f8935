// The world of the processes that a launcher started.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

// The sizes at which one algorithm replaces another, in bytes that one rank publishes: its whole input.
struct HostThresholds {
  int64_t slots = 8 << 10;            // up to here inputs go through a slot: one synchronization, one copy more
  int64_t slotsOfSharedInput = 1024;  // the same for inputs in shared memory, where ranks have a core each
  int64_t reduceAllOfTwo = 1 << 20;   // up to here each of two ranks computes the whole of an all-reduce
  int64_t readProcess =
      16 << 10;               // from here the kernel of the system copies blocks of ordinary memory that are only moved
  int64_t piece = 256 << 10;  // ordinary buffers go through the staging area in pieces of this size, at most 1 MiB
};

// MESHFUSE_DEADLINE, a number of seconds, else 300 s. UserError if it is none.
[[nodiscard]] std::chrono::milliseconds deadlineOfEnvironment();

struct TransportOptions {
  std::chrono::milliseconds deadline = deadlineOfEnvironment();  // of every wait
  std::chrono::milliseconds busyLimit{3'600'000};  // how long a wait may be extended for a peer that says it is busy
  size_t heapBytes = size_t{64} << 30;  // address space for `allocate`, of each rank; memory is taken as needed
  HostThresholds thresholds = {};
  // Names of algorithms (algorithms.h). They replace those that `thresholds` choose. The same on all ranks. Empty: the value of
  // MESHFUSE_ALGORITHMS, if it is set.
  std::string algorithms = {};
  // Where each rank writes the record of its last 1000 calls when one of them fails, for `meshfuse blame`; empty: the directory that
  // MESHFUSE_FLIGHT_DIR names, if it is set.
  std::string flightDirectory = {};
  bool messagesOnly = false;  // messages also among the ranks of one host, for tests of the network transport
};

// True if the environment shows that a launcher started this process as one of several ranks.
[[nodiscard]] bool startedByLauncher();

// If the launcher has bound rank 0 to one of several cores, rank 0 says so once on standard error.
// Ranks of one host share memory (transport "host"); ranks of several exchange messages through UCX (transport "network").
// Under a launcher: PMIx of `mpirun` or `srun`, else RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Alone, or without one: the
// communicator of one rank. Collective: all ranks open, in the same order if they open several. DeviceError if a peer does not
// connect within the deadline. Rank 0 reports the missing ranks; if rank 0 itself is missing, the error comes half a deadline later.
[[nodiscard]] std::unique_ptr<Communicator> openWorld(const TransportOptions& options = {});

// Every survivor calls this if openWorld has thrown on all ranks. Returns the world of the ranks that call within the deadline of the first
// caller; if all of the launcher's ranks call, it does not wait for the deadline. Ranks of several hosts connect at the host of
// MASTER_ADDR, at the port above MASTER_PORT; if no rank is left there, the ranks of each host make their own world. DeviceError for a rank
// that calls later. (Use Communicator::shrink for a world that was open and failed.)
[[nodiscard]] Communicator::Survivors openSurvivors(const TransportOptions& options = {});

}  // namespace meshfuse
