#include "multidevice/transport/host/network_rejoin.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr uint32_t kRejoinMagic = 0x6d657372;
constexpr auto kAnswerPoll = 5ms;

}  // namespace

NetworkRejoin::NetworkRejoin(const NetworkWatch& old, int64_t rank, int64_t size, const TransportOptions& options,
                             std::string place)
    : Star(options.deadline),
      old_(old),
      options_(options),
      rank_(rank),
      size_(size),
      place_(std::move(place)),
      visitors_(size) {
  serve();  // handles messages that arrived while this rank was stopped first
  if (!findCentre()) {
    gather();
  }
}

bool NetworkRejoin::isWritten(Word word, const Socket& to, int64_t peer) const {
  const Frame frame{kRejoinMagic, word, old_.world(), static_cast<int32_t>(rank_), static_cast<int32_t>(peer)};
  return to.send(&frame, sizeof(frame), soon());
}

// Connects to the next address of the peer that accepts a connection; not open if none is left.
void NetworkRejoin::dial(Line& line) const {
  const NetworkPlace& place = old_.places()[line.peer];
  line.socket = Socket();
  while (line.isGone() && line.hostsTried < place.hosts.size()) {
    Socket socket = Socket::create();
    if (socket.connect(place.hosts[line.hostsTried++], place.port, soon()) &&
        isWritten(Word::Come, socket, line.peer)) {
      closeWhenUnreachable(socket);
      line.socket = std::move(socket);
    }
  }
}

bool NetworkRejoin::findCentre() {
  for (int64_t candidate = 0; candidate < rank_; ++candidate) {
    Line line{.peer = candidate};
    dial(line);
    if (isCentre(line)) {
      return true;
    }
    if (!line.isGone()) {
      giveUp(std::move(line));
    }
  }
  return false;
}

// Without the note a peer that comes now would make a world of its own, and count on this rank.
void NetworkRejoin::giveUp(Line line) {
  static_cast<void>(isWritten(Word::Late, line.socket, line.peer));
  silent_.push_back(std::move(line));
  serve();  // the peer may have given up this rank at the same time
}

bool NetworkRejoin::othersAreBusy() const {
  return std::ranges::any_of(std::views::iota(int64_t{0}, size_),
                             [&](int64_t r) { return r != rank_ && old_.isBusy(r); });
}

bool NetworkRejoin::isCentre(Line& line) {
  const auto begin = Clock::now();
  auto limit = begin + options_.deadline;
  while (!line.isGone() && Clock::now() < limit) {
    serve();
    const bool answeredBefore = line.answered;
    if (line.socket.waitFor(POLLIN, Clock::now() + kAnswerPoll) && hearAnswer(line)) {
      return true;
    }
    const bool mayBeExtended = Clock::now() < begin + options_.busyLimit;
    if (line.answered && (!answeredBefore || (mayBeExtended && othersAreBusy()))) {
      // The peer may first wait for the ranks below it, then for those above.
      limit = Clock::now() + (line.peer + 2) * options_.deadline;
    } else if (mayBeExtended && old_.isBusy(line.peer)) {
      limit = std::max(limit, Clock::now() + options_.deadline);
    }
  }
  return false;
}

// Reads a message of a rank that may be the centre; returns whether it is the list of members.
bool NetworkRejoin::hearAnswer(Line& line) {
  Frame frame{};
  const auto limit = soon();
  if (!line.socket.receive(&frame, sizeof(frame), limit) || frame.magic != kRejoinMagic || frame.from != line.peer) {
    dial(line);  // another process answered, or the peer has ended
    return false;
  }
  if (frame.word == Word::Late) {
    throwLate(Word::Late);
  }
  if (frame.word == Word::Out) {
    line.socket = Socket();
    return false;
  }
  line.answered = true;
  std::string text;
  if (frame.word != Word::Members || !line.socket.receiveText(text, limit)) {
    return false;
  }
  deviceCheck(openAsMember(rank_, std::move(line.socket), text),
              "[network] {} got no list of the surviving ranks from [rank {}/{}]", place_, line.peer, size_);
  dismissVisitors(Word::Late);
  return true;
}

// Whether a rank above may still come. Such a rank writes only if it has continued without this one, or cannot continue itself.
bool NetworkRejoin::isAwaited(Line& line) {
  while (!line.isGone()) {
    const bool closed = line.socket.hasClosed();  // read before the last message
    const std::optional<Word> word = nextWord(line.socket);
    if (word == Word::Late) {
      throwLate(Word::Late);
    }
    if (word == Word::Out) {
      line.socket = Socket();
      break;
    }
    if (!closed) {
      break;
    }
    dial(line);
  }
  return !visitors_[line.peer].open() && !line.isGone();
}

