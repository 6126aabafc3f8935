// Each rank but 0 connects to rank 0, which collects and returns the messages of all. Sockets never block: every step waits by
// poll until the deadline of the whole gathering.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMagic = 0x6d657368;

struct Hello {
  uint32_t magic = kMagic;
  int32_t rank = -1;
  int32_t size = 0;
};

int environmentNumber(const char* variable) {
  const char* text = std::getenv(variable);
  int value = -1;
  const char* end = text == nullptr ? nullptr : text + std::strlen(text);
  const bool parsed = text != nullptr && std::from_chars(text, end, value).ptr == end;
  check(parsed && value >= 0, "[host] {} is '{}', expected a number; set RANK and WORLD_SIZE alike on all ranks",
        variable, text == nullptr ? "" : text);
  return value;
}

struct Address {
  std::string host;
  std::string port;
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
    deviceCheck(done, "[host] rank {} of {}: rank {} left, or did not open its world within {} ms", rank_, size_, r,
                deadline_.count());
  }

  void listen() {
    const auto limit = Clock::now() + deadline_;
    sockets_.resize(static_cast<size_t>(size_));
    const Socket listener = Socket::create();
    deviceCheck(listener.listen(address_.host, address_.port, size_),
                "[host] rank 0 cannot listen at {} port {}: {}; choose another MASTER_PORT", address_.host,
                address_.port, std::strerror(errno));
    for (int missing = size_ - 1; missing > 0;) {
      Socket joined = listener.accept(limit);
      deviceCheck(joined.open(), "[host] {} of {} ranks did not connect to {} port {} within {} ms", missing, size_,
                  address_.host, address_.port, deadline_.count());
      Hello hello;
      if (!joined.receive(&hello, sizeof(hello), std::min(limit, Clock::now() + std::chrono::seconds(5))) ||
          hello.magic != kMagic) {
        continue;  // a stranger, or a rank that gave up and tries again
      }
      check(hello.size == size_ && hello.rank > 0 && hello.rank < size_,
            "[host] a process came as rank {} of {}, this world has {} ranks", hello.rank, hello.size, size_);
      Socket& seat = sockets_[static_cast<size_t>(hello.rank)];
      missing -= seat.open() ? 0 : 1;
      joined.send(&kMagic, sizeof(kMagic), limit);
      seat = std::move(joined);
    }
  }

  void join() {
    const auto limit = Clock::now() + deadline_;
    sockets_.resize(1);
    for (auto pause = std::chrono::milliseconds(2);; pause = std::min(pause * 2, std::chrono::milliseconds(100))) {
      Socket mine = Socket::create();
      const Hello hello{.rank = rank_, .size = size_};
      uint32_t answer = 0;
      if (mine.connect(address_.host, address_.port, limit) && mine.send(&hello, sizeof(hello), limit) &&
          mine.receive(&answer, sizeof(answer), limit) && answer == kMagic) {
        sockets_[0] = std::move(mine);
        return;
      }
      deviceCheck(Clock::now() < limit,
                  "[host] rank {} found no rank 0 at {} port {} within {} ms; check MASTER_ADDR and MASTER_PORT", rank_,
                  address_.host, address_.port, deadline_.count());
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

std::unique_ptr<Bootstrap> connectStar(std::chrono::milliseconds deadline) {
  return std::make_unique<StarBootstrap>(deadline);
}

}  // namespace meshfuse
