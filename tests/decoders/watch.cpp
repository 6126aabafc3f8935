#include <thread>

#include "base/error.h"
#include "decoders/decoders.h"
#include "multidevice/transport/host/network_watch.h"
#include "multidevice/transport/host/star.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr Key kWatchKey = {4, 5, 6};

// The bootstrap of rank `rank` of two; the other rank is a connection.
class WatchedByBytes final : public Bootstrap {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  Key key() override { return kWatchKey; }
  std::string address() const override { return "127.0.0.1"; }
  std::vector<std::string> allGather(std::string_view mine) override {
    const std::string own(mine);
    if (gathered_++ == 1) {
      comes_ = std::jthread([this, own] {
        const auto limit = WaitingClock::now() + 10s;
        const NetworkPlace place = NetworkPlace::parse(own.substr(own.find('\n') + 1));
        const Hello hello{.purpose = Purpose::Watch,
                          .from = 1,
                          .to = 0,
                          .size = 2,
                          .world = std::stoull(own.substr(0, 16), nullptr, 16)};
        std::string problem;
        require(
            peer.connect(place.host, place.port, limit) && takeSlot(peer, hello, kWatchKey, limit, problem).has_value(),
            "no connection to the watch");
      });
    }
    return {own, own};
  }
  void awaitPeer() { comes_.join(); }

  Socket peer = Socket::create();

 private:
  int64_t gathered_ = 0;
  std::jthread comes_;
};

}  // namespace

// The first byte chooses: the place of a rank as text; or what rank 1 sends to rank 0, before it closes the connection.
void readWatch(std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  const bool isPlace = bytes[0] % 2 != 0;
  bytes.remove_prefix(1);
  if (isPlace) {
    try {
      const NetworkPlace place = NetworkPlace::parse(bytes);
      require(place.text() == bytes, "a place that is read and written differs");
    } catch (const DeviceError&) {
    }
    return;
  }
  WatchedByBytes bootstrap;
  NetworkWatch watch(bootstrap, 20s);
  bootstrap.awaitPeer();
  static_cast<void>(bootstrap.peer.send(bytes.data(), bytes.size(), WaitingClock::now() + 1s));
  bootstrap.peer = Socket();
  for (const auto limit = WaitingClock::now() + 10s; !watch.hasFailed() && !watch.hasLeft(1);) {
    require(WaitingClock::now() < limit, "the end of a rank is not noticed");
    std::this_thread::sleep_for(100us);
  }
  require(!watch.isBusy(0) && !watch.hasLeft(0), "a message of rank 1 changes what is known of rank 0");
}

}  // namespace meshfuse