// As the centre: waits for the ranks above, and sends the list of members.
void NetworkRejoin::gather() {
  std::vector<Line> above;
  for (int64_t r = rank_ + 1; r < size_; ++r) {
    above.push_back({.peer = r});
    dial(above.back());
  }
  const auto begin = Clock::now();
  auto limit = begin + options_.deadline;
  for (;;) {
    serve();
    bool complete = true;
    for (Line& line : above) {
      const bool awaited = isAwaited(line);
      complete = complete && !awaited;
      if (awaited && old_.isBusy(line.peer) && Clock::now() < begin + options_.busyLimit) {
        limit = Clock::now() + options_.deadline;
      }
    }
    if (complete || Clock::now() >= limit) {
      break;
    }
    old_.rendezvousPoint().waitFor(POLLIN, Clock::now() + kAnswerPoll);
  }
  settle(std::move(above));
}

// Sends the list to its members, and a refusal to the other ranks above; those below have one.
void NetworkRejoin::settle(std::vector<Line> above) {
  openAsCentre(rank_, std::move(visitors_));  // it is the lowest member
  for (const Line& line : above) {
    if (!contains(members(), line.peer) && !line.isGone()) {
      static_cast<void>(isWritten(Word::Late, line.socket, line.peer));
    }
  }
  std::ranges::move(above, std::back_inserter(silent_));
  for (const int64_t i : indices(members())) {
    const Socket& member = sockets()[i];
    static_cast<void>(member.open() && isWritten(Word::Members, member, members()[i]) &&
                      member.sendText(list(), soon()));
  }
}

// Accepts new connections to this rank and reads their messages.
void NetworkRejoin::serve() {
  while (old_.rendezvousPoint().waitFor(POLLIN, Clock::now())) {
    hear(old_.rendezvousPoint().accept(Clock::now()));
  }
  for (std::vector<Socket>* group : {&visitors_, &callers_}) {
    for (Socket& caller : *group) {
      if (!caller.open()) {
        continue;
      }
      const bool closed = caller.hasClosed();  // read before the last message
      throwIfLate(caller, group == &visitors_ ? Word::Out : Word::Late);
      if (closed) {
        caller = Socket();
      }
    }
  }
  std::erase_if(callers_, std::not_fn(&Socket::open));
}

std::optional<NetworkRejoin::Word> NetworkRejoin::nextWord(const Socket& from) const {
  Frame frame{};
  if (from.waitFor(POLLIN, Clock::now()) && from.receive(&frame, sizeof(frame), soon()) &&
      frame.magic == kRejoinMagic && frame.world == old_.world()) {
    return frame.word;
  }
  return std::nullopt;
}

void NetworkRejoin::throwIfLate(const Socket& from, Word forVisitors) {
  if (nextWord(from) == Word::Late) {
    throwLate(forVisitors);
  }
}

void NetworkRejoin::hear(Socket visitor) {
  Frame frame{};
  const bool isForThis = visitor.open() && visitor.receive(&frame, sizeof(frame), soon()) &&
                         frame.magic == kRejoinMagic && frame.world == old_.world() && frame.to == rank_ &&
                         frame.word == Word::Come && frame.from >= 0 && frame.from < size_ && frame.from != rank_;
  if (!isForThis) {
    return;  // another program, or a rank that looked for a different rank at an address that both hosts have
  }
  // A higher rank has only given up this one; a lower one is a centre that has continued without it.
  throwIfLate(visitor, frame.from > rank_ ? Word::Out : Word::Late);
  if (frame.from > rank_ && isWritten(Word::Here, visitor, frame.from)) {
    visitors_[frame.from] = std::move(visitor);
  } else {
    callers_.push_back(std::move(visitor));
  }
}

void NetworkRejoin::dismissVisitors(Word word) {
  for (int64_t r = 0; r < std::ssize(visitors_); ++r) {
    static_cast<void>(visitors_[r].open() && isWritten(word, visitors_[r], r));
  }
  if (word == Word::Out) {
    sendAway(old_, rank_, word);
  }
}

void NetworkRejoin::throwLate(Word forVisitors) {
  dismissVisitors(forVisitors);
  throwDeviceError(fmt::format("[network] {} rejoined too late: the others have made a new world without it", place_));
}

void NetworkRejoin::sendAway(const NetworkWatch& old, int64_t rank, Word word) {
  while (old.rendezvousPoint().waitFor(POLLIN, Clock::now())) {
    const Socket visitor = old.rendezvousPoint().accept(Clock::now());
    Frame frame{};
    if (visitor.open() && visitor.receive(&frame, sizeof(frame), Clock::now() + old.promptLimit()) &&
        frame.magic == kRejoinMagic && frame.word == Word::Come) {
      const Frame answer{kRejoinMagic, word, old.world(), static_cast<int32_t>(rank), frame.from};
      static_cast<void>(visitor.send(&answer, sizeof(answer), Clock::now() + old.promptLimit()));
    }
  }
}

}  // namespace meshfuse
