// What comes to a door that is open for the ranks of a job: ranks, and processes that only pretend to be such.
#include "multidevice/transport/host/handshake.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "meshfuse_config.h"
#include "multidevice/transport/host/star.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;
using Answer = Caller::Answer;

constexpr auto kAmplePatience = 60s;
constexpr Key kJob = {7, 7, 7};
constexpr Key kOtherJob = {7, 7, 8};

class HandshakeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kHasSodium) {
      GTEST_SKIP() << "this build has no libsodium";
    }
    ASSERT_TRUE(listener_.listen("127.0.0.1", "0", 1024));
  }

  static Socket::Clock::time_point soon() { return Socket::Clock::now() + kAmplePatience; }
  Socket connected() const {
    Socket socket = Socket::create();
    EXPECT_TRUE(socket.connect("127.0.0.1", std::to_string(listener_.port()), soon()));
    return socket;
  }
  static Hello hello(int32_t from, int32_t size = 4) {
    return {.purpose = Purpose::Watch, .from = from, .to = 0, .size = size, .world = 5};
  }
  Door door(Trust trust = kJob, std::chrono::milliseconds patience = kAmplePatience) const {
    return {listener_, hello(0), trust, patience};
  }
  // The answer that a caller gets while `door` is served; `arrival_` is the caller, if it has come in.
  Answer answerAt(Door& door, const Socket& socket, Caller& caller) {
    Answer answer = Answer::None;
    std::atomic<bool> answered = false;
    EXPECT_TRUE(caller.sayHello(socket, soon()));
    std::jthread calls([&] {
      answer = caller.hear(socket, soon());
      answered = true;
    });
    while (!answered && !arrival_) {
      arrival_ = door.next(Socket::Clock::now() + 1ms);
    }
    calls.join();
    if (answer == Answer::Known && !arrival_) {
      arrival_ = door.next(soon());
    }
    return answer;
  }

  std::optional<Door::Arrival> arrival_;
  Socket listener_ = Socket::create();
};

TEST_F(HandshakeTest, ARankOfTheJobComesIn) {
  Door open = door();
  const Socket socket = connected();
  Caller caller(hello(3), kJob);
  ASSERT_EQ(answerAt(open, socket, caller), Answer::Known);
  ASSERT_TRUE(arrival_.has_value());
  EXPECT_EQ(arrival_->hello.from, 3);
  EXPECT_EQ(arrival_->notice, 0U);
  ASSERT_TRUE(arrival_->socket.sendText("welcome", soon()));
  std::string text;
  ASSERT_TRUE(socket.receiveText(text, soon()));
  EXPECT_EQ(text, "welcome");
  EXPECT_EQ(open.strangers(), 0);
}

TEST_F(HandshakeTest, WhoHasAnotherSecretNoticesAndStaysOut) {
  Door open = door();
  const Socket socket = connected();
  Caller caller(hello(3), kOtherJob);
  EXPECT_EQ(answerAt(open, socket, caller), Answer::Stranger);
  EXPECT_FALSE(arrival_.has_value());
  EXPECT_EQ(open.strangers(), 0);
}

// So rank 0 can say why nobody came.
TEST_F(HandshakeTest, WhoLeavesWithoutAProofIsCounted) {
  Door open = door();
  {
    const Socket socket = connected();
    Caller caller(hello(3), kOtherJob);
    EXPECT_EQ(answerAt(open, socket, caller), Answer::Stranger);
  }
  for (const auto limit = soon(); open.strangers() == 0 && Socket::Clock::now() < limit;) {
    EXPECT_FALSE(open.next(Socket::Clock::now() + 1ms).has_value());
  }
  EXPECT_EQ(open.strangers(), 1);
}

// It answers, but with a proof that it can only have guessed.
TEST_F(HandshakeTest, AWrongProofIsCounted) {
  Door open = door();
  const Socket socket = connected();
  const Hello mine = hello(1);
  ASSERT_TRUE(socket.send(&mine, sizeof(mine), soon()));
  while (!socket.waitFor(POLLIN, Socket::Clock::now())) {
    EXPECT_FALSE(open.next(Socket::Clock::now() + 1ms).has_value());
  }
  const std::string claim(36, '\0');
  ASSERT_TRUE(socket.send(claim.data(), claim.size(), soon()));
  for (const auto limit = soon(); open.strangers() == 0 && Socket::Clock::now() < limit;) {
    EXPECT_FALSE(open.next(Socket::Clock::now() + 1ms).has_value());
  }
  EXPECT_EQ(open.strangers(), 1);
}

