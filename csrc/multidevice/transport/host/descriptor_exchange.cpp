#include "multidevice/transport/host/descriptor_exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/host/random_bytes.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr auto kGiftPoll = 5ms;
constexpr int64_t kMostAtOnce = 64;     // connections, before the limit is looked at again
constexpr int64_t kMostStrangers = 64;  // connections without a gift yet, beyond those of the ranks

// The bytes that come with the descriptors of a rank.
struct Gift {
  int64_t from = -1;
  RandomBytes word{};  // of the rank that receives it
  std::vector<Descriptor> descriptors{};

  static constexpr size_t kBytes = sizeof(int64_t) + sizeof(RandomBytes);
};

union DescriptorsBuffer {
  cmsghdr head;
  char bytes[CMSG_SPACE(kMostGiven * sizeof(int))];
};

bool isGiven(const Socket& to, int64_t from, const RandomBytes& word, std::span<const int> descriptors) {
  DescriptorsBuffer control{};
  iovec data[] = {{&from, sizeof(from)}, {const_cast<uint8_t*>(word.data()), word.size()}};
  msghdr message{};
  message.msg_iov = data;
  message.msg_iovlen = std::size(data);
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  return sendmsg(to.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(Gift::kBytes);
}

// Nothing if no message has come yet; from rank -1 if it is no gift, or the other side has closed.
std::optional<Gift> receivedGift(const Socket& from) {
  Gift gift;
  DescriptorsBuffer control{};
  iovec data[] = {{&gift.from, sizeof(gift.from)}, {gift.word.data(), gift.word.size()}};
  msghdr message{};
  message.msg_iov = data;
  message.msg_iovlen = std::size(data);
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t n = recvmsg(from.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return std::nullopt;
  }
  for (cmsghdr* head = n < 0 ? nullptr : CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    const bool isOfDescriptors = head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS;
    for (size_t i = 0; isOfDescriptors && CMSG_LEN((i + 1) * sizeof(int)) <= head->cmsg_len; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
      gift.descriptors.emplace_back(fd);
    }
  }
  const bool isWhole = n == static_cast<ssize_t>(Gift::kBytes) && (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0;
  gift.from = isWhole ? gift.from : -1;
  return gift;
}

// The exchange of one rank: it gives to all peers, and takes what has arrived in the meantime.
class DescriptorExchange {
 public:
  DescriptorExchange(Bootstrap& bootstrap, std::span<const int> mine)
      : bootstrap_(bootstrap), mine_(mine), lines_(bootstrap.size()) {
    exchanged_.byRank.resize(bootstrap.size());
    const std::string name = "meshfuse." + hexadecimal(randomBytes());
    const bool listens = listener_.listenLocal(name, std::min<int64_t>(bootstrap.size(), 4096));
    const int error = errno;
    deviceCheck(listens, "[host] this process cannot listen for others of its host: {}", std::strerror(error));
    const std::string_view word(reinterpret_cast<const char*>(word_.data()), word_.size());
    places_ = bootstrap.allGather(fmt::format("{}\n{}", name, word));
  }

  ExchangedDescriptors run(WaitingClock::time_point limit) {
    while (exchanged_.problem.empty() && !step()) {
      if (WaitingClock::now() >= limit || !bootstrap_.isUnderWay()) {
        exchanged_.problem = fmt::format("[rank {}/{}] gave no memory in time", missing(), bootstrap_.size());
      } else {
        awaitVisitors();
      }
    }
    return std::move(exchanged_);
  }

 private:
  // True if this rank has given to all others, and has got what they give.
  bool step() {
    bool complete = true;
    for (int64_t r = 0; r < bootstrap_.size() && exchanged_.problem.empty(); ++r) {
      complete = (r == bootstrap_.rank() || hasGivenTo(r)) && complete;
    }
    // A peer that ends well has given before, so what it gave is found after its end has been seen.
    const std::vector<bool> ended = mapped(lines_, [](const Socket& s) { return s.open() && s.hasClosed(); });
    takeVisitors();
    for (int64_t r = 0; r < bootstrap_.size(); ++r) {
      const bool isThere = r == bootstrap_.rank() || !exchanged_.byRank[r].descriptors.empty();
      complete = complete && isThere;
      if (!isThere && ended[r] && exchanged_.problem.empty()) {
        exchanged_.problem = fmt::format("[rank {}/{}] ended while ranks exchanged their memory", r, bootstrap_.size());
      }
    }
    return complete;
  }

  bool hasGivenTo(int64_t r) {
    if (lines_[r].open()) {
      return true;
    }
    const std::string& place = places_[r];
    const size_t nameBytes = place.find('\n');
    Socket line = Socket::createLocal(SOCK_SEQPACKET);
    if (nameBytes == std::string::npos || place.size() != nameBytes + 1 + sizeof(RandomBytes)) {
      exchanged_.problem = fmt::format("[rank {}/{}] said no place for descriptors", r, bootstrap_.size());
    } else if (line.connectLocal(place.substr(0, nameBytes))) {
      RandomBytes word{};
      std::memcpy(word.data(), place.data() + nameBytes + 1, word.size());
      if (!line.isOfThisUser()) {
        exchanged_.problem = fmt::format("[rank {}/{}] runs as user {}, and rank {} as user {}; start all as one user",
                                         r, bootstrap_.size(), line.peer().user, bootstrap_.rank(), geteuid());
      } else if (isGiven(line, bootstrap_.rank(), word, mine_)) {
        lines_[r] = std::move(line);
      }
    } else if (errno != EAGAIN && errno != EINTR) {
      exchanged_.problem = fmt::format(
          "rank {} cannot reach [rank {}/{}] on this host: {}; processes of one host need one network namespace",
          bootstrap_.rank(), r, bootstrap_.size(), std::strerror(errno));
    }
    return lines_[r].open();
  }

  void takeVisitors() {
    for (int64_t i = 0; i < kMostAtOnce && listener_.waitFor(POLLIN, WaitingClock::now()); ++i) {
      Socket visitor = listener_.accept(WaitingClock::now());
      if (!visitor.open()) {
        const int error = errno;
        if (error == EMFILE || error == ENFILE) {
          exchanged_.problem =
              fmt::format("rank {} has no file descriptors left; raise the limit, ulimit -n", bootstrap_.rank());
        }
        break;
      }
      if (visitor.isOfThisUser()) {
        visitors_.push_back(std::move(visitor));
      }
      if (std::ssize(visitors_) > bootstrap_.size() + kMostStrangers) {
        visitors_.erase(visitors_.begin());
      }
    }
    std::erase_if(visitors_, [&](Socket& visitor) {
      std::optional<Gift> gift = receivedGift(visitor);
      if (!gift) {
        return false;
      }
      const bool isOfRank = gift->from >= 0 && gift->from < bootstrap_.size() && gift->from != bootstrap_.rank() &&
                            gift->word == word_ && gift->descriptors.size() == mine_.size();
      if (isOfRank && exchanged_.byRank[gift->from].descriptors.empty()) {
        exchanged_.byRank[gift->from] = {visitor.peer().process, std::move(gift->descriptors)};
        taken_.push_back(std::move(visitor));
      }
      return true;
    });
  }

  void awaitVisitors() const {
    std::vector<pollfd> polled = mapped(visitors_, [](const Socket& s) { return pollfd{s.get(), POLLIN, 0}; });
    polled.push_back({listener_.get(), POLLIN, 0});
    poll(polled.data(), polled.size(), kGiftPoll.count());
  }

  int64_t missing() const {
    int64_t r = 0;
    while (r < bootstrap_.size() - 1 && (r == bootstrap_.rank() || !exchanged_.byRank[r].descriptors.empty())) {
      ++r;
    }
    return r;
  }

  Bootstrap& bootstrap_;
  std::span<const int> mine_;
  Socket listener_ = Socket::createLocal(SOCK_SEQPACKET);
  RandomBytes word_ = randomBytes();
  std::vector<std::string> places_;  // by rank: where it listens, and its word
  std::vector<Socket> lines_;        // by rank: to those who have been given
  std::vector<Socket> visitors_;     // connections without a gift yet
  std::vector<Socket> taken_;  // the others, which stay open: their end would tell the peer that this rank has ended
  ExchangedDescriptors exchanged_;
};

}  // namespace

ExchangedDescriptors exchangeDescriptors(Bootstrap& bootstrap, std::span<const int> mine,
                                         WaitingClock::time_point limit) {
  invariant(!mine.empty() && std::ssize(mine) <= kMostGiven, "[host] {} descriptors, expected 1 to {}", mine.size(),
            kMostGiven);
  return DescriptorExchange(bootstrap, mine).run(limit);
}

}  // namespace meshfuse
