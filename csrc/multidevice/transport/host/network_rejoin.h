// Rejoin of the survivors of a world on several hosts: they connect to the survivor with the lowest rank.
//
// Every rank has listened at its own address since the world was opened. In a rejoin it asks the lower ranks, from 0 upwards, whether they
// take part. The first that does is the centre of a star: it waits for the higher ranks and then announces the members. A rank that does
// not answer within the deadline is given up: it finds a note at its own address, so a late or stopped rank does not make a world of its
// own when it comes, and the ranks that wait for it then look for another centre. Live ranks that the network separates make separate
// worlds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "multidevice/transport/host/network_watch.h"
#include "multidevice/transport/host/star.h"
#include "multidevice/transport/host/world.h"

namespace meshfuse {

// One attempt of one rank; the bootstrap of the new group.
class NetworkRejoin final : public Star {
  // Late: the receiver takes no part. Out: the sender takes no part, and the receiver looks for another centre.
  enum class Word : uint32_t { Come, Here, Members, Late, Out };

 public:
  // Returns when the members are known. DeviceError if the others have continued without this rank. `place`: the addresses of this rank.
  NetworkRejoin(const NetworkWatch& old, int64_t rank, int64_t size, const TransportOptions& options,
                std::string place);

  // Answers each rank that connects to a rank after its rejoin: by default, that it is too late.
  static void sendAway(const NetworkWatch& old, int64_t rank, Word word = Word::Late);

 private:
  struct Frame {
    uint32_t magic;
    Word word;
    uint64_t world;
    int32_t from;
    int32_t to;
  };
  // A connection to a peer, which tries the addresses of the peer one after the other.
  struct Line {
    int64_t peer = -1;
    size_t hostsTried = 0;
    Socket socket{};
    bool answered = false;  // the peer takes part
    bool isGone() const { return !socket.open(); }
  };

  // True if the centre was found among the ranks below this one.
  bool findCentre();
  bool isCentre(Line& line);
  bool othersAreBusy() const;
  void giveUp(Line line);
  void gather();
  void settle(std::vector<Line> above);
  void dial(Line& line) const;
  void serve();
  void hear(Socket visitor);
  bool isAwaited(Line& line);
  // Of the next message; nothing if there is none, or it is not of this rejoin.
  std::optional<Word> nextWord(const Socket& from) const;
  // Throws if the next message says that this rank is late. `forVisitors`: the message for the ranks that wait for this one.
  void throwIfLate(const Socket& from, Word forVisitors);
  bool hearAnswer(Line& line);
  bool isWritten(Word word, const Socket& to, int64_t peer) const;
  void dismissVisitors(Word word);
  [[noreturn]] void throwLate(Word forVisitors);
  Clock::time_point soon() const { return Clock::now() + old_.promptLimit(); }

  const NetworkWatch& old_;
  const TransportOptions& options_;
  int64_t rank_;
  int64_t size_;
  std::string place_;
  std::vector<Socket> visitors_;  // by rank: connections of higher ranks that use this rank as the centre
  std::vector<Socket> callers_;   // other connections to this address; a note may follow
  std::vector<Line> silent_;      // ranks that do not take part; open, so that they can read the last message
};

}  // namespace meshfuse
