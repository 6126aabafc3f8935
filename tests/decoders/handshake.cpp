#include "multidevice/transport/host/handshake.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "decoders/decoders.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr Key kKey = {1, 2, 3};
constexpr int64_t kHelloBytes = 64;
constexpr int64_t kGreetingBytes = 72;
constexpr int64_t kClaimBytes = 36;

// The bytes that stand between a caller and a door, and change what passes.
class Changes {
 public:
  explicit Changes(std::string_view bytes) : rest_(bytes) {}

  // Receives a message of this size, changes it, and sends it on. False if there is none.
  bool pass(int64_t size, const Socket& from, const Socket& to) {
    std::string message(size, '\0');
    if (!from.receive(message.data(), message.size(), Socket::Clock::now() + 1ms)) {
      return false;
    }
    for (char& c : message) {
      const char change = rest_.empty() ? '\0' : rest_[0];
      rest_.remove_prefix(std::min<size_t>(1, rest_.size()));
      c = static_cast<char>(c ^ change);
      haveChanged_ = haveChanged_ || change != 0;
    }
    return to.send(message.data(), message.size(), Socket::Clock::now() + 1ms);
  }
  bool haveChanged() const { return haveChanged_; }

 private:
  std::string_view rest_;
  bool haveChanged_ = false;
};

}  // namespace

// A side of readHello: a handshake between a caller and a door that know the key. The bytes change its messages on the way. The first byte is a notice of the
// host, the second one of the caller.
void readHandshake(std::string_view bytes) {
  if (bytes.size() < 2) {
    return;
  }
  const Notice ofHost = static_cast<uint8_t>(bytes[0]);
  const Notice ofCaller = static_cast<uint8_t>(bytes[1]);
  Changes changes(bytes.substr(2));
  const std::string name = "meshfuse.decoder.handshake." + std::to_string(getpid());
  static const Socket atDoor = Socket::createLocal();
  static const Socket atRelay = Socket::createLocal();
  static const bool isListening = atDoor.listenLocal(name, 64) && atRelay.listenLocal(name + ".relay", 64);
  require(isListening, "no socket to listen at");

  const Hello hello{.purpose = Purpose::Watch, .from = 1, .to = 0, .size = 4, .world = 5};
  const Socket mine = Socket::createLocal();
  const Socket toDoor = Socket::createLocal();
  require(mine.connectLocal(name + ".relay") && toDoor.connectLocal(name), "no connection to this process");
  const Socket relay = atRelay.accept(Socket::Clock::now() + 10s);
  Door door(atDoor, hello, kKey, 1s);
  door.tellAll(ofHost);
  Caller caller(hello, kKey);
  require(caller.sayHello(mine, Socket::Clock::now() + 1s), "no hello");
  std::optional<Door::Arrival> arrival;
  Caller::Answer answer = Caller::Answer::None;
  require(changes.pass(kHelloBytes, relay, toDoor), "no hello");
  if (ofCaller != 0) {
    require(caller.leave(ofCaller, mine, Socket::Clock::now() + 1s) && changes.pass(kClaimBytes, relay, toDoor),
            "no notice");
    arrival = door.next(Socket::Clock::now());
  } else {
    require(!door.next(Socket::Clock::now()), "a caller without a proof has come in");
    if (changes.pass(kGreetingBytes, toDoor, relay)) {
      answer = caller.hear(mine, Socket::Clock::now() + 1ms);
    }
    const bool isBelieved = answer == Caller::Answer::Known || answer == Caller::Answer::Notice;
    require(isBelieved != changes.haveChanged(), "a changed greeting is believed, or a true one is not");
    require(!isBelieved || caller.notice() == ofHost, "another notice than the host's");
    if (answer == Caller::Answer::Known) {
      require(changes.pass(kClaimBytes, relay, toDoor), "no claim");
      arrival = door.next(Socket::Clock::now());
    }
  }
  const bool mayCome = !changes.haveChanged() && ofHost == 0;
  require(arrival.has_value() == mayCome, "a changed caller has come in, or a true one has not");
  require(!arrival || arrival->notice == ofCaller, "another notice than the caller's");
}

}  // namespace meshfuse
