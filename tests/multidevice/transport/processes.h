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

// Tests assert that a failure is heard of at once by its text: no deadline expired. So this one is long enough for a starved rank of a
// crowded machine.
constexpr std::chrono::milliseconds kFailureDeadline{60'000};
// Where only the deadline ends a wait: a rank is taken for a stopped one if it gets no processor for as long.
constexpr std::chrono::milliseconds kSilenceDeadline{8'000};
constexpr std::chrono::milliseconds kPatience = 2 * kFailureDeadline;

struct ProcessOutcome {
  std::string text;    // what the body returned, or what it or openWorld threw
  bool ended = false;  // by itself, with code 0
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
  bool haveEnded(const std::vector<int64_t>& butNot = {});
  bool hasEnded(int64_t rank) const { return children_[rank].pid == 0; }
  // Waits until these processes have ended, and kills a process that runs for longer than `patience`.
  const std::vector<ProcessOutcome>& await(const std::vector<int64_t>& butNot = {},
                                           std::chrono::milliseconds patience = kPatience);
  void signal(int rank, int number) const;
  std::chrono::steady_clock::duration age() const { return std::chrono::steady_clock::now() - begin_; }
  const std::vector<ProcessOutcome>& outcomes() const { return outcomes_; }

 private:
  struct Child {
    pid_t pid;  // 0: has ended
    int in;
  };
  void collect(size_t rank);

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::vector<Child> children_;
  std::vector<ProcessOutcome> outcomes_;
};

// One group of processes; each opens the world and runs `body`.
std::vector<ProcessOutcome> runProcesses(int ranks, const std::function<std::string(Communicator&)>& body,
                                         const TransportOptions& options,
                                         std::chrono::milliseconds patience = kPatience);

// An all-reduce of `count` elements, whatever their values.
void callAllReduce(Communicator& comm, const Team& team, int64_t count, DataType type = DataType::Float,
                   ReduceOp op = ReduceOp::Sum);
// Small and large all-reduces until one fails; its text. `underWay` is called when all ranks have come to the first.
[[nodiscard]] std::string callUntilFailure(Communicator& comm, const std::function<void()>& underWay = {});
// Kills this process a little later, wherever it then is.
void killSoon();
// All `ranks` ended by themselves with one text, which has all of the phrases.
void expectSay(const std::vector<ProcessOutcome>& outcomes, const std::vector<int64_t>& ranks,
               const std::vector<std::string>& phrases);

// Why there are no messages between hosts to be tested: this build has no UCX, or this machine no device for it. Empty if there are.
// DeviceError if UCX fails otherwise.
std::string whyNoNetwork();

// Returns when a process is stopped or has ended: it does nothing more.
void awaitStandstill(pid_t process);

// Memory that the processes of a test share: counters that start at zero.
class SharedCounters {
 public:
  explicit SharedCounters(size_t count);
  ~SharedCounters();
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;

  void add(size_t which, int value = 1) const;
  int value(size_t which) const;
  bool reached(size_t which, int value) const;
  // Sleeps until the counter has reached `value`.
  void await(size_t which, int value) const;
  // Counts this rank and returns when `ranks` have been counted: unlike a barrier of theirs, it is left also when one of them then fails.
  void meet(size_t which, int ranks) const;

 private:
  size_t bytes_;
  int* memory_;
};

}  // namespace meshfuse
