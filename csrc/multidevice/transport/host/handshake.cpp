#include "multidevice/transport/host/handshake.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;
using Clock = WaitingClock;

constexpr int64_t kMostVisitors = 1024;  // then the one that has waited longest makes room
constexpr int64_t kMostAccepted = 64;    // are accepted before the limit is looked at again
constexpr auto kNothingAccepted = 1ms;   // else this thread would not rest while descriptors are missing

struct Greeting {
  uint32_t magic = Hello::kMagic;
  Notice notice = 0;
  RandomBytes nonce{};
  Proof proof{};
};

struct Claim {
  Notice notice = 0;
  Proof proof{};
};
static_assert(sizeof(Hello) == 64 && sizeof(Greeting) == 72 && sizeof(Claim) == 36);

template <class Message>
std::string_view viewOf(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof(message)};
}

template <class Message>
Message messageOf(const std::string& bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof(message));
  return message;
}

// The text that is proved. The first word keeps a proof of one side from being used as one of the other.
std::string said(std::string_view side, const Hello& hello, const RandomBytes& nonce, Notice notice) {
  return fmt::format("meshfuse {} {}{}{}", side, viewOf(hello), viewOf(nonce), viewOf(notice));
}
std::string saidByHost(const Hello& hello, const Greeting& greeting) {
  return said("host", hello, greeting.nonce, greeting.notice);
}
// A notice proves no presence, so it needs no nonce of the host: it stays true.
std::string saidByCaller(const Hello& hello, const RandomBytes& nonceOfHost, Notice notice) {
  return said("caller", hello, notice == 0 ? nonceOfHost : RandomBytes{}, notice);
}

}  // namespace

Caller::Caller(const Hello& hello, Trust trust) : hello_(hello), trust_(trust) { hello_.nonce = randomBytes(); }

bool Caller::sayHello(const Socket& to, Clock::time_point limit) const {
  return to.send(&hello_, sizeof(hello_), limit);
}

Caller::Answer Caller::hear(const Socket& from, Clock::time_point limit) {
  if (!trust_) {
    return from.isOfThisUser() ? Answer::Known : Answer::Stranger;
  }
  Greeting greeting;
  if (!from.receive(&greeting, sizeof(greeting), limit)) {
    return Answer::None;
  }
  if (greeting.magic != Hello::kMagic || !isProof(*trust_, saidByHost(hello_, greeting), greeting.proof)) {
    return Answer::Stranger;
  }
  notice_ = greeting.notice;
  if (notice_ != 0) {
    return Answer::Notice;
  }
  const Claim claim{0, proofOf(*trust_, saidByCaller(hello_, greeting.nonce, 0))};
  return from.send(&claim, sizeof(claim), limit) ? Answer::Known : Answer::None;
}

bool Caller::leave(Notice notice, const Socket& to, Clock::time_point limit) const {
  invariant(trust_.has_value(), "[host] a notice within a host, which has no key");
  const Claim claim{notice, proofOf(*trust_, saidByCaller(hello_, {}, notice))};
  return to.send(&claim, sizeof(claim), limit);
}

Door::Door(const Socket& listener, const Hello& expected, Trust trust, std::chrono::milliseconds patience)
    : listener_(listener), expected_(expected), trust_(trust), patience_(patience) {}

void Door::acceptVisitors() {
  for (int64_t i = 0; i < kMostAccepted && listener_.waitFor(POLLIN, Clock::now()); ++i) {
    Socket socket = listener_.accept(Clock::now());
    if (!socket.open()) {
      if (!visitors_.empty()) {
        visitors_.erase(visitors_.begin());  // its descriptor may be what is missing
      }
      std::this_thread::sleep_for(kNothingAccepted);
      return;
    }
    if (!trust_ && !socket.isOfThisUser()) {
      ++strangers_;
      continue;
    }
    if (std::ssize(visitors_) >= kMostVisitors) {
      visitors_.erase(visitors_.begin());
    }
    visitors_.push_back({.socket = std::move(socket), .limit = Clock::now() + patience_});
  }
}

