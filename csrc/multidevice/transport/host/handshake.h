// The first messages of a connection between two ranks. After them each side knows that the other is a rank of its job.
//
//   caller                                host of the connection
//   Hello with a nonce             ->
//                                  <-     Greeting with a nonce and a proof over Hello and both nonces
//   Claim with a proof over all    ->
//
// Proofs need the key of the job. Nobody can use the messages of one connection in another one, because the nonces differ. A connection
// within the host has no key: both sides see the user of the other, and the Hello is the only message.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "multidevice/transport/host/secret.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {

enum class Purpose : uint32_t { World, Survivors, Watch, Rejoin };

struct Hello {
  static constexpr uint32_t kMagic = 0x6d665001;  // changes with the messages

  uint32_t magic = kMagic;
  Purpose purpose = Purpose::World;
  int32_t from = -1;  // the caller's rank
  int32_t to = -1;    // the rank that the caller looks for
  int32_t size = 0;   // of the caller's world
  uint32_t reserved = 0;
  uint64_t world = 0;  // a number of the world, 0 before it has one
  RandomBytes nonce{};
};

// How a rank knows its peers: by the key, or within a host, without a key, by the user.
using Trust = std::optional<Key>;

// What the host of a connection, or a caller that does not wait for it, says in place of the next message; 0 for nothing.
using Notice = uint32_t;

// The caller's side.
class Caller {
 public:
  enum class Answer {
    Known,     // the host is a rank of this job, and knows this rank
    Notice,    // the host, a rank of this job, has only a notice
    None,      // it closed the connection, or said nothing within the limit
    Stranger,  // it is no rank of this job
  };

  Caller(const Hello& hello, Trust trust);
  // False if the connection has ended.
  [[nodiscard]] bool sayHello(const Socket& to, Socket::Clock::time_point limit) const;
  // Receives the host's answer.
  [[nodiscard]] Answer hear(const Socket& from, Socket::Clock::time_point limit);
  // After Answer::Notice.
  Notice notice() const { return notice_; }
  // Leaves a notice for a host that has not answered; the host may read it after this connection has ended. InternalError without a key
  // (within one host).
  [[nodiscard]] bool leave(Notice notice, const Socket& to, Socket::Clock::time_point limit) const;

 private:
  Hello hello_;
  Trust trust_;
  Notice notice_ = 0;
};

// The host's side: all connections that come to a listening socket. Each has its own time to prove what it is.
class Door {
 public:
  using Clock = Socket::Clock;
  struct Arrival {
    Hello hello;
    Notice notice;  // 0: the caller is known, and waits for an answer
    Socket socket;
  };

  // Opens for callers with this purpose and world who look for rank `to`. `patience`: the time of one connection. The listener must
  // outlive the door.
  Door(const Socket& listener, const Hello& expected, Trust trust, std::chrono::milliseconds patience);

  // The next caller that is a rank of this job; nothing if none comes within the limit.
  [[nodiscard]] std::optional<Arrival> next(Clock::time_point limit);
  // Each thread that goes on with a door calls this first: all visitors get their time again, by the clock of this thread.
  void begin();
  // From now on callers get only this notice; 0: as before.
  void tellAll(Notice notice) { told_ = notice; }
  // True if nobody waits.
  [[nodiscard]] bool isQuiet();
  // How many callers did not prove that they belong to the job.
  int64_t strangers() const { return strangers_; }

 private:
  struct Visitor {
    Socket socket;
    Clock::time_point limit;
    std::string bytes{};  // of the next message, as far as it has come
    std::optional<Hello> hello{};
    RandomBytes nonce{};
  };
  enum class Step { Waits, Comes, Goes };

  void acceptVisitors();
  Step advance(Visitor& visitor, Notice& notice);
  Step hearHello(Visitor& visitor);
  Step hearClaim(Visitor& visitor, Notice& notice);

  const Socket& listener_;
  Hello expected_;
  Trust trust_;
  std::chrono::milliseconds patience_;
  Notice told_ = 0;
  int64_t strangers_ = 0;
  std::vector<Visitor> visitors_;
};

}  // namespace meshfuse
