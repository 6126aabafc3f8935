// Ranks as child processes of a test, so that a test can kill and stop them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "multidevice/transport/communicator.h"
#include "multidevice/transport/host/world.h"

namespace meshfuse {

struct ProcessOutcome {
  std::string text;    // what the body returned, or what it or openWorld threw
  bool ended = false;  // by itself, with code 0
  std::chrono::milliseconds after{0};
};

// Forks `ranks` processes, each of which opens the world and runs `body`; its text comes back through a pipe. A process that has not
// ended after `patience` is killed.
std::vector<ProcessOutcome> runProcesses(int ranks, const std::function<std::string(Communicator&)>& body,
                                         const TransportOptions& options,
                                         std::chrono::milliseconds patience = std::chrono::milliseconds(15000));

}  // namespace meshfuse