Door::Step Door::hearHello(Visitor& visitor) {
  visitor.hello = messageOf<Hello>(visitor.bytes);
  const Hello& hello = *visitor.hello;
  if (hello.magic != Hello::kMagic || hello.purpose != expected_.purpose || hello.to != expected_.to ||
      hello.world != expected_.world) {
    return Step::Goes;  // another program, or a rank that looks for another one at an address that both hosts have
  }
  if (!trust_) {
    return Step::Comes;
  }
  char next[sizeof(Claim)];
  if (told_ == 0 && recv(visitor.socket.get(), next, sizeof(next), MSG_PEEK | MSG_DONTWAIT) == sizeof(next)) {
    return Step::Waits;  // it left a notice, and may be gone
  }
  Greeting greeting{.notice = told_, .nonce = randomBytes()};
  greeting.proof = proofOf(*trust_, saidByHost(hello, greeting));
  visitor.nonce = greeting.nonce;
  const bool sent = visitor.socket.send(&greeting, sizeof(greeting), Clock::now());
  return sent && told_ == 0 ? Step::Waits : Step::Goes;
}

Door::Step Door::hearClaim(Visitor& visitor, Notice& notice) {
  const auto claim = messageOf<Claim>(visitor.bytes);
  if (!isProof(*trust_, saidByCaller(*visitor.hello, visitor.nonce, claim.notice), claim.proof)) {
    ++strangers_;
    return Step::Goes;
  }
  notice = claim.notice;
  return Step::Comes;
}

Door::Step Door::advance(Visitor& visitor, Notice& notice) {
  for (;;) {
    const size_t bytes = visitor.hello ? sizeof(Claim) : sizeof(Hello);
    const size_t have = visitor.bytes.size();
    visitor.bytes.resize(bytes);
    const ssize_t n = recv(visitor.socket.get(), visitor.bytes.data() + have, bytes - have, MSG_DONTWAIT);
    const bool mayCome = n < 0 && (errno == EAGAIN || errno == EINTR);
    visitor.bytes.resize(have + std::max<ssize_t>(n, 0));
    if (visitor.bytes.size() < bytes) {
      if (n > 0) {
        continue;
      }
      if (mayCome && Clock::now() < visitor.limit) {
        return Step::Waits;
      }
      strangers_ += visitor.hello ? 1 : 0;
      return Step::Goes;
    }
    const Step step = visitor.hello ? hearClaim(visitor, notice) : hearHello(visitor);
    if (step != Step::Waits) {
      return step;
    }
    visitor.bytes.clear();
  }
}

std::optional<Door::Arrival> Door::next(Clock::time_point limit) {
  for (;;) {
    acceptVisitors();
    for (size_t i = 0; i < visitors_.size();) {
      Notice notice = 0;
      const Step step = advance(visitors_[i], notice);
      if (step == Step::Waits) {
        ++i;
        continue;
      }
      Visitor visitor = std::move(visitors_[i]);
      visitors_.erase(visitors_.begin() + static_cast<ptrdiff_t>(i));
      if (step == Step::Comes) {
        return Arrival{*visitor.hello, notice, std::move(visitor.socket)};
      }
    }
    if (Clock::now() >= limit) {
      return std::nullopt;
    }
    Clock::time_point soonest = limit;
    std::vector<pollfd> polled = mapped(visitors_, [](const Visitor& v) { return pollfd{v.socket.get(), POLLIN, 0}; });
    for (const Visitor& v : visitors_) {
      soonest = std::min(soonest, v.limit);
    }
    polled.push_back({listener_.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(soonest - Clock::now()).count();
    poll(polled.data(), polled.size(), std::clamp<int64_t>(left, 0, Clock::kLongestLook.count() / 2));
  }
}

void Door::begin() {
  for (Visitor& visitor : visitors_) {
    visitor.limit = Clock::now() + patience_;
  }
}

bool Door::isQuiet() { return visitors_.empty() && !listener_.waitFor(POLLIN, Clock::now()); }

}  // namespace meshfuse
