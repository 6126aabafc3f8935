#include "multidevice/transport/host/star.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/call.h"

namespace meshfuse {

namespace {

constexpr std::chrono::milliseconds kCentreSpeaksFirst{1000};
constexpr std::chrono::milliseconds kWordOfFailure{1000};
constexpr int64_t kMostRanks = 65'536;

// The centre's answer to a rank that it knows; then, to one that gets no slot, the reason.
struct SlotAnswer {
  uint32_t hasSlot;
  uint32_t milliseconds;  // until the centre's limit
};

class LaunchedStar final : public Star {
 public:
  explicit LaunchedStar(std::chrono::milliseconds deadline)
      : Star(deadline), rank_(starPlace().rank), size_(starPlace().size) {
    if (!masterIsLocal()) {
      trust_ = keyForMaster();
    }
    rank_ == 0 ? listen() : join();
  }

  Key key() override { return trust_ ? *trust_ : Bootstrap::key(); }
  std::string address() const override { return address_; }

 private:
  // Ranks of one host meet at a local name, where the system says whose processes come.
  std::string localName() const { return fmt::format("meshfuse.world.{}.{}", geteuid(), port_); }
  Hello hello() const { return {.from = static_cast<int32_t>(rank_), .to = 0, .size = static_cast<int32_t>(size_)}; }

  void listen() {
    const auto limit = Clock::now() + deadline();
    const Socket listener = trust_ ? Socket::create() : Socket::createLocal();
    const bool listens = size_ == 1 || (trust_ ? listener.listen(host_, std::to_string(port_), size_)
                                               : listener.listenLocal(localName(), size_));
    const int error = errno;
    deviceCheck(listens, "[host] rank 0 cannot listen at {} port {}: {}; choose another {}", host_, port_,
                std::strerror(error), error == EADDRNOTAVAIL ? "MASTER_ADDR, an address of its host" : "MASTER_PORT");
    if (trust_) {
      address_ = Socket::numericHost(host_);
      check(
          !address_.starts_with("127."),
          "[host] MASTER_ADDR {} is {} on the host of rank 0, which other hosts do not reach; use its network address",
          host_, address_);
    }
    Door door(listener, hello(), trust_, kVisitorPatience);
    Slots slots = giveSlots(door, 0, size_, limit);
    openAsCentre(0, std::move(slots.byRank));
    if (!slots.missing.empty()) {
      failAll(fmt::format("[host] {} to open the world at {} port {} within {} ms", slots.missing, host_, port_,
                          deadline().count()));
    }
  }

  void join() {
    const std::string host = trust_ ? Socket::numericHost(host_) : host_;
    const auto limit = Clock::now() + deadline();
    std::string problem = "rank 0 has not opened the world, or MASTER_ADDR or MASTER_PORT is wrong";
    for (auto pause = std::chrono::milliseconds(2);; pause = std::min(pause * 2, std::chrono::milliseconds(100))) {
      Socket mine = trust_ ? Socket::create() : Socket::createLocal();
      if (trust_ ? mine.connect(host, std::to_string(port_), limit) : mine.connectLocal(localName())) {
        if (const auto milliseconds = takeSlot(mine, hello(), trust_, limit, problem)) {
          address_ = mine.ownAddress();
          openAsMember(rank_, std::move(mine), firstRanks(size_), 0);
          centreSpeaksWithin(std::chrono::milliseconds(*milliseconds));
          return;
        }
      }
      deviceCheck(Clock::now() < limit, "[host] rank {} found no [rank 0/{}] at {} port {} within {} ms: {}", rank_,
                  size_, host_, port_, deadline().count(), problem);
      std::this_thread::sleep_for(pause);
    }
  }

