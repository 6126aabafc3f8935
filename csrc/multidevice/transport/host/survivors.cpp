// The star of the survivors of a world that could not be opened, at an address that follows from the launcher's variables: a local one, or
// one of the network if MASTER_ADDR is one. The first rank to come is the centre. A rank that comes too late gets no answer.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "multidevice/transport/host/star.h"

namespace meshfuse {

namespace {

// The rendezvous point of the survivors: a name that only processes of this host find, or the port next to MASTER_PORT, on the
// host of rank 0. (MASTER_PORT itself may still be held by a rank 0 that was stopped.)
struct RendezvousPoint {
  std::string host;  // empty: only this host
  std::string name;  // or the port
  Trust trust;

  static RendezvousPoint ofThisHost() {
    const std::string job = pmixOffered() ? environmentText("PMIX_NAMESPACE")
                                          : environmentText("MASTER_ADDR") + ":" + environmentText("MASTER_PORT");
    return {"", fmt::format("meshfuse.survivors.{}.{}", geteuid(), job), std::nullopt};
  }
  static RendezvousPoint ofAllHosts(const Key& key) {
    const int64_t port = masterPort();
    return {Socket::numericHost(environmentText("MASTER_ADDR")), std::to_string(port < 65535 ? port + 1 : port - 1),
            key};
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
    // If no rank is left on the host of rank 0, or there is no secret, the survivors of each host make a world of their own.
    const Trust key = masterIsLocal() ? std::nullopt : keyOfEnvironment();
    const bool met = key && meet(RendezvousPoint::ofAllHosts(*key));
    const RendezvousPoint here = RendezvousPoint::ofThisHost();
    const bool metHere = met || meet(here);
    deviceCheck(metHere, "[host] rank {} can neither make nor find the rendezvous point of the survivors, {}{}{}",
                rank_, here.name, problem_.empty() ? "" : ": ", problem_);
  }

  Key key() override { return trust_ ? *trust_ : Bootstrap::key(); }

 private:
  // Whether the rendezvous point could be created or found within the deadline.
  bool meet(const RendezvousPoint& place) {
    const auto limit = Clock::now() + deadline();
    trust_ = place.trust;
    problem_.clear();
    while (Clock::now() < limit) {
      Socket mine = place.create();
      if (place.listen(mine, size_)) {
        listener_ = std::move(mine);
        gather(limit);
        return true;
      }
      mine = place.create();
      if (place.connect(mine, limit) && joined(std::move(mine), limit)) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it was closed in between, or is not open yet
    }
    return false;
  }

  Hello hello() const {
    return {.purpose = Purpose::Survivors, .from = static_cast<int32_t>(rank_), .size = static_cast<int32_t>(size_)};
  }

  void gather(Clock::time_point limit) {
    door_.emplace(listener_, hello(), trust_, promptLimit(deadline()));
    openAsCentre(rank_, giveSlots(*door_, rank_, size_, limit).byRank);
    for (const Socket& s : sockets()) {
      static_cast<void>(s.open() && s.sendText(list(), Clock::now() + deadline()));
    }
  }

  // False if the process that listens is no rank of this job.
  bool joined(Socket mine, Clock::time_point limit) {
    const auto patience = limit + deadline();  // a busy centre may be late; if it ends, this wait ends at once
    std::string text;
    const bool hasSlot = takeSlot(mine, hello(), trust_, patience, problem_).has_value();
    if (!hasSlot && !problem_.empty()) {
      return false;
    }
    deviceCheck(hasSlot && mine.receiveText(text, patience) && text.size() >= 2 * sizeof(int64_t),
                "[host] the survivors did not accept rank {}: they continued without it, or failed again", rank_);
    deviceCheck(openAsMember(rank_, std::move(mine), text),
                "[host] rank {} got no list of survivors from the process that listens where they meet", rank_);
    return true;
  }

  int64_t rank_;
  int64_t size_;
  // Kept open by the centre: a late rank then gets no answer, and cannot create a second rendezvous point.
  Socket listener_;
  Trust trust_;
  std::optional<Door> door_;
  std::string problem_;
};

}  // namespace

std::unique_ptr<Bootstrap> meetSurvivors(int64_t rank, int64_t size, std::chrono::milliseconds deadline,
                                         std::vector<int64_t>& members) {
  auto star = std::make_unique<SurvivorStar>(rank, size, deadline);
  members = star->members();
  return star;
}

}  // namespace meshfuse
