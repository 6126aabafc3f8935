#include "multidevice/transport/host/network_watch.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/host/star.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr uint32_t kMostFailureBytes = 64 << 10;
constexpr int64_t kAttempts = 3;  // of a rank to reach rank 0: one that was stopped may have been given up
constexpr auto kPollInterval = 50ms;
constexpr auto kLeaving = 2s;  // rank 0 passes on messages for as long after its own end
constexpr auto kNetworkBeat = 200ms;
constexpr auto kSilent = 1500ms;  // without a heartbeat a rank is suspected

}  // namespace

NetworkWatch::NetworkWatch(Bootstrap& bootstrap, std::chrono::milliseconds deadline)
    : rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      promptLimit_(meshfuse::promptLimit(deadline)),
      key_(bootstrap.key()),
      rendezvousPoint_(Socket::create()),
      sockets_(rank_ == 0 ? size_ : 1),
      gone_(sockets_.size()),
      busy_(size_),
      left_(size_),
      heard_(size_) {
  const auto limit = Clock::now() + deadline;
  // Of all ranks but 0 only its survivors will use the place, each of them twice at most at a time.
  const NetworkPlace mine = listenAt(rendezvousPoint_, ownNetworkAddress(bootstrap), 4 * size_);
  const std::vector<std::string> all = bootstrap.allGather(hexadecimal(randomBytes()) + '\n' + mine.text());
  std::from_chars(all[0].data(), all[0].data() + std::min<size_t>(16, all[0].size()), worldNumber_, 16);
  places_ = mapped(all, [](const std::string& text) { return NetworkPlace::parse(text.substr(text.find('\n') + 1)); });
  rejoinDoor_.emplace(rendezvousPoint_, hello(Purpose::Rejoin, rank_), key_, deadline);
  rank_ == 0 ? acceptAll(limit) : join(limit);
  thread_ = std::jthread([this](const std::stop_token& stop) { look(stop); });
}

Hello NetworkWatch::hello(Purpose purpose, int64_t to) const {
  return {.purpose = purpose,
          .from = static_cast<int32_t>(rank_),
          .to = static_cast<int32_t>(to),
          .size = static_cast<int32_t>(size_),
          .world = worldNumber_};
}

NetworkWatch::~NetworkWatch() {
  tell({Kind::Left, static_cast<int32_t>(rank_), 0, 0}, "");
  const auto limit = Clock::now() + kLeaving;
  auto someoneStays = [&] {
    return std::ranges::any_of(left_ | std::views::drop(1), [](const auto& left) { return left.load() == 0; });
  };
  while (rank_ == 0 && !failed_ && someoneStays() && Clock::now() < limit) {
    std::this_thread::sleep_for(1ms);
  }
}

void NetworkWatch::acceptAll(Clock::time_point limit) {
  Door door(rendezvousPoint_, hello(Purpose::Watch, 0), key_,
            std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now()));
  Slots slots = giveSlots(door, 0, size_, limit);
  deviceCheck(slots.missing.empty(), "[network] {} to rank 0 while the world was being opened", slots.missing);
  sockets_ = std::move(slots.byRank);
  for (const Socket& s : sockets_) {
    if (s.open()) {
      closeWhenUnreachable(s);
    }
  }
}

void NetworkWatch::join(Clock::time_point limit) {
  const auto& [host, port] = places_[0];
  std::string problem = "check that no firewall blocks the port";
  Socket mine = Socket::create();
  bool hasSlot = false;
  for (int64_t attempt = 0; attempt < kAttempts && !hasSlot; ++attempt) {
    const auto soon = std::min(limit, Clock::now() + promptLimit_);
    mine = Socket::create();
    hasSlot =
        mine.connect(host, port, soon) && takeSlot(mine, hello(Purpose::Watch, 0), key_, soon, problem).has_value();
  }
  deviceCheck(hasSlot, "[network] rank {} cannot reach [rank 0/{}] at {} port {} while the world was being opened; {}",
              rank_, size_, host, port, problem);
  closeWhenUnreachable(mine);
  sockets_[0] = std::move(mine);
}

void NetworkWatch::look(const std::stop_token& stop) {
  std::vector<pollfd> polled(sockets_.size());
  auto nextBeat = Clock::now();
  looked_ = nextBeat;
  std::fill(heard_.begin(), heard_.end(), nextBeat);
  while (!stop.stop_requested()) {
    if (launcherHasEnded() && !failed_) {
      const Frame frame{Kind::Failed, static_cast<int32_t>(rank_), 0, 0};
      const std::string text = fmt::format("[network] {}", kLauncherEnded);
      note(frame, text);
      if (rank_ != 0) {  // the daemons of other hosts may live
        tell(frame, text);
      }
    }
    if (rank_ != 0 && Clock::now() >= nextBeat) {
      tell({Kind::Alive, static_cast<int32_t>(rank_), 0, 0}, "");
      nextBeat = Clock::now() + kNetworkBeat;
    }
    for (int64_t i = 0; i < std::ssize(sockets_); ++i) {
      polled[i] = {gone_[i] != 0 ? -1 : sockets_[i].get(), POLLIN, 0};
    }
    poll(polled.data(), polled.size(), kPollInterval.count());
    const auto polledAt = Clock::now();  // reading from one rank may take long
    for (int64_t i = 0; i < std::ssize(polled); ++i) {
      if (polled[i].revents != 0) {
        hear(i, stop);
      }
    }
    looked_ = polledAt;
  }
}

