// Each rank but 0 connects to rank 0, which collects and returns the messages of all. Sockets never block: every step waits by
// poll until the deadline of the whole gathering.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "multidevice/transport/host/bootstrap.h"

namespace meshfuse {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMagic = 0x6d657368;

struct Hello {
  uint32_t magic = kMagic;
  int32_t rank = -1;
  int32_t size = 0;
};

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

  // False if the other side closed or reset the connection, or the limit passed.
  bool waitFor(short events, Clock::time_point limit) const {
    pollfd p{fd_, events, 0};
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
      const int n = poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
      if (n > 0) {
        return (p.revents & events) != 0;
      }
      if (left <= 0 || (n < 0 && errno != EINTR)) {
        return false;
      }
    }
  }
  bool send(const void* data, size_t bytes, Clock::time_point limit) const {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = waitFor(POLLOUT, limit) ? ::send(fd_, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
      if (n < 0 && errno != EAGAIN && errno != EINTR) {
        return false;
      }
      if (n < 0 && Clock::now() >= limit) {
        return false;
      }
      at += std::max<ssize_t>(n, 0);
      bytes -= static_cast<size_t>(std::max<ssize_t>(n, 0));
    }
    return true;
  }
  bool receive(void* data, size_t bytes, Clock::time_point limit) const {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
      if (!waitFor(POLLIN, limit)) {
        return false;
      }
      const ssize_t n = recv(fd_, at, bytes, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        return false;
      }
      at += std::max<ssize_t>(n, 0);
      bytes -= static_cast<size_t>(std::max<ssize_t>(n, 0));
    }
    return true;
  }
  bool sendText(std::string_view text, Clock::time_point limit) const {
    const uint64_t bytes = text.size();
    return send(&bytes, sizeof(bytes), limit) && send(text.data(), text.size(), limit);
  }
  bool receiveText(std::string& text, Clock::time_point limit) const {
    uint64_t bytes = 0;
    if (!receive(&bytes, sizeof(bytes), limit)) {
      return false;
    }
    text.resize(bytes);
    return receive(text.data(), bytes, limit);
  }

 private:
  int fd_;
};

int environmentNumber(const char* variable) {
  const char* text = std::getenv(variable);
  int value = -1;
  const char* end = text == nullptr ? nullptr : text + std::strlen(text);
  const bool parsed = text != nullptr && std::from_chars(text, end, value).ptr == end;
  check(parsed && value >= 0, "[host] {} is '{}', expected a number; set RANK and WORLD_SIZE alike on all ranks", variable, text == nullptr ? "" : text);
  return value;
}

struct Address {
  std::string host;
  std::string port;

  addrinfo* resolve() const {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int status = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    deviceCheck(status == 0, "[host] MASTER_ADDR {} port {}: {}", host, port, gai_strerror(status));
    return found;
  }
};

class StarBootstrap final : public Bootstrap {
 public:
  explicit StarBootstrap(std::chrono::milliseconds deadline)
      : rank_(environmentNumber("RANK")), size_(environmentNumber("WORLD_SIZE")), deadline_(deadline) {
    check(rank_ < size_, "[host] RANK is {}, expected less than WORLD_SIZE, {}", rank_, size_);
    const char* host = std::getenv("MASTER_ADDR");
    const char* port = std::getenv("MASTER_PORT");
    address_ = {host == nullptr ? "127.0.0.1" : host, port == nullptr ? "29500" : port};
    if (size_ > 1) {
      rank_ == 0 ? listen() : join();
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::vector<std::string> allGather(std::string_view mine) override {
    const auto limit = Clock::now() + deadline_;
    std::vector<std::string> all(static_cast<size_t>(size_));
    all[static_cast<size_t>(rank_)] = mine;
    if (rank_ == 0) {
      for (int r = 1; r < size_; ++r) {
        require(peer(r).receiveText(all[static_cast<size_t>(r)], limit), r);
      }
      for (int r = 1; r < size_; ++r) {
        for (const std::string& text : all) {
          require(peer(r).sendText(text, limit), r);
        }
      }
    } else {
      require(peer(0).sendText(mine, limit), 0);
      for (std::string& text : all) {
        require(peer(0).receiveText(text, limit), 0);
      }
    }
    return all;
  }

 private:
  const Socket& peer(int r) const { return sockets_[static_cast<size_t>(r)]; }
  void require(bool done, int r) const {
    deviceCheck(done, "[host] rank {} of {}: rank {} left, or did not open its world within {} ms", rank_, size_, r, deadline_.count());
  }

  void listen() {
    const auto limit = Clock::now() + deadline_;
    sockets_.resize(static_cast<size_t>(size_));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(address_.resolve(), freeaddrinfo);
    Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool bound = bind(listener.get(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(listener.get(), size_) == 0;
    deviceCheck(bound, "[host] rank 0 cannot listen at {} port {}: {}; choose another MASTER_PORT", address_.host, address_.port, std::strerror(errno));
    for (int missing = size_ - 1; missing > 0;) {
      deviceCheck(listener.waitFor(POLLIN, limit), "[host] {} of {} ranks did not connect to {} port {} within {} ms", missing, size_, address_.host,
                  address_.port, deadline_.count());
      Socket joined(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Hello hello;
      const bool ours = joined.open() && joined.receive(&hello, sizeof(hello), std::min(limit, Clock::now() + std::chrono::seconds(5))) && hello.magic == kMagic;
      if (!ours) {
        continue;  // a stranger, or a rank that gave up and tries again
      }
      check(hello.size == size_ && hello.rank > 0 && hello.rank < size_, "[host] a process came as rank {} of {}, this world has {} ranks", hello.rank,
            hello.size, size_);
      Socket& seat = sockets_[static_cast<size_t>(hello.rank)];
      missing -= seat.open() ? 0 : 1;
      setsockopt(joined.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      joined.send(&kMagic, sizeof(kMagic), limit);
      seat = std::move(joined);
    }
  }

  void join() {
    const auto limit = Clock::now() + deadline_;
    sockets_.resize(1);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(address_.resolve(), freeaddrinfo);
    for (auto pause = std::chrono::milliseconds(2);; pause = std::min(pause * 2, std::chrono::milliseconds(100))) {
      Socket mine(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const Hello hello{.rank = rank_, .size = size_};
      uint32_t answer = 0;
      const int on = 1;
      setsockopt(mine.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      if (connect(mine.get(), found->ai_addr, found->ai_addrlen) == 0 && mine.send(&hello, sizeof(hello), limit) &&
          mine.receive(&answer, sizeof(answer), limit) && answer == kMagic) {
        sockets_[0] = std::move(mine);
        return;
      }
      deviceCheck(Clock::now() < limit, "[host] rank {} found no rank 0 at {} port {} within {} ms; check MASTER_ADDR and MASTER_PORT", rank_, address_.host,
                  address_.port, deadline_.count());
      std::this_thread::sleep_for(pause);
    }
  }

  int rank_;
  int size_;
  std::chrono::milliseconds deadline_;
  Address address_;
  std::vector<Socket> sockets_;
};

}  // namespace

bool starOffered() { return std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr; }

std::unique_ptr<Bootstrap> connectStar(std::chrono::milliseconds deadline) { return std::make_unique<StarBootstrap>(deadline); }

}  // namespace meshfuse