// All bytes that a rank sent, sent once more by somebody who has seen them on the network.
TEST_F(HandshakeTest, ARepeatedConversationProvesNothing) {
  Door open = door();
  std::string seen;
  {
    // A rank talks to the door through a process that takes down what it says.
    const Socket middle = Socket::create();
    ASSERT_TRUE(middle.listen("127.0.0.1", "0", 4));
    const Socket rank = Socket::create();
    ASSERT_TRUE(rank.connect("127.0.0.1", std::to_string(middle.port()), soon()));
    const Socket tapped = middle.accept(soon());
    const Socket onward = connected();
    Caller caller(hello(2), kJob);
    ASSERT_TRUE(caller.sayHello(rank, soon()));
    std::string part(sizeof(Hello), '\0');
    ASSERT_TRUE(tapped.receive(part.data(), part.size(), soon()) && onward.send(part.data(), part.size(), soon()));
    seen = part;
    while (!onward.waitFor(POLLIN, Socket::Clock::now())) {
      EXPECT_FALSE(open.next(Socket::Clock::now() + 1ms).has_value());
    }
    part.resize(72);
    ASSERT_TRUE(onward.receive(part.data(), part.size(), soon()) && tapped.send(part.data(), part.size(), soon()));
    ASSERT_EQ(caller.hear(rank, soon()), Answer::Known);
    part.resize(36);
    ASSERT_TRUE(tapped.receive(part.data(), part.size(), soon()) && onward.send(part.data(), part.size(), soon()));
    seen += part;
    ASSERT_TRUE(open.next(soon()).has_value());
  }
  const Socket again = connected();
  ASSERT_TRUE(again.send(seen.data(), sizeof(Hello), soon()));
  while (!again.waitFor(POLLIN, Socket::Clock::now())) {
    EXPECT_FALSE(open.next(Socket::Clock::now() + 1ms).has_value());
  }
  ASSERT_TRUE(again.send(seen.data() + sizeof(Hello), seen.size() - sizeof(Hello), soon()));
  for (const auto limit = soon(); open.strangers() == 0 && Socket::Clock::now() < limit;) {
    EXPECT_FALSE(open.next(Socket::Clock::now() + 1ms).has_value());
  }
  EXPECT_EQ(open.strangers(), 1);
}

// A process that took the place of the host gets no proof of the caller, and sends back what it has got.
TEST_F(HandshakeTest, AnImpostorOfTheHostIsAStranger) {
  for (const char* kind : {"zeros", "mirror", "hello"}) {
    const Socket socket = connected();
    const Socket impostor = listener_.accept(soon());
    Caller caller(hello(1), kJob);
    ASSERT_TRUE(caller.sayHello(socket, soon()));
    Hello got;
    ASSERT_TRUE(impostor.receive(&got, sizeof(got), soon()));
    std::string greeting(72, '\0');
    if (kind != std::string("zeros")) {
      greeting.replace(0, sizeof(got), reinterpret_cast<const char*>(&got), sizeof(got));
    }
    if (kind == std::string("mirror")) {
      greeting.replace(8, got.nonce.size(), reinterpret_cast<const char*>(got.nonce.data()), got.nonce.size());
    }
    ASSERT_TRUE(impostor.send(greeting.data(), greeting.size(), soon()));
    EXPECT_EQ(caller.hear(socket, soon()), Answer::Stranger) << kind;
  }
}

