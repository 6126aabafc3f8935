// Cases of a rank that fails, in some way at some place, and of the others, which go on without it. Ranks are child processes; many
// cases run side by side, for most of their time is spent waiting.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/communicator.h"
#include "multidevice/transport/processes.h"
#include "sanitized.h"

namespace meshfuse {

enum class Way { Throw, Exit, Kill, Stop };
constexpr Way kWays[] = {Way::Stop, Way::Throw, Way::Exit, Way::Kill};  // the slow one first
// Silence is all that tells of a stopped rank; that another has failed is heard of.
[[nodiscard]] TransportOptions withDeadlineFor(Way way, TransportOptions options);
[[nodiscard]] std::string_view name(Way way);
void fail(Way way);

// The calls in which a rank may be missed; the last one is the teardown.
struct FailureCall {
  std::string_view name;
  void (*make)(Communicator&, std::vector<float>& in, std::vector<float>& out);
};
[[nodiscard]] std::span<const FailureCall> failureCalls();

// "" if the world of survivors is as it should be: its ranks, and all-reduces small and large, in shared and ordinary memory.
[[nodiscard]] std::string checkSurvivors(Communicator& comm, const std::vector<int64_t>& oldRanks,
                                         const std::vector<int64_t>& expected);
// What a rank of a case says at the end: the error it got, and how it went on.
[[nodiscard]] std::string report(std::string_view error, const std::string& wrong);

struct FailureCase {
  std::string title;
  int64_t ranks;
  int64_t victim;
  std::vector<std::string> phrases;  // in the text of every survivor
  std::function<std::string(int64_t)> body;
  bool heardOf = false;  // no deadline expires
  bool stops = false;
  bool wakesToError = false;  // the stopped victim, woken up when all is over, gets an error too
  bool oneText = true;        // survivors have the same
  bool waits = false;         // nothing but a deadline ends the waits of the survivors: a DrivenClock makes it short
  int64_t alsoDies = -1;

  std::vector<int64_t> survivors() const;
};

// One for each way, call, number of ranks and victim, 0 and the last: the victim fails instead of making the call, and the others
// shrink.
[[nodiscard]] std::deque<FailureCase> missedCalls(const TransportOptions& options);

// The same of a victim that has come to the call, and fails while it waits for the others.
[[nodiscard]] std::deque<FailureCase> brokenCalls(const TransportOptions& options);

// A case of a world that cannot be opened, and what its ranks do then: `opens` throws, and the survivors meet.
[[nodiscard]] FailureCase openingCase(std::string title, int64_t ranks, int64_t victim);
[[nodiscard]] std::string surviveOpening(const std::function<void()>& opens, const std::vector<int64_t>& survivors,
                                         TransportOptions options);
// One for each way, number of ranks and victim: the victim fails before it opens its world.
[[nodiscard]] std::deque<FailureCase> missedOpenings(TransportOptions options);

// One after the other they would wait for as long as there are deadlines; all at once they would starve each other.
constexpr size_t kMostlyAsleep = kSanitized ? 32 : 64;
constexpr size_t kAlwaysAwake = kSanitized ? 6 : 12;
void runCases(std::deque<FailureCase> waiting, size_t atOnce = kMostlyAsleep);

}  // namespace meshfuse
