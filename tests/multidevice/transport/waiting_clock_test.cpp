#include "multidevice/transport/host/waiting_clock.h"

#include <gtest/gtest.h>

#include <thread>

#include "multidevice/transport/host/socket.h"

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

}  // namespace
}  // namespace meshfuse
