// Ranks as child processes of a test, so that a test can kill and stop them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "multidevice/transport/communicator.h"
#include "multidevice/transport/host/world.h"

namespace meshfuse {

struct ProcessOutcome {
  std::string text;                    // what the body returned, or what it or openWorld threw
  bool ended = false;                  // by itself, with code 0
  std::chrono::milliseconds after{0};  // of machine time
  pid_t process = 0;
};

// Processes with the environment of the ranks of one world. Several groups may run side by side.
class RankProcesses {
 public:
  // Forks `ranks` processes that run `body` with their rank; its text comes back through a pipe.
  RankProcesses(int ranks, const std::function<std::string(int)>& body);
  // Kills those that still run.
  ~RankProcesses();
  RankProcesses(RankProcesses&& other) noexcept;

  // Collects what has come; whether the processes of all ranks but these have ended.
  bool haveEnded(const std::vector<int>& butNot = {});
  void signal(int rank, int number) const;
  std::chrono::milliseconds age() const;  // of machine time
  const std::vector<ProcessOutcome>& outcomes() const { return outcomes_; }

 private:
  struct Child {
    pid_t pid;  // 0: has ended
    int in;
  };
  void collect(size_t rank);

  std::chrono::milliseconds begin_;
  std::vector<Child> children_;
  std::vector<ProcessOutcome> outcomes_;
};

// One group of processes, each of which opens the world and runs `body`. A process that has not ended after `patience` is
// killed.
std::vector<ProcessOutcome> runProcesses(int ranks, const std::function<std::string(Communicator&)>& body,
                                         const TransportOptions& options,
                                         std::chrono::milliseconds patience = std::chrono::milliseconds(60'000));

// Why there are no messages between hosts to be tested: this build has no UCX, or this machine no device for it. Empty if there are.
// DeviceError if UCX fails otherwise.
std::string whyNoNetwork();

// Memory that the processes of a test share: counters that start at zero.
class SharedCounters {
 public:
  explicit SharedCounters(size_t count);
  ~SharedCounters();
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;

  void add(size_t which) const;
  bool reached(size_t which, int value) const;
  // Sleeps until the counter has reached `value`.
  void await(size_t which, int value) const;

 private:
  size_t bytes_;
  int* memory_;
};

}  // namespace meshfuse
