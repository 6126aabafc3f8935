#include "multidevice/transport/host/waiting_clock.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "multidevice/transport/driven_clock.h"
#include "multidevice/transport/host/socket.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

TEST(WaitingClock, ATimeWithoutLooksIsShort) {
  const auto begin = WaitingClock::now();
  std::this_thread::sleep_for(3 * WaitingClock::kLongestLook);
  EXPECT_EQ(WaitingClock::now() - begin, WaitingClock::kLongestLook);
}

TEST(WaitingClock, FollowsTheTimeOfAThreadThatLooks) {
  const auto steady = steady_clock::now();
  const auto begin = WaitingClock::now();
  while (WaitingClock::now() - begin < 50ms) {
  }
  EXPECT_GE(steady_clock::now() - steady, 50ms);
}

TEST(WaitingClock, TheWaitsOfASocketLookOftenEnough) {
  const Socket listener = Socket::create();
  ASSERT_TRUE(listener.listen("127.0.0.1", "0", 1));
  const auto steady = steady_clock::now();
  EXPECT_FALSE(listener.accept(WaitingClock::now() + 400ms).open());
  EXPECT_GE(steady_clock::now() - steady, 350ms);
}

// How much time passes by the clock while the system's clock goes on for this long.
WaitingClock::duration passedIn(std::chrono::milliseconds time) {
  const auto begin = WaitingClock::now();
  for (const auto steady = steady_clock::now(); steady_clock::now() - steady < time;) {
    static_cast<void>(WaitingClock::now());
    std::this_thread::sleep_for(1ms);
  }
  return WaitingClock::now() - begin;
}

TEST(DrivenClockTest, StandsStillForARankThatDoesNotLook) {
  const DrivenClock clock(2);
  const SharedCounters counters(1);
  RankProcesses processes(2, [&](int rank) -> std::string {
    clock.drive(rank);
    if (rank == 1) {
      counters.await(0, 1);
      clock.leave(1);
      counters.await(0, 2);
      return "";
    }
    const auto without = passedIn(300ms);
    counters.add(0);
    const auto with = passedIn(1s);
    counters.add(0);
    return without == 0s && with >= 1s ? "" : "time does not pass as it should";
  });
  for (const ProcessOutcome& o : processes.await()) {
    EXPECT_TRUE(o.ended && o.text.empty()) << o.text;
  }
}

}  // namespace
}  // namespace meshfuse
