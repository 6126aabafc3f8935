#include "multidevice/transport/host/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>

#include "base/error.h"
#include "base/hash.h"

namespace meshfuse {

namespace {

constexpr uint64_t kPiece = uint64_t{1} << 20;

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = host.empty() ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  deviceCheck(status == 0, "[host] address {} port {}: {}", host, port, gai_strerror(status));
  return {found, freeaddrinfo};
}

std::string textOf(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return text;
}

// All zero for a socket that is not of TCP.
sockaddr_in ownName(const Socket& s) {
  sockaddr_storage any{};
  socklen_t length = sizeof(any);
  const bool isTcp = getsockname(s.get(), reinterpret_cast<sockaddr*>(&any), &length) == 0 && any.ss_family == AF_INET;
  return isTcp ? reinterpret_cast<sockaddr_in&>(any) : sockaddr_in{};
}

// In the abstract namespace: the name disappears with the last socket that uses it. A name that is too long is replaced by its hash.
struct LocalAddress {
  sockaddr_un address{};
  socklen_t length;

  explicit LocalAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    const std::string used = name.size() < sizeof(address.sun_path) ? name : "meshfuse." + hashText(name).hex();
    std::ranges::copy(used, address.sun_path + 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + used.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Moves bytes by calls of `move`, which begins after the bytes that have been moved; false if the other side closed or the limit passed.
template <class Move>
bool isMoved(const Socket& s, short event, size_t bytes, Socket::Clock::time_point limit, const Move& move) {
  for (size_t moved = 0; moved < bytes;) {
    if (!s.waitFor(event, limit)) {
      return false;
    }
    const ssize_t n = move(moved);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      return false;
    }
    moved += std::max<ssize_t>(n, 0);
  }
  return true;
}

}  // namespace

Socket Socket::create() {
  Socket s(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(s.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return s;
}

Socket Socket::createLocal(int type) { return Socket(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

bool Socket::listenLocal(const std::string& name, int backlog) const {
  const LocalAddress address(name);
  return bind(get(), address.get(), address.length) == 0 && ::listen(get(), backlog) == 0;
}

bool Socket::connectLocal(const std::string& name) const {
  const LocalAddress address(name);
  return ::connect(get(), address.get(), address.length) == 0;
}

Socket::Peer Socket::peer() const {
  ucred found{};
  socklen_t length = sizeof(found);
  const bool known = getsockopt(get(), SOL_SOCKET, SO_PEERCRED, &found, &length) == 0;
  return known ? Peer{found.pid, found.uid} : Peer{0, -1};
}

bool Socket::isOfThisUser() const { return peer().user == geteuid(); }

std::string Socket::numericHost(const std::string& host) {
  return textOf(*reinterpret_cast<const sockaddr_in*>(resolve(host, "0")->ai_addr));
}

bool Socket::connect(const std::string& host, const std::string& port, Clock::time_point limit) const {
  const Addresses found = resolve(host, port);
  if (::connect(get(), found->ai_addr, found->ai_addrlen) == 0) {
    return true;
  }
  int error = errno;
  if ((error == EINPROGRESS || error == EINTR) && waitFor(POLLOUT, limit)) {
    socklen_t length = sizeof(error);
    getsockopt(get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  return error == 0;
}

bool Socket::hasClosed() const {
  pollfd p{get(), POLLRDHUP, 0};
  return poll(&p, 1, 0) > 0;
}

bool Socket::waitFor(short events, Clock::time_point limit) const {
  pollfd p{get(), events, 0};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
    const int n = poll(&p, 1, std::clamp<int64_t>(left, 0, WaitingClock::kLongestLook.count() / 2));
    if (n > 0) {
      return (p.revents & events) != 0;
    }
    if (left <= 0 || (n < 0 && errno != EINTR)) {
      return false;
    }
  }
}

bool Socket::send(const void* data, size_t bytes, Clock::time_point limit) const {
  const char* at = static_cast<const char*>(data);
  return isMoved(*this, POLLOUT, bytes, limit,
                 [&](size_t moved) { return ::send(get(), at + moved, bytes - moved, MSG_NOSIGNAL | MSG_DONTWAIT); });
}

bool Socket::receive(void* data, size_t bytes, Clock::time_point limit) const {
  char* at = static_cast<char*>(data);
  return isMoved(*this, POLLIN, bytes, limit,
                 [&](size_t moved) { return recv(get(), at + moved, bytes - moved, MSG_DONTWAIT); });
}

bool Socket::sendText(std::string_view text, Clock::time_point limit) const {
  const uint64_t bytes = text.size();
  return bytes <= kMostTextBytes && send(&bytes, sizeof(bytes), limit) && send(text.data(), text.size(), limit);
}

bool Socket::receiveText(std::string& text, Clock::time_point limit) const {
  uint64_t bytes = 0;
  if (!receive(&bytes, sizeof(bytes), limit) || bytes > kMostTextBytes) {
    return false;
  }
  text.clear();
  while (text.size() < bytes) {  // memory only for bytes that come
    const size_t have = text.size();
    text.resize(std::min<uint64_t>(bytes, have + kPiece));
    if (!receive(text.data() + have, text.size() - have, limit)) {
      return false;
    }
  }
  return true;
}

bool Socket::listen(const std::string& host, const std::string& port, int backlog) const {
  const Addresses found = resolve(host, port);
  return bind(get(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(get(), backlog) == 0;
}

Socket Socket::accept(Clock::time_point limit) const {
  Socket s(waitFor(POLLIN, limit) ? accept4(get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1);
  const int error = errno;
  const int on = 1;
  setsockopt(s.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  errno = error;
  return s;
}

int Socket::port() const { return ntohs(ownName(*this).sin_port); }

std::string Socket::ownAddress() const {
  const sockaddr_in address = ownName(*this);
  return address.sin_family == AF_INET ? textOf(address) : "";
}

}  // namespace meshfuse
