// A star of connections: every rank except the centre has a connection to the centre, which collects all messages and sends them to
// all ranks.
//
// Sockets never block: every step waits by poll until the deadline of the whole exchange. The centre knows the missing ranks and
// reports them to the others. The other ranks have a longer deadline than the centre, so that they do not report a waiting centre as dead.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {

class Star : public Bootstrap {
 public:
  int rank() const override { return position_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  std::vector<std::string> allGather(std::string_view mine) override;

 protected:
  using Clock = WaitingClock;

  explicit Star(std::chrono::milliseconds deadline);
  // `ranks`: as the launcher counts, by position. `sockets`: of the centre, by position, its own not open; of others, one.
  void open(std::vector<int> ranks, int position, int centre, std::vector<Socket> sockets);
  // The limit for the centre's first answer.
  void centreSpeaksWithin(std::chrono::milliseconds limit) { firstWord_ = limit; }
  [[noreturn]] void failAll(const std::string& text);
  std::chrono::milliseconds deadline() const { return deadline_; }
  static uint32_t millisecondsUntil(Clock::time_point limit);

 private:
  std::vector<std::string> collect(std::string_view mine);
  std::vector<std::string> contribute(std::string_view mine);
  // The error of a rank that sent nothing before the limit, or whose connection ended.
  std::string absence(int position, Clock::time_point limit) const;

  std::chrono::milliseconds deadline_;
  std::chrono::milliseconds firstWord_;
  std::vector<int> ranks_;
  int position_ = 0;
  int centre_ = 0;
  std::vector<Socket> sockets_;
};

}  // namespace meshfuse
