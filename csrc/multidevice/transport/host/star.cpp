#include "multidevice/transport/host/star.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/call.h"

namespace meshfuse {

namespace {

constexpr uint32_t kStarMagic = 0x6d657369;
constexpr std::chrono::milliseconds kCentreSpeaksFirst{1000};
constexpr std::chrono::milliseconds kWordOfFailure{1000};

struct Hello {
  uint32_t magic = kStarMagic;
  int32_t rank = -1;
  int32_t size = 0;
};

int64_t environmentNumber(const char* variable) {
  const std::string text = environmentText(variable);
  int64_t value = -1;
  const char* end = text.data() + text.size();
  const bool parsed = std::from_chars(text.data(), end, value).ptr == end;
  check(parsed && value >= 0, "[host] {} is '{}', expected a number; set RANK and WORLD_SIZE on all ranks", variable,
        text);
  return value;
}

class LaunchedStar final : public Star {
 public:
  explicit LaunchedStar(std::chrono::milliseconds deadline)
      : Star(deadline), rank_(starPlace().rank), size_(starPlace().size) {
    const char* host = std::getenv("MASTER_ADDR");
    const char* port = std::getenv("MASTER_PORT");
    host_ = host == nullptr ? "127.0.0.1" : host;
    port_ = port == nullptr ? "29500" : port;
    rank_ == 0 ? listen() : join();
  }

 private:
  void listen() {
    const auto limit = Clock::now() + deadline();
    const Socket listener = Socket::create();
    const bool listens = size_ == 1 || listener.listen(host_, port_, size_);
    deviceCheck(listens, "[host] rank 0 cannot listen at {} port {}: {}; choose another MASTER_PORT", host_, port_,
                std::strerror(errno));
    std::vector<Socket> sockets = acceptRanks(listener, size_, limit, [&](const Socket& joined) {
      Hello hello;
      if (!joined.receive(&hello, sizeof(hello), std::min(limit, Clock::now() + std::chrono::seconds(5))) ||
          hello.magic != kStarMagic) {
        return -1;  // another program, or a rank that gave up and tries again
      }
      check(hello.size == size_ && hello.rank > 0 && hello.rank < size_,
            "[host] a process connected as rank {} of {}, but this world has {} ranks", hello.rank, hello.size, size_);
      const uint32_t answer[2] = {kStarMagic, millisecondsUntil(limit)};
      joined.send(answer, sizeof(answer), limit);
      return hello.rank;
    });
    const std::string missing = missingRanks(sockets);
    openAsCentre(0, std::move(sockets));
    if (!missing.empty()) {
      failAll(fmt::format("[host] {} did not connect to open the world at {} port {} within {} ms", missing, host_,
                          port_, deadline().count()));
    }
  }

  void join() {
    const std::string host = Socket::numericHost(host_);
    const auto limit = Clock::now() + deadline();
    for (auto pause = std::chrono::milliseconds(2);; pause = std::min(pause * 2, std::chrono::milliseconds(100))) {
      Socket mine = Socket::create();
      const Hello hello{.rank = static_cast<int32_t>(rank_), .size = static_cast<int32_t>(size_)};
      uint32_t answer[2] = {};
      if (mine.connect(host, port_, limit) && mine.send(&hello, sizeof(hello), limit) &&
          mine.receive(answer, sizeof(answer), limit) && answer[0] == kStarMagic) {
        openAsMember(rank_, std::move(mine), firstRanks(size_), 0);
        centreSpeaksWithin(std::chrono::milliseconds(answer[1]));
        return;
      }
      deviceCheck(Clock::now() < limit,
                  "[host] rank {} found no [rank 0/{}] at {} port {} within {} ms: rank 0 has not opened the "
                  "world, or MASTER_ADDR or MASTER_PORT is wrong",
                  rank_, size_, host_, port_, deadline().count());
      std::this_thread::sleep_for(pause);
    }
  }

  int64_t rank_;
  int64_t size_;
  std::string host_;
  std::string port_;
};

}  // namespace

std::vector<Socket> acceptRanks(const Socket& listener, int64_t size, WaitingClock::time_point limit,
                                const std::function<int64_t(const Socket&)>& rankOf) {
  std::vector<Socket> byRank(size);
  for (int64_t missing = size - 1; missing > 0;) {
    Socket joined = listener.accept(limit);
    if (!joined.open()) {
      break;
    }
    if (const int64_t rank = rankOf(joined); rank >= 0) {
      missing -= byRank[rank].open() ? 0 : 1;
      byRank[rank] = std::move(joined);
    }
  }
  return byRank;
}

std::string missingRanks(const std::vector<Socket>& byRank) {
  const auto size = std::ssize(byRank);
  const auto isMissing = [&](int64_t r) { return !byRank[r].open(); };
  return joined(std::views::iota(1, size) | std::views::filter(isMissing), ", ",
                [&](int64_t r) { return fmt::format("[rank {}/{}]", r, size); });
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
  std::vector<int64_t> members(list.size() / sizeof(int64_t));
  std::memcpy(members.data(), list.data(), members.size() * sizeof(int64_t));
  if (members.empty()) {
    return false;
  }
  const int64_t centre = members.back();
  members.pop_back();
  if (centre < 0 || centre >= std::ssize(members) || !std::ranges::is_sorted(members) || !contains(members, rank)) {
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

uint32_t Star::millisecondsUntil(Clock::time_point limit) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
  return static_cast<uint32_t>(std::max<int64_t>(left, 0));
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
  const RankOfLauncher place{environmentNumber("RANK"), environmentNumber("WORLD_SIZE")};
  check(place.rank < place.size, "[host] RANK is {}, expected less than WORLD_SIZE, {}", place.rank, place.size);
  return place;
}

std::unique_ptr<Bootstrap> connectStar(std::chrono::milliseconds deadline) {
  return std::make_unique<LaunchedStar>(deadline);
}

}  // namespace meshfuse
