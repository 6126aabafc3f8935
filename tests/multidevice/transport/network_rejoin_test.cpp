// Survivors of a world on several hosts that come at different times. Ranks are threads of this process.
#include "multidevice/transport/host/network_rejoin.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "meshfuse_config.h"
#include "multidevice/transport/gathering.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kNoDeadline = 60s;  // of ranks that must not give up another one

std::vector<std::unique_ptr<NetworkWatch>> watchesOf(int64_t ranks) {
  std::vector<std::unique_ptr<NetworkWatch>> watches(ranks);
  gatherThreads(ranks, [&](Bootstrap& bootstrap) {
    watches[bootstrap.rank()] = std::make_unique<NetworkWatch>(bootstrap, kNoDeadline);
  });
  return watches;
}

// The members that a rank finds, "[1, 2]", or its error.
std::string rejoined(NetworkWatch& watch, int64_t rank, int64_t ranks, std::chrono::milliseconds deadline) {
  const TransportOptions options{.deadline = deadline};
  try {
    const NetworkRejoin rejoin(watch, rank, ranks, options, fmt::format("[rank {}/{}]", rank, ranks));
    return fmt::format("[{}]", fmt::join(rejoin.members(), ", "));
  } catch (const DeviceError& e) {
    return e.what();
  }
}

bool isCalled(const NetworkWatch& watch) {
  return watch.rendezvousPoint().waitFor(POLLIN, WaitingClock::now() + kNoDeadline);
}

class NetworkRejoinTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kHasSodium) {
      GTEST_SKIP() << "this build has no libsodium";
    }
  }
};

// Rank 1 has given up rank 0 and waits for the ranks above when rank 0 comes. Rank 2 still waits for rank 0. Rank 3 never comes.
TEST_F(NetworkRejoinTest, ALateRankMakesNoWorldWithARankThatHasGivenItUp) {
  constexpr int64_t kRanks = 4;
  std::vector<std::unique_ptr<NetworkWatch>> watches = watchesOf(kRanks);
  std::string members[kRanks];
  {
    std::jthread second([&] { members[2] = rejoined(*watches[2], 2, kRanks, kNoDeadline); });
    ASSERT_TRUE(isCalled(*watches[0])) << "by rank 2";
    std::jthread first([&] { members[1] = rejoined(*watches[1], 1, kRanks, 8s); });
    ASSERT_TRUE(isCalled(*watches[3])) << "by rank 1, when it has given up rank 0";
    members[0] = rejoined(*watches[0], 0, kRanks, kNoDeadline);
    watches[3].reset();
  }
  EXPECT_NE(members[0].find("[rank 0/4] rejoined too late"), std::string::npos) << members[0];
  EXPECT_EQ(members[1], "[1, 2]");
  EXPECT_EQ(members[2], "[1, 2]");
  watches[2].reset();
  watches[1].reset();
}

TEST_F(NetworkRejoinTest, RanksThatComeInAnyOrderFindEachOther) {
  constexpr int64_t kRanks = 3;
  std::vector<std::unique_ptr<NetworkWatch>> watches = watchesOf(kRanks);
  std::string members[kRanks];
  {
    std::jthread last([&] { members[2] = rejoined(*watches[2], 2, kRanks, kNoDeadline); });
    ASSERT_TRUE(isCalled(*watches[0]));
    std::jthread middle([&] { members[1] = rejoined(*watches[1], 1, kRanks, kNoDeadline); });
    members[0] = rejoined(*watches[0], 0, kRanks, kNoDeadline);
  }
  for (const std::string& found : members) {
    EXPECT_EQ(found, "[0, 1, 2]");
  }
  watches[2].reset();
  watches[1].reset();
}

}  // namespace
}  // namespace meshfuse