  int64_t rank_;
  int64_t size_;
  std::string host_ = environmentText("MASTER_ADDR").empty() ? "127.0.0.1" : environmentText("MASTER_ADDR");
  int64_t port_ = masterPort();
  Trust trust_;
  std::string address_;
};

}  // namespace

Slots giveSlots(Door& door, int64_t self, int64_t size, WaitingClock::time_point limit) {
  std::vector<Socket> byRank(size);
  std::string refusal;
  int64_t missing = size - 1;
  while (missing > 0) {
    std::optional<Door::Arrival> arrival = door.next(limit);
    if (!arrival) {
      break;
    }
    const auto& [hello, notice, socket] = *arrival;
    std::string reason;
    if (hello.size != size || hello.from < 0 || hello.from >= size || hello.from == self) {
      reason = fmt::format("a process came as [rank {}/{}], and this world has {} ranks and its rank {} already",
                           hello.from, hello.size, size, self);
    } else if (byRank[hello.from].open() && !byRank[hello.from].hasClosed()) {
      reason = fmt::format("two processes came as [rank {}/{}]", hello.from, size);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - WaitingClock::now()).count();
    const SlotAnswer answer{reason.empty() ? 1U : 0U, static_cast<uint32_t>(std::max<int64_t>(left, 0))};
    static_cast<void>(socket.send(&answer, sizeof(answer), limit));
    if (!reason.empty()) {
      static_cast<void>(socket.sendText(reason, limit));
      refusal = "; " + reason;
      continue;
    }
    missing -= byRank[hello.from].open() ? 0 : 1;
    byRank[hello.from] = std::move(arrival->socket);
  }
  const auto isMissing = [&](int64_t r) { return r != self && !byRank[r].open(); };
  std::string text = joined(std::views::iota(int64_t{0}, size) | std::views::filter(isMissing), ", ",
                            [&](int64_t r) { return fmt::format("[rank {}/{}]", r, size); });
  if (missing > 0 && door.strangers() > 0) {
    refusal += fmt::format(
        "; {} processes connected and did not prove that they know the secret of the job, or were of other users",
        door.strangers());
  }
  return {std::move(byRank), text.empty() ? "" : text + " did not connect" + refusal};
}

std::optional<uint32_t> takeSlot(const Socket& centre, const Hello& hello, const Trust& trust,
                                 WaitingClock::time_point limit, std::string& problem) {
  Caller caller(hello, trust);
  const Caller::Answer known = caller.sayHello(centre, limit) ? caller.hear(centre, limit) : Caller::Answer::None;
  SlotAnswer answer{};
  if (known == Caller::Answer::Stranger) {
    problem = trust ? "the process that listens there does not know the secret of this job; set MESHFUSE_SECRET to the "
                      "same text on all ranks"
                    : fmt::format("the process that listens there is of user {}; choose another MASTER_PORT",
                                  centre.peer().user);
  }
  if (known != Caller::Answer::Known || !centre.receive(&answer, sizeof(answer), limit)) {
    return std::nullopt;
  }
  if (answer.hasSlot == 0) {
    std::string reason;
    static_cast<void>(centre.receiveText(reason, limit));
    throwDeviceError(fmt::format("[host] {} was refused: {}; check RANK and WORLD_SIZE",
                                 describeRank(hello.from, hello.size, -1, ""), reason));
  }
  return answer.milliseconds;
}

bool masterIsLocal() {
  const std::string address = environmentText("MASTER_ADDR");
  return address.empty() || address == "localhost" || address.starts_with("127.");
}

int64_t masterPort() {
  constexpr int64_t kUsual = 29'500;
  return environmentNumber("MASTER_PORT", 1, 65'535).value_or(kUsual);
}

Key keyForMaster() {
  const std::optional<Key> key = keyOfEnvironment();
  check(key.has_value(),
        "[host] MASTER_ADDR is {}: ranks of several hosts need a secret, so that no other process takes a rank's "
        "place. Set "
        "MESHFUSE_SECRET to the same text on all ranks, for example of: openssl rand -hex 32; or MESHFUSE_SECRET_FILE "
        "to a "
        "file with it that only you may read. Ranks of one host need none with MASTER_ADDR=127.0.0.1",
        environmentText("MASTER_ADDR"));
  return *key;
}

Star::Star(std::chrono::milliseconds deadline) : deadline_(deadline), firstWord_(deadline) {}

void Star::openAsCentre(int64_t rank, std::vector<Socket> byRank) {
  for (int64_t r = 0; r < std::ssize(byRank); ++r) {
    if (r == rank || byRank[r].open()) {
      members_.push_back(r);
      sockets_.push_back(std::move(byRank[r]));
    }
  }
  position_ = centre_ = positionIn(members_, rank);
}

void Star::openAsMember(int64_t rank, Socket toCentre, std::vector<int64_t> members, int64_t centre) {
  members_ = std::move(members);
  position_ = positionIn(members_, rank);
  centre_ = centre;
  sockets_.push_back(std::move(toCentre));
}

bool Star::openAsMember(int64_t rank, Socket toCentre, const std::string& list) {
  if (list.empty() || list.size() % sizeof(int64_t) != 0 || list.size() / sizeof(int64_t) > kMostRanks) {
    return false;
  }
  std::vector<int64_t> members(list.size() / sizeof(int64_t));
  std::memcpy(members.data(), list.data(), list.size());
  const int64_t centre = members.back();
  members.pop_back();
  if (centre < 0 || centre >= std::ssize(members) ||
      std::ranges::adjacent_find(members, std::ranges::greater_equal{}) != members.end() || members.front() < 0 ||
      !contains(members, rank) || members[centre] == rank) {
    return false;
  }
  openAsMember(rank, std::move(toCentre), std::move(members), centre);
  return true;
}

std::string Star::list() const {
  std::vector<int64_t> numbers = members_;
  numbers.push_back(position_);
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)};
}

