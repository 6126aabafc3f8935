// A star of connections: every rank except the centre has a connection to the centre, which collects all messages and sends them to
// all ranks.
//
// Sockets never block: every step waits by poll until the deadline of the whole exchange. The centre knows the missing ranks and
// reports them to the others. The other ranks have a longer deadline than the centre, so that they do not report a waiting centre as dead.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {

// As the centre of a star: accepts connections until all of `size` ranks but this one have come, or until the limit. The result is by rank;
// the sockets of missing ranks are not open. `rankOf` reads who has connected; negative: not a rank of this star.
[[nodiscard]] std::vector<Socket> acceptRanks(const Socket& listener, int64_t size, WaitingClock::time_point limit,
                                              const std::function<int64_t(const Socket&)>& rankOf);
// `[rank 1/4], [rank 3/4]`: the ranks that are not connected to rank 0.
[[nodiscard]] std::string missingRanks(const std::vector<Socket>& byRank);

class Star : public Bootstrap {
 public:
  int64_t rank() const override { return position_; }
  int64_t size() const override { return std::ssize(members_); }
  // The ranks of the star, ascending, as the launcher or the world before counts them.
  const std::vector<int64_t>& members() const { return members_; }
  std::vector<std::string> allGather(std::string_view mine) override;

 protected:
  using Clock = WaitingClock;

  explicit Star(std::chrono::milliseconds deadline);
  // As the centre. The members are this rank and the ranks whose sockets are open.
  void openAsCentre(int64_t rank, std::vector<Socket> byRank);
  void openAsMember(int64_t rank, Socket toCentre, std::vector<int64_t> members, int64_t centre);
  // The same with the centre's list; false if it is no list of members that contains `rank`.
  [[nodiscard]] bool openAsMember(int64_t rank, Socket toCentre, const std::string& list);
  // The members, and the position of this rank, the centre.
  std::string list() const;
  // Of the centre: by position, its own not open. Of others: one.
  const std::vector<Socket>& sockets() const { return sockets_; }
  // The limit for the centre's first answer.
  void centreSpeaksWithin(std::chrono::milliseconds limit) { firstWord_ = limit; }
  [[noreturn]] void failAll(const std::string& text);
  std::chrono::milliseconds deadline() const { return deadline_; }
  static uint32_t millisecondsUntil(Clock::time_point limit);

 private:
  std::vector<std::string> collect(std::string_view mine);
  std::vector<std::string> contribute(std::string_view mine);
  // The error of a rank that sent nothing before the limit, or whose connection ended.
  std::string absence(int64_t position, Clock::time_point limit) const;

  std::chrono::milliseconds deadline_;
  std::chrono::milliseconds firstWord_;
  std::vector<int64_t> members_;
  int64_t position_ = 0;
  int64_t centre_ = 0;
  std::vector<Socket> sockets_;
};

}  // namespace meshfuse
