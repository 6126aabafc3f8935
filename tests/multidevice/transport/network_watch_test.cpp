// The watch of ranks on several hosts, with a peer that sends what no rank sends.
#include "multidevice/transport/host/network_watch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "meshfuse_config.h"
#include "multidevice/transport/host/star.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kWatchDeadline = 60s;

// Rank 0 of a world of two, whose other rank is a connection of the test.
class WatchedPair final : public Bootstrap {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  Key key() override { return kKey; }
  std::string address() const override { return "127.0.0.1"; }
  std::vector<std::string> allGather(std::string_view mine) override {
    const std::string own(mine);
    if (gathered_++ == 1) {  // after the addresses: the number of the world, and where rank 0 listens
      peer_ = std::jthread([this, own] { isThere_ = comes(own); });
    }
    return {own, own};
  }
  // As rank 1.
  bool send(const std::vector<uint32_t>& frame) {
    if (peer_.joinable()) {
      peer_.join();
    }
    return isThere_ &&
           socket_.send(frame.data(), frame.size() * sizeof(uint32_t), WaitingClock::now() + kWatchDeadline);
  }

 private:
  bool comes(const std::string& own) {
    const auto limit = WaitingClock::now() + kWatchDeadline;
    const NetworkPlace place = NetworkPlace::parse(own.substr(own.find('\n') + 1));
    const Hello hello{
        .purpose = Purpose::Watch, .from = 1, .to = 0, .size = 2, .world = std::stoull(own.substr(0, 16), nullptr, 16)};
    std::string problem;
    return socket_.connect(place.host, place.port, limit) && takeSlot(socket_, hello, kKey, limit, problem).has_value();
  }

  static constexpr Key kKey = {1, 2, 3};
  int64_t gathered_ = 0;
  Socket socket_ = Socket::create();
  bool isThere_ = false;
  std::jthread peer_;
};

TEST(NetworkWatch, AMessageThatNoRankSendsEndsTheConnection) {
  if (!kHasSodium) {
    GTEST_SKIP() << "this build has no libsodium";
  }
  constexpr uint32_t kBusy = 1;
  const std::vector<uint32_t> frames[] = {{kBusy, 1U << 24, 1, 0},
                                          {kBusy, static_cast<uint32_t>(-5), 1, 0},
                                          {kBusy, 0, 1, 0},
                                          {99, 1, 1, 0},
                                          {kBusy, 1, 1, 0xfffffff0}};
  for (const std::vector<uint32_t>& frame : frames) {
    WatchedPair pair;
    NetworkWatch watch(pair, kWatchDeadline);
    EXPECT_EQ(watch.rendezvousPoint().ownAddress(), "127.0.0.1") << "no other address of this host";
    ASSERT_TRUE(pair.send({kBusy, 1, 1, 0}));
    ASSERT_TRUE(pair.send(frame));
    const auto limit = WaitingClock::now() + kWatchDeadline;
    while (!watch.hasFailed() && WaitingClock::now() < limit) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(watch.isBusy(1));
    EXPECT_FALSE(watch.isBusy(0));
    try {
      watch.throwIfFailed();
      ADD_FAILURE() << "no failure";
    } catch (const DeviceError& e) {
      EXPECT_NE(std::string(e.what()).find("[rank 1/2]: its process ended"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace meshfuse
