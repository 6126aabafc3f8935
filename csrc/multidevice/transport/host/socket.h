// A connection, by TCP or within the host, that never blocks for longer than a limit.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "multidevice/transport/host/descriptor.h"
#include "multidevice/transport/host/waiting_clock.h"

namespace meshfuse {

class Socket {
 public:
  using Clock = WaitingClock;

  explicit Socket(int fd = -1) : descriptor_(fd) {}

  // A new socket, not connected.
  static Socket create();
  // A new socket for this host alone, with a name that exists as long as a socket has it. `type`: SOCK_STREAM, or SOCK_SEQPACKET.
  static Socket createLocal(int type = SOCK_STREAM);
  // Each is false, with errno, if it fails.
  bool listenLocal(const std::string& name, int backlog) const;
  bool connectLocal(const std::string& name) const;
  int get() const { return descriptor_.get(); }
  bool open() const { return descriptor_.open(); }

  // Of a connection within the host: who has made it, or accepts it.
  struct Peer {
    int64_t process;  // 0 if this process cannot see it
    int64_t user;
  };
  Peer peer() const;
  bool isOfThisUser() const;

  // The address of a host as a number, which connect() needs not look up: a name server may take seconds, whatever the limit.
  static std::string numericHost(const std::string& host);
  // Each is false if the other side closed or reset the connection, or the limit passed.
  bool connect(const std::string& host, const std::string& port, Clock::time_point limit) const;
  // True if the other side has closed or reset the connection; bytes that arrived before may still be read.
  bool hasClosed() const;
  bool waitFor(short events, Clock::time_point limit) const;
  bool send(const void* data, size_t bytes, Clock::time_point limit) const;
  bool receive(void* data, size_t bytes, Clock::time_point limit) const;
  // A text has at most kMostTextBytes; a longer one is not sent, and not received.
  static constexpr uint64_t kMostTextBytes = uint64_t{64} << 20;
  bool sendText(std::string_view text, Clock::time_point limit) const;
  bool receiveText(std::string& text, Clock::time_point limit) const;

  // Listens at the port, 0 for any port; false and errno if that fails.
  bool listen(const std::string& host, const std::string& port, int backlog) const;
  // Accepts a connection; not open() if there is none within the limit.
  Socket accept(Clock::time_point limit) const;
  int port() const;
  // Of this side of a TCP connection, as a number.
  std::string ownAddress() const;

 private:
  Descriptor descriptor_;
};

}  // namespace meshfuse
