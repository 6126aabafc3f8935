// The star of the survivors of a world that could not be opened, at an address that follows from the launcher's variables: a local one, or
// one of the network if MASTER_ADDR is one. The first rank to come is the centre. A rank that comes too late gets no answer.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/error.h"
#include "multidevice/transport/host/star.h"

namespace meshfuse {

namespace {

constexpr uint32_t kSurvivorsMagic = 0x6d657373;

bool isLoopback(const std::string& address) {
  return address.empty() || address == "localhost" || address.starts_with("127.");
}

// The rendezvous point of the survivors: a name that only processes of this host find, or the port next to MASTER_PORT, on the
// host of rank 0. (MASTER_PORT itself may still be held by a rank 0 that was stopped.)
struct RendezvousPoint {
  std::string host;  // empty: only this host
  std::string name;  // or the port

  static RendezvousPoint ofThisHost() {
    const std::string job = pmixOffered() ? environmentText("PMIX_NAMESPACE")
                                          : environmentText("MASTER_ADDR") + ":" + environmentText("MASTER_PORT");
    return {"", fmt::format("meshfuse.survivors.{}.{}", getuid(), job)};
  }
  static RendezvousPoint ofAllHosts() {
    int64_t port = 29500;
    const std::string given = environmentText("MASTER_PORT");
    std::from_chars(given.data(), given.data() + given.size(), port);
    return {Socket::numericHost(environmentText("MASTER_ADDR")), std::to_string(port < 65535 ? port + 1 : port - 1)};
  }

  Socket create() const { return host.empty() ? Socket::createLocal() : Socket::create(); }
  // False also for a process on another host than the rendezvous point.
  bool listen(const Socket& s, int64_t backlog) const {
    return host.empty() ? s.listenLocal(name, backlog) : s.listen(host, name, backlog);
  }
  bool connect(const Socket& s, Socket::Clock::time_point limit) const {
    return host.empty() ? s.connectLocal(name) : s.connect(host, name, limit);
  }
};

class SurvivorStar final : public Star {
 public:
  SurvivorStar(int64_t rank, int64_t size, std::chrono::milliseconds deadline)
      : Star(deadline), rank_(rank), size_(size) {
    // If no rank is left on the host of rank 0, the survivors of each host make a world of their own.
    const bool met = !isLoopback(environmentText("MASTER_ADDR")) && meet(RendezvousPoint::ofAllHosts());
    const RendezvousPoint here = RendezvousPoint::ofThisHost();
    deviceCheck(met || meet(here), "[host] rank {} can neither make nor find the rendezvous point of the survivors, {}",
                rank_, here.name);
  }

 private:
  // Whether the rendezvous point could be created or found within the deadline.
  bool meet(const RendezvousPoint& place) {
    const auto limit = Clock::now() + deadline();
    while (Clock::now() < limit) {
      Socket mine = place.create();
      if (place.listen(mine, size_)) {
        listener_ = std::move(mine);
        gather(limit);
        return true;
      }
      mine = place.create();
      if (place.connect(mine, limit)) {
        join(std::move(mine), limit);
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it was closed in between, or is not open yet
    }
    return false;
  }

  void gather(Clock::time_point limit) {
    std::vector<Socket> byRank = acceptRanks(listener_, size_, limit, [&](const Socket& joined) {
      uint32_t hello[2] = {};
      const auto soon = std::min(limit, Clock::now() + promptLimit(deadline()));
      const bool isSurvivor = joined.receive(hello, sizeof(hello), soon) && hello[0] == kSurvivorsMagic;
      return isSurvivor && hello[1] < static_cast<uint32_t>(size_) ? static_cast<int64_t>(hello[1]) : -1;
    });
    openAsCentre(rank_, std::move(byRank));
    for (const Socket& s : sockets()) {
      static_cast<void>(s.open() && s.sendText(list(), Clock::now() + deadline()));
    }
  }

  void join(Socket mine, Clock::time_point limit) {
    const uint32_t hello[2] = {kSurvivorsMagic, static_cast<uint32_t>(rank_)};
    std::string text;
    const bool heard =
        mine.send(hello, sizeof(hello), limit) &&
        mine.receiveText(text, limit + deadline());  // a busy centre may be late; if it ends, this wait ends at once
    deviceCheck(heard && text.size() >= 2 * sizeof(int64_t),
                "[host] the survivors did not accept rank {}: they continued without it, or failed again", rank_);
    deviceCheck(openAsMember(rank_, std::move(mine), text),
                "[host] rank {} got no list of survivors from the process that listens where they meet", rank_);
  }

  int64_t rank_;
  int64_t size_;
  // Kept open by the centre: a late rank then gets no answer, and cannot create a second rendezvous point.
  Socket listener_;
};

}  // namespace

std::unique_ptr<Bootstrap> meetSurvivors(int64_t rank, int64_t size, std::chrono::milliseconds deadline,
                                         std::vector<int64_t>& members) {
  auto star = std::make_unique<SurvivorStar>(rank, size, deadline);
  members = star->members();
  return star;
}

}  // namespace meshfuse
