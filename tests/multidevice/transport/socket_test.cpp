#include "multidevice/transport/host/socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace meshfuse {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

TEST(Socket, NamesOfHostsAreLookedUpOnce) {
  EXPECT_EQ(Socket::numericHost("localhost"), "127.0.0.1");
  EXPECT_EQ(Socket::numericHost("127.0.0.2"), "127.0.0.2");
}

TEST(Socket, ConnectsWithinTheLimit) {
  const Socket listener = Socket::create();
  ASSERT_TRUE(listener.listen("127.0.0.1", "0", 1));
  const Socket mine = Socket::create();
  EXPECT_TRUE(mine.connect("127.0.0.1", std::to_string(listener.port()), WaitingClock::now() + 10s));
}

TEST(Socket, IsRefusedWhereNobodyListens) {
  std::string port;
  {
    const Socket gone = Socket::create();
    ASSERT_TRUE(gone.listen("127.0.0.1", "0", 1));
    port = std::to_string(gone.port());
  }
  const auto steady = steady_clock::now();
  EXPECT_FALSE(Socket::create().connect("127.0.0.1", port, WaitingClock::now() + 60s));
  EXPECT_LT(steady_clock::now() - steady, 30s);
}

// The names of two jobs may differ after the longest name of a socket.
TEST(Socket, LongNamesStayDifferent) {
  const std::string begin = "meshfuse.test." + std::to_string(getpid()) + "." + std::string(300, 'a');
  const Socket listener = Socket::createLocal();
  ASSERT_TRUE(listener.listenLocal(begin + "1", 1));
  EXPECT_FALSE(Socket::createLocal().connectLocal(begin + "2"));
  EXPECT_TRUE(Socket::createLocal().connectLocal(begin + "1"));
}

// A host whose queue of connections is full answers nothing.
TEST(Socket, ConnectsToAFullQueueForNoLongerThanTheLimit) {
  const Socket listener = Socket::create();
  ASSERT_TRUE(listener.listen("127.0.0.1", "0", 0));
  const std::string port = std::to_string(listener.port());
  std::vector<Socket> waiting;
  bool last = true;
  for (int i = 0; i < 8 && last; ++i) {
    waiting.push_back(Socket::create());
    last = waiting.back().connect("127.0.0.1", port, WaitingClock::now() + 200ms);
  }
  EXPECT_FALSE(last);

  const Socket local = Socket::createLocal();
  ASSERT_TRUE(local.listenLocal("meshfuse.test." + std::to_string(getpid()), 0));
  last = true;
  for (int i = 0; i < 8 && last; ++i) {
    waiting.push_back(Socket::createLocal());
    last = waiting.back().connectLocal("meshfuse.test." + std::to_string(getpid()));
  }
  EXPECT_FALSE(last);
}

// The peer sends something else than a text: its first bytes are no length.
TEST(Socket, RefusesATextThatIsTooLong) {
  const Socket listener = Socket::create();
  ASSERT_TRUE(listener.listen("127.0.0.1", "0", 1));
  const Socket mine = Socket::create();
  const auto limit = WaitingClock::now() + 60s;
  ASSERT_TRUE(mine.connect("127.0.0.1", std::to_string(listener.port()), limit));
  const Socket theirs = listener.accept(limit);
  ASSERT_TRUE(theirs.sendText("a text", limit));
  std::string text;
  ASSERT_TRUE(mine.receiveText(text, limit));
  EXPECT_EQ(text, "a text");
  const uint64_t length = Socket::kMostTextBytes + 1;
  ASSERT_TRUE(theirs.send(&length, sizeof(length), limit));
  EXPECT_FALSE(mine.receiveText(text, limit));
  EXPECT_EQ(text, "a text");
  EXPECT_LT(WaitingClock::now(), limit);
}

}  // namespace
}  // namespace meshfuse