// Random messages, and messages in which one field is not what this door is open for.
TEST_F(HandshakeTest, OtherMessagesAreSentAway) {
  Door open = door();
  std::vector<std::string> messages = {
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: a browser of some kind\r\n\r\n", std::string(64, '\xff'),
      std::string(100'000, '\0')};
  for (const size_t field : {0, 4, 12, 24}) {  // magic, purpose, to, world
    Hello wrong = hello(1);
    reinterpret_cast<char*>(&wrong)[field] ^= 2;
    messages.emplace_back(reinterpret_cast<const char*>(&wrong), sizeof(wrong));
  }
  for (const std::string& message : messages) {
    const Socket socket = connected();
    static_cast<void>(socket.send(message.data(), message.size(), Socket::Clock::now() + 200ms));
    for (const auto limit = soon(); !socket.hasClosed() && Socket::Clock::now() < limit;) {
      EXPECT_FALSE(open.next(Socket::Clock::now() + 1ms).has_value());
    }
    EXPECT_TRUE(socket.hasClosed()) << message.substr(0, 20);
    char answer = 0;
    EXPECT_FALSE(socket.receive(&answer, 1, Socket::Clock::now() + 1ms)) << message.substr(0, 20);
  }
}

// Each connection has its own time: many that say nothing, or only a part, hold up no rank.
TEST_F(HandshakeTest, SilentConnectionsHoldUpNobody) {
  Door open = door();
  std::vector<Socket> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(connected());
    const Hello mine = hello(1);
    ASSERT_TRUE(silent.back().send(&mine, static_cast<size_t>(i % 64), soon()));
  }
  const Socket socket = connected();
  Caller caller(hello(3), kJob);
  ASSERT_EQ(answerAt(open, socket, caller), Answer::Known);
  ASSERT_TRUE(arrival_.has_value());
  EXPECT_EQ(arrival_->hello.from, 3);
}

TEST_F(HandshakeTest, ASilentConnectionEndsAfterItsTime) {
  Door open = door(kJob, 50ms);
  const Socket socket = connected();
  for (const auto limit = soon(); !socket.hasClosed() && Socket::Clock::now() < limit;) {
    EXPECT_FALSE(open.next(Socket::Clock::now() + 10ms).has_value());
  }
  EXPECT_TRUE(socket.hasClosed());
}

// It stays true when its sender has ended.
TEST_F(HandshakeTest, ANoticeIsReadAfterItsSenderHasEnded) {
  Door open = door();
  {
    const Socket socket = connected();
    const Caller caller(hello(2), kJob);
    ASSERT_TRUE(caller.sayHello(socket, soon()) && caller.leave(9, socket, soon()));
  }
  const auto arrival = open.next(soon());
  ASSERT_TRUE(arrival.has_value());
  EXPECT_EQ(arrival->notice, 9U);
  EXPECT_EQ(arrival->hello.from, 2);
}

TEST_F(HandshakeTest, ANoticeOfAStrangerIsNone) {
  Door open = door();
  const Socket socket = connected();
  const Caller caller(hello(2), kOtherJob);
  ASSERT_TRUE(caller.sayHello(socket, soon()) && caller.leave(9, socket, soon()));
  for (const auto limit = soon(); open.strangers() == 0 && Socket::Clock::now() < limit;) {
    EXPECT_FALSE(open.next(Socket::Clock::now() + 1ms).has_value());
  }
  EXPECT_EQ(open.strangers(), 1);
}

TEST_F(HandshakeTest, ADoorTellsAllTheSame) {
  Door open = door();
  open.tellAll(4);
  const Socket socket = connected();
  Caller caller(hello(2), kJob);
  EXPECT_EQ(answerAt(open, socket, caller), Answer::Notice);
  EXPECT_EQ(caller.notice(), 4U);
  EXPECT_TRUE(open.isQuiet());
}

// The slots of a world of three, with ranks that come twice, and with numbers that are none.
TEST_F(HandshakeTest, EachSlotIsGivenOnce) {
  struct Visit {
    int32_t from;
    int32_t size;
    std::string outcome{};
  };
  std::vector<Visit> visits = {{1, 3}, {1, 3}, {0, 3}, {3, 3}, {INT32_MIN, 3}, {INT32_MAX, 3}, {2, 4}, {2, 3}};
  Door open(listener_, {.purpose = Purpose::Watch, .to = 0, .world = 5}, kJob, kAmplePatience);
  std::vector<Socket> sockets;
  std::jthread calls([&] {
    for (Visit& visit : visits) {
      sockets.push_back(connected());
      std::string problem;
      try {
        visit.outcome =
            takeSlot(sockets.back(), hello(visit.from, visit.size), kJob, soon(), problem) ? "has a slot" : problem;
      } catch (const DeviceError& e) {
        visit.outcome = e.what();
      }
    }
  });
  const Slots slots = giveSlots(open, 0, 3, soon());
  calls.join();
  EXPECT_EQ(slots.missing, "");
  EXPECT_TRUE(slots.byRank[1].open() && slots.byRank[2].open());
  EXPECT_EQ(visits.front().outcome, "has a slot");
  EXPECT_EQ(visits.back().outcome, "has a slot");
  EXPECT_NE(visits[1].outcome.find("two processes came as [rank 1/3]"), std::string::npos) << visits[1].outcome;
  for (size_t i = 2; i + 1 < visits.size(); ++i) {
    EXPECT_NE(visits[i].outcome.find("and this world has 3 ranks"), std::string::npos) << visits[i].outcome;
  }
}

// A rank that gives up and comes again, as when the network was slow, gets its slot.
TEST_F(HandshakeTest, ARankMayComeAgainAfterItHasEnded) {
  Door open(listener_, {.purpose = Purpose::Watch, .to = 0, .world = 5}, kJob, kAmplePatience);
  std::string outcome;
  std::jthread calls([&] {
    std::string problem;
    {
      const Socket first = connected();
      EXPECT_TRUE(takeSlot(first, hello(1, 3), kJob, soon(), problem).has_value());
    }
    const Socket second = connected();
    EXPECT_TRUE(takeSlot(second, hello(1, 3), kJob, soon(), problem).has_value());
    const Socket other = connected();
    EXPECT_TRUE(takeSlot(other, hello(2, 3), kJob, soon(), problem).has_value());
    outcome = "has a slot";
  });
  const Slots slots = giveSlots(open, 0, 3, soon());
  calls.join();
  EXPECT_EQ(outcome, "has a slot");
  EXPECT_EQ(slots.missing, "");
}

}  // namespace
}  // namespace meshfuse
