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
#include <stop_token>
#include <string>
#include <vector>

#include "multidevice/transport/host/network_watch.h"
#include "multidevice/transport/host/star.h"
#include "multidevice/transport/host/world.h"

namespace meshfuse {

// One attempt of one rank; the bootstrap of the new group.
class NetworkRejoin final : public Star {
 public:
  // Here: the sender takes part. Late: the receiver takes no part. Out: the sender takes no part, and the receiver looks for another
  // centre. Late and Out are also notices.
  enum class Word : uint32_t { Here = 1, Members, Late, Out };

  // Returns when the members are known. DeviceError if the others have continued without this rank. `place`: the addresses of this rank.
  NetworkRejoin(NetworkWatch& old, int64_t rank, int64_t size, const TransportOptions& options, std::string place);

  // Tells `word` to every rank that connects to the address of this rank, until none waits, `stop` is requested or promptLimit() has
  // passed.
  static void sendAway(NetworkWatch& old, Word word, const std::stop_token& stop = {});

  Key key() override { return old_.key(); }
  std::string address() const override { return old_.places()[rank_].host; }

 private:
  // A connection to a peer.
  struct Line {
    int64_t peer;
    Caller caller;
    Socket socket{};
    bool known = false;     // each side knows that the other is a rank of this world
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
  Line dialled(int64_t peer) const;
  void serve();
  void hear(Door::Arrival arrival);
  bool isAwaited(Line& line);
  // The next message; nothing if none has come, or the connection has ended.
  std::optional<Word> nextWord(const Socket& from) const;
  // The same of a peer to which this rank has connected, after its answer to the connection itself.
  std::optional<Word> nextWord(Line& line) const;
  // Throws if the next message says that this rank is late. `forVisitors`: the message for the ranks that wait for this one.
  void throwIfLate(const Socket& from, Word forVisitors);
  bool hearAnswer(Line& line);
  bool isWritten(Word word, const Socket& to) const;
  bool isWritten(Word word, const Line& line) const;
  void dismissVisitors(Word word);
  [[noreturn]] void throwLate(Word forVisitors);
  Clock::time_point soon() const { return Clock::now() + old_.promptLimit(); }

  NetworkWatch& old_;
  const TransportOptions& options_;
  int64_t rank_;
  int64_t size_;
  std::string place_;
  std::vector<Socket> visitors_;  // by rank: connections of higher ranks that use this rank as the centre
  std::vector<Socket> callers_;   // other connections to this address; a note may follow
  std::vector<Line> silent_;      // ranks that do not take part; open, so that they can read the last message
};

}  // namespace meshfuse