void NetworkWatch::hear(int64_t from, const std::stop_token& stop) {
  const Socket& socket = sockets_[from];
  const auto limit = Clock::now() + promptLimit_;
  Frame frame{};
  std::string text;
  bool whole = socket.receive(&frame, sizeof(frame), limit) && isValid(frame, from);
  if (whole) {
    text.resize(frame.textBytes);
    whole = socket.receive(text.data(), text.size(), limit);
  }
  if (whole) {
    heard_[from] = Clock::now();
    note(frame, text);
    return;
  }
  gone_[from] = 1;
  if (!hasLeft(from) && !stop.stop_requested()) {
    std::unique_lock lock(textMutex_);
    const std::string here = place_ ? "; " + place_() : "";
    lock.unlock();
    note({Kind::Failed, static_cast<int32_t>(from), 0, 0},
         fmt::format("[network] [rank {}/{}]: its process ended, or its host cannot be reached{}", from, size_, here));
  }
}

// Rank 0 passes on the messages of all ranks; every other rank sends only its own.
bool NetworkWatch::isValid(const Frame& frame, int64_t from) const {
  return frame.kind <= Kind::Alive && frame.textBytes <= kMostFailureBytes && frame.rank >= 0 && frame.rank < size_ &&
         (rank_ != 0 || frame.rank == from);
}

void NetworkWatch::note(const Frame& frame, const std::string& text) {
  const auto rank = static_cast<size_t>(frame.rank);
  switch (frame.kind) {
    case Kind::Busy:
      busy_[rank] = static_cast<uint8_t>(frame.value);
      break;
    case Kind::Left:
      left_[rank] = 1;
      break;
    case Kind::Failed:
      keep({rank_ == 0 && frame.value == 0 ? text + suspects() : text, frame.value != 0});
      break;
    case Kind::Alive:
      return;
  }
  if (rank_ == 0) {  // rank 0 distributes the first of several failures
    std::string kept = text;
    Frame sent = frame;
    if (frame.kind == Kind::Failed) {
      std::lock_guard lock(textMutex_);
      kept = failure_.text;
      sent.value = failure_.isDisagreement ? 1 : 0;
    }
    tell(sent, kept);
  }
}

void NetworkWatch::tell(const Frame& frame, const std::string& whole) {
  Frame head = frame;
  const std::string_view text = std::string_view(whole).substr(0, kMostFailureBytes);
  head.textBytes = static_cast<uint32_t>(text.size());
  const std::string sent =
      fmt::format("{}{}", std::string_view(reinterpret_cast<const char*>(&head), sizeof(head)), text);
  std::lock_guard lock(sendMutex_);
  for (const Socket& s : sockets_) {
    static_cast<void>(s.open() && s.send(sent.data(), sent.size(), Clock::now() + promptLimit_));
  }
}

void NetworkWatch::whereThisRankIs(std::function<std::string()> place) {
  std::lock_guard lock(textMutex_);
  place_ = std::move(place);
}

void NetworkWatch::keep(const GroupFailure& failure) {
  std::lock_guard lock(textMutex_);
  if (!failed_) {
    failure_ = failure;
    failed_.store(true, std::memory_order_release);
  }
}

std::string NetworkWatch::suspects() const {
  std::string text;
  for (int64_t r = 1; r < size_; ++r) {
    // Measured only while rank 0 was reading.
    const auto silence = looked_.load() - heard_[r].load();
    if (silence > kSilent && !hasLeft(r)) {
      text += fmt::format("; [rank {}/{}] has sent no heartbeat for {} ms", r, size_,
                          std::chrono::duration_cast<std::chrono::milliseconds>(silence).count());
    }
  }
  return text;
}

void NetworkWatch::recordFailure(const GroupFailure& failure) {
  if (failed_) {
    return;
  }
  const Frame frame{Kind::Failed, static_cast<int32_t>(rank_), failure.isDisagreement ? 1u : 0u, 0};
  if (rank_ == 0) {
    note(frame, failure.text);
  } else if (hasLeft(0)) {
    keep(failure);
  } else {
    // Rank 0 chooses the text of the failure, and sends it to this rank too.
    tell(frame, failure.text);
    for (const auto limit = Clock::now() + promptLimit_; !failed_ && Clock::now() < limit;) {
      std::this_thread::sleep_for(1ms);
    }
    keep({fmt::format("{}; [rank 0/{}] does not answer", failure.text, size_), failure.isDisagreement});
  }
}

void NetworkWatch::throwFailure() const {
  std::lock_guard lock(textMutex_);
  meshfuse::throwFailure(failure_);
}

void NetworkWatch::setBusy(bool busy) {
  busy_[rank_] = busy ? 1 : 0;
  tell({Kind::Busy, static_cast<int32_t>(rank_), busy ? 1u : 0u, 0}, "");
}

}  // namespace meshfuse
