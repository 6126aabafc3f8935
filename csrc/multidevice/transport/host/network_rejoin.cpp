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

constexpr auto kAnswerPoll = 5ms;

}  // namespace

NetworkRejoin::NetworkRejoin(NetworkWatch& old, int64_t rank, int64_t size, const TransportOptions& options,
                             std::string place)
    : Star(options.deadline),
      old_(old),
      options_(options),
      rank_(rank),
      size_(size),
      place_(std::move(place)),
      visitors_(size) {
  old_.rejoinDoor().tellAll(0);
  old_.rejoinDoor().begin();
  serve();  // handles messages that arrived while this rank was stopped first
  if (!findCentre()) {
    gather();
  }
}

bool NetworkRejoin::isWritten(Word word, const Socket& to) const { return to.send(&word, sizeof(word), soon()); }

bool NetworkRejoin::isWritten(Word word, const Line& line) const {
  return line.known ? isWritten(word, line.socket) : line.caller.leave(static_cast<Notice>(word), line.socket, soon());
}

// A connection to the peer; not open if it cannot be reached.
NetworkRejoin::Line NetworkRejoin::dialled(int64_t peer) const {
  const Hello hello{.purpose = Purpose::Rejoin,
                    .from = static_cast<int32_t>(rank_),
                    .to = static_cast<int32_t>(peer),
                    .size = static_cast<int32_t>(size_),
                    .world = old_.world()};
  Line line{.peer = peer, .caller = Caller(hello, old_.key())};
  const auto& [host, port] = old_.places()[peer];
  Socket socket = Socket::create();
  if (socket.connect(host, port, soon()) && line.caller.sayHello(socket, soon())) {
    closeWhenUnreachable(socket);
    line.socket = std::move(socket);
  }
  return line;
}

bool NetworkRejoin::findCentre() {
  for (int64_t candidate = 0; candidate < rank_; ++candidate) {
    Line line = dialled(candidate);
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
  static_cast<void>(isWritten(Word::Late, line));
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
  const std::optional<Word> word = nextWord(line);
  if (line.isGone() || !word) {
    return false;
  }
  if (*word == Word::Late) {
    throwLate(Word::Late);
  }
  if (*word == Word::Out) {
    line.socket = Socket();
    return false;
  }
  line.answered = true;
  std::string text;
  if (*word != Word::Members || !line.socket.receiveText(text, soon())) {
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
    const std::optional<Word> word = nextWord(line);
    if (word == Word::Late) {
      throwLate(Word::Late);
    }
    if (word == Word::Out) {
      line.socket = Socket();
    }
    if (!word) {
      break;
    }
  }
  return !visitors_[line.peer].open() && !line.isGone();
}

// As the centre: waits for the ranks above, and sends the list of members.
void NetworkRejoin::gather() {
  std::vector<Line> above;
  for (int64_t r = rank_ + 1; r < size_; ++r) {
    above.push_back(dialled(r));
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
      static_cast<void>(isWritten(Word::Late, line));
    }
  }
  std::ranges::move(above, std::back_inserter(silent_));
  for (const int64_t i : indices(members())) {
    const Socket& member = sockets()[i];
    static_cast<void>(member.open() && isWritten(Word::Members, member) && member.sendText(list(), soon()));
  }
}

// Accepts new connections to this rank and reads their messages.
void NetworkRejoin::serve() {
  while (std::optional<Door::Arrival> arrival = old_.rejoinDoor().next(Clock::now())) {
    hear(std::move(*arrival));
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
  Word word{};
  const bool has = from.waitFor(POLLIN, Clock::now()) && from.receive(&word, sizeof(word), soon());
  return has && word >= Word::Here && word <= Word::Out ? std::optional(word) : std::nullopt;
}

std::optional<NetworkRejoin::Word> NetworkRejoin::nextWord(Line& line) const {
  const bool closed = line.socket.hasClosed();  // read before the last message
  std::optional<Word> word;
  if (line.known) {
    word = nextWord(line.socket);
  } else if (line.socket.waitFor(POLLIN, Clock::now())) {
    using enum Caller::Answer;
    const Caller::Answer answer = line.caller.hear(line.socket, soon());
    line.known = answer == Known;
    if (answer == Notice) {
      word = static_cast<Word>(line.caller.notice());
    } else if (!line.known) {
      line.socket = Socket();  // another process listens there, or the peer has ended
    }
  }
  if (closed && !word) {
    line.socket = Socket();
  }
  return word;
}

void NetworkRejoin::throwIfLate(const Socket& from, Word forVisitors) {
  if (nextWord(from) == Word::Late) {
    throwLate(forVisitors);
  }
}

void NetworkRejoin::hear(Door::Arrival arrival) {
  const int64_t from = arrival.hello.from;
  if (from < 0 || from >= size_ || from == rank_) {
    return;
  }
  // A higher rank has only given up this one; a lower one is a centre that has continued without it.
  const Word forVisitors = from > rank_ ? Word::Out : Word::Late;
  if (static_cast<Word>(arrival.notice) == Word::Late) {
    throwLate(forVisitors);
  }
  throwIfLate(arrival.socket, forVisitors);
  if (from > rank_ && isWritten(Word::Here, arrival.socket)) {
    visitors_[from] = std::move(arrival.socket);
  } else {
    callers_.push_back(std::move(arrival.socket));
  }
}

void NetworkRejoin::dismissVisitors(Word word) {
  for (int64_t r = 0; r < std::ssize(visitors_); ++r) {
    static_cast<void>(visitors_[r].open() && isWritten(word, visitors_[r]));
  }
  if (word == Word::Out) {
    sendAway(old_, word);
  }
}

void NetworkRejoin::throwLate(Word forVisitors) {
  dismissVisitors(forVisitors);
  throwDeviceError(fmt::format("[network] {} rejoined too late: the others have made a new world without it", place_));
}

void NetworkRejoin::sendAway(NetworkWatch& old, Word word, const std::stop_token& stop) {
  Door& door = old.rejoinDoor();
  door.tellAll(static_cast<Notice>(word));
  const auto limit = Clock::now() + old.promptLimit();
  while (!door.isQuiet() && Clock::now() < limit && !stop.stop_requested()) {
    if (const auto arrival = door.next(Clock::now() + kAnswerPoll)) {
      static_cast<void>(arrival->socket.send(&word, sizeof(word), Clock::now() + old.promptLimit()));
    }
  }
}

}  // namespace meshfuse
