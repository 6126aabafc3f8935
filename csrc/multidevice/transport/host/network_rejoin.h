// How the ranks of a failed world on several hosts that live on become a new one: they meet at the lowest of them.
//
// Every rank has listened at a place of its own since the world was opened. It asks the ranks below it, from 0 upwards, whether they
// come too; the first that does is the centre of a star, which waits for those above it and then says who is in. Who could not be
// met finds a note of that at its own place, so that a rank that was stopped does not make a world of its own when it wakes up.
// Ranks that are cut off from each other by the network, but alive, make a world each.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "multidevice/transport/host/network_watch.h"
#include "multidevice/transport/host/star.h"
#include "multidevice/transport/host/world.h"

namespace meshfuse {

// One attempt of one rank; the bootstrap of the new group.
class NetworkRejoin final : public Star {
 public:
  // Returns when the members are known. DeviceError if the others have gone on without this rank. `place`: what it says of itself.
  NetworkRejoin(const NetworkWatch& old, int rank, int size, const TransportOptions& options, std::string place);

  // Old ranks, ascending.
  const std::vector<int>& members() const { return members_; }
  // Whoever comes to the place of a rank that has gone on is told so, now.
  static void sendAway(const NetworkWatch& old, int rank);

 private:
  enum class Word : uint32_t { Come, Here, Members, Late };
  struct Frame {
    uint32_t magic;
    Word word;
    uint64_t world;
    int32_t from;
    int32_t to;
  };
  // One way to a peer: of those that its place may be reached by, one after the other.
  struct Line {
    int peer = -1;
    size_t hostsTried = 0;
    Socket socket{};
    bool answered = false;  // the peer has come as well
    bool isGone() const { return !socket.open(); }
  };

  // Whether the centre was found among the ranks below this one.
  bool findCentre();
  bool isCentre(Line& line);
  void gather();
  void settle(std::vector<Line> above);
  void dial(Line& line) const;
  void serve();
  void hear(Socket visitor);
  bool isLate(const Socket& caller) const;
  bool hearAnswer(Line& line);
  bool isWritten(Word word, const Socket& to, int peer) const;
  void sendVisitorsAway();
  [[noreturn]] void throwLate() const;

  const NetworkWatch& old_;
  const TransportOptions& options_;
  int rank_;
  int size_;
  std::string place_;
  std::vector<Socket> visitors_;  // by rank: of those above who take this one for the centre
  std::vector<Socket> callers_;   // others that have come to the place; a note may follow
  std::vector<Line> silent_;      // ranks below that did not come
  std::vector<int> members_;
};

}  // namespace meshfuse
