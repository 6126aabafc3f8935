#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "base/error.h"
#include "decoders/decoders.h"
#include "multidevice/transport/host/handshake.h"
#include "multidevice/transport/host/star.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr Key kHelloKey = {1, 2, 3};

// A connection within this process.
struct ConnectedPair {
  Socket caller = Socket::createLocal();
  Socket host;

  explicit ConnectedPair(const Socket& listener, const std::string& name) {
    require(caller.connectLocal(name), "no connection to this process");
    host = listener.accept(Socket::Clock::now() + 10s);
  }
};

Hello expectedHello() { return {.purpose = Purpose::Watch, .from = 1, .to = 0, .size = 4, .world = 5}; }

// The bytes as what comes to a door, in pieces; its host knows the key, or only the user.
void readAtTheDoor(std::string_view bytes, const Trust& trust, bool isWhole, const Socket& listener,
                   const std::string& name) {
  Door door(listener, expectedHello(), trust, 1ms);
  const Socket caller = Socket::createLocal();
  require(caller.connectLocal(name), "no connection to this process");
  std::string message(bytes);
  if (isWhole && message.size() >= sizeof(Hello)) {  // else a fuzzer must find all numbers at once
    Hello hello;
    std::memcpy(&hello, message.data(), sizeof(hello));
    const Hello expected = expectedHello();
    hello.magic = expected.magic;
    hello.purpose = expected.purpose;
    hello.to = expected.to;
    hello.world = expected.world;
    std::memcpy(message.data(), &hello, sizeof(hello));
  }
  static_cast<void>(caller.send(message.data(), message.size(), Socket::Clock::now()));
  const auto limit = Socket::Clock::now() + 2ms;
  std::optional<Door::Arrival> arrival = door.next(limit);
  require(!arrival || !trust, "a caller without the key has come in");
  if (arrival) {
    require(arrival->hello.magic == Hello::kMagic, "a caller without a hello has come in");
  }
}

// The bytes as what the host of a connection answers.
void readAsCaller(std::string_view bytes, const Socket& listener, const std::string& name) {
  const ConnectedPair pair(listener, name);
  Caller caller(expectedHello(), kHelloKey);
  const auto limit = Socket::Clock::now() + 1ms;
  require(caller.sayHello(pair.caller, limit), "no hello");
  static_cast<void>(pair.host.send(bytes.data(), bytes.size(), limit));
  const Caller::Answer answer = caller.hear(pair.caller, limit);
  require(answer == Caller::Answer::None || answer == Caller::Answer::Stranger, "a host without the key is believed");
}

// The bytes as what the centre says to a rank: to one that knows it by the user, or by the key.
void readAsRank(std::string_view bytes, const Trust& trust, const Socket& listener, const std::string& name) {
  const ConnectedPair pair(listener, name);
  static_cast<void>(pair.host.send(bytes.data(), bytes.size(), Socket::Clock::now()));
  std::string problem;
  try {
    const auto slot = takeSlot(pair.caller, expectedHello(), trust, Socket::Clock::now() + 1ms, problem);
    require(!slot || !trust, "a centre without the key is believed");
  } catch (const DeviceError&) {
  }
}

// The bytes as what several ranks give themselves for, 8 bytes each: three slots.
void readForSlots(std::string_view bytes, const Socket& listener, const std::string& name) {
  constexpr size_t kMostCallers = 5;
  Door door(listener, expectedHello(), std::nullopt, 1ms);
  std::vector<Socket> callers;
  std::set<int32_t> believed;
  for (; bytes.size() >= 8 && callers.size() < kMostCallers; bytes.remove_prefix(8)) {
    Hello hello = expectedHello();
    std::memcpy(&hello.from, bytes.data(), 4);
    std::memcpy(&hello.size, bytes.data() + 4, 4);
    callers.push_back(Socket::createLocal());
    require(callers.back().connectLocal(name), "no connection to this process");
    static_cast<void>(callers.back().send(&hello, sizeof(hello), Socket::Clock::now()));
    if (hello.size == 4 && hello.from > 0 && hello.from < 4) {
      believed.insert(hello.from);
    }
  }
  const Slots slots = giveSlots(door, 0, 4, Socket::Clock::now() + 1ms);
  require(std::ranges::count_if(slots.byRank, &Socket::open) == std::ssize(believed), "a slot for a rank that is none");
  require(slots.missing.empty() == (believed.size() == 3), "a rank is missing that has a slot");
}

// A star whose other end is a connection.
class StarOfBytes final : public Star {
 public:
  StarOfBytes() : Star(10ms) {}
  Key key() override { return kHelloKey; }
  std::string address() const override { return {}; }
  void beCentreOf(Socket member) {
    std::vector<Socket> sockets(2);
    sockets[1] = std::move(member);
    openAsCentre(0, std::move(sockets));
  }
  [[nodiscard]] bool beMemberOf(Socket centre, const std::string& list) {
    return openAsMember(1, std::move(centre), list);
  }
};

// The bytes as the messages of a rank with a slot, to its centre; or of the centre, after the list of members.
void readInAStar(std::string_view bytes, bool isCentre, const Socket& listener, const std::string& name) {
  ConnectedPair pair(listener, name);
  const auto limit = Socket::Clock::now() + 1s;
  StarOfBytes star;
  if (isCentre) {
    star.beCentreOf(std::move(pair.host));
    static_cast<void>(pair.caller.send(bytes.data(), bytes.size(), limit));
  } else {
    static_cast<void>(pair.host.send(bytes.data(), bytes.size(), limit));
    pair.host = Socket();
    std::string list;
    if (!pair.caller.receiveText(list, limit) || !star.beMemberOf(std::move(pair.caller), list)) {
      return;
    }
  }
  pair.caller = Socket();
  try {
    require(std::ssize(star.allGather("mine")) == star.size(), "not one message of each rank");
  } catch (const DeviceError&) {
  }
}

}  // namespace

// The first byte chooses the side.
void readHello(std::string_view bytes) {
  static const std::string name = "meshfuse.decoder.hello." + std::to_string(getpid());
  static const Socket listener = [] {
    Socket s = Socket::createLocal();
    require(s.listenLocal(name, 8), "cannot listen");
    return s;
  }();
  if (bytes.empty()) {
    return;
  }
  const int side = bytes[0] & 15;
  bytes.remove_prefix(1);
  switch (side) {
    case 0:
    case 1:
      return readAtTheDoor(bytes, kHelloKey, side == 1, listener, name);
    case 2:
    case 3:
      return readAtTheDoor(bytes, std::nullopt, side == 3, listener, name);
    case 4:
      return readAsCaller(bytes, listener, name);
    case 5:
      return readAsRank(bytes, std::nullopt, listener, name);
    case 6:
      return readInAStar(bytes.substr(std::min<size_t>(1, bytes.size())), !bytes.empty() && bytes[0] % 2 == 0, listener,
                         name);
    case 7:
      return readForSlots(bytes, listener, name);
    case 8:
      return readAsRank(bytes, kHelloKey, listener, name);
    default:
      return readHandshake(bytes);
  }
}

}  // namespace meshfuse
