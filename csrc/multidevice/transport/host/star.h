// A star of connections: every rank except the centre has a connection to the centre, which collects all messages and sends them to
// all ranks.
//
// Sockets never block: every step waits by poll until the deadline of the whole exchange. The centre knows the missing ranks and
// reports them to the others. The other ranks have a longer deadline than the centre, so that they do not report a waiting centre as dead.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/handshake.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {

// As the centre of a star, whose rank is `self`: gives slots to the ranks that come to the door, until all of `size` ranks have one, or
// until the limit.
struct Slots {
  std::vector<Socket> byRank;  // not open: `self`, and ranks that did not come
  std::string missing;         // `[rank 1/4], [rank 3/4]`: the latter; and why callers got no slot
};
[[nodiscard]] Slots giveSlots(Door& door, int64_t self, int64_t size, WaitingClock::time_point limit);
// As a rank that has connected to the centre: the milliseconds until the centre's limit; nothing if it got no slot, `problem` says why. A
// rank that the centre refuses gets a DeviceError with its reason.
[[nodiscard]] std::optional<uint32_t> takeSlot(const Socket& centre, const Hello& hello, const Trust& trust,
                                               WaitingClock::time_point limit, std::string& problem);

// How long a process that has connected may take to say who it is.
constexpr std::chrono::milliseconds kVisitorPatience{5000};

// True if processes of other hosts cannot reach MASTER_ADDR.
[[nodiscard]] bool masterIsLocal();
// The number of MASTER_PORT; UserError if it is none.
[[nodiscard]] int64_t masterPort();
// The key of the environment, for ranks that meet at MASTER_ADDR; UserError if there is none.
[[nodiscard]] Key keyForMaster();

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