std::string Star::absence(int64_t position, Clock::time_point limit) const {
  return fmt::format("[host] [rank {}/{}] {} while the world was being opened", members_[position], size(),
                     Clock::now() < limit ? "ended or left" : fmt::format("sent nothing for {} ms", deadline_.count()));
}

void Star::failAll(const std::string& text) {
  const auto limit = Clock::now() + kWordOfFailure;
  for (const Socket& s : sockets_) {
    static_cast<void>(s.open() && s.sendText(text, limit));
  }
  throwDeviceError(text);
}

std::vector<std::string> Star::allGather(std::string_view mine) {
  return position_ == centre_ ? collect(mine) : contribute(mine);
}

std::vector<std::string> Star::collect(std::string_view mine) {
  const auto limit = Clock::now() + deadline_;
  std::vector<std::string> all(members_.size());
  all[position_] = mine;
  for (int64_t r = 0; r < size(); ++r) {
    if (r != position_ && !sockets_[r].receiveText(all[r], limit)) {
      failAll(absence(r, limit));
    }
  }
  // A rank that cannot be reached has ended since its last message: its peers detect that when they wait for it.
  for (const Socket& s : sockets_) {
    bool told = s.open() && s.sendText("", limit);
    for (const std::string& text : all) {
      told = told && s.sendText(text, limit);
    }
  }
  return all;
}

std::vector<std::string> Star::contribute(std::string_view mine) {
  const auto limit = Clock::now() + firstWord_ + std::max<std::chrono::milliseconds>(kCentreSpeaksFirst, deadline_ / 2);
  firstWord_ = deadline_;
  std::string failure;
  std::vector<std::string> all(members_.size());
  bool heard = sockets_[0].sendText(mine, limit) && sockets_[0].receiveText(failure, limit);
  deviceCheck(failure.empty(), "{}", failure);
  for (std::string& text : all) {
    heard = heard && sockets_[0].receiveText(text, limit);
  }
  if (!heard) {
    throwDeviceError(absence(centre_, limit));
  }
  return all;
}

bool starOffered() { return std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr; }

RankOfLauncher starPlace() {
  const std::optional<int64_t> rank = environmentNumber("RANK", 0, kMostRanks - 1);
  const std::optional<int64_t> size = environmentNumber("WORLD_SIZE", 1, kMostRanks);
  check(rank && size, "[host] RANK or WORLD_SIZE is empty, expected numbers; set both or none");
  const RankOfLauncher place{*rank, *size};
  check(place.rank < place.size, "[host] RANK is {}, expected less than WORLD_SIZE, {}", place.rank, place.size);
  return place;
}

std::unique_ptr<Bootstrap> connectStar(std::chrono::milliseconds deadline) {
  return std::make_unique<LaunchedStar>(deadline);
}

}  // namespace meshfuse
