// Communicators of NCCL: who belongs to them, which calls of their ranks belong together, and the states that programs ask for. The streams
// and the bytes are not known here (collectives.cc).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "../communicator_protocol.h"
#include "order.h"

namespace simgpu {

using Time = std::chrono::steady_clock::time_point;

struct CommunicatorOptions {
  bool sharesDevices = true;   // several ranks may have one device
  uint64_t waitPercent = 50;   // of the calls that may wait for their peers
  bool isDeathSilent = false;  // the peers of a process that ends get no error
  std::chrono::microseconds longestDelay{300};
};

struct Exchange;
struct GraphRun;
struct Posted;

// A call of one rank.
struct RankCall {
  std::string name() const;  // "ncclSend of rank 0 of 2"

  CollectiveCall call;
  int rank = 0;
  int ranks = 0;
  std::optional<uint64_t> inOffset;   // of the operand in registered memory; nothing: it is not registered
  std::optional<uint64_t> outOffset;  // of the result
  bool fails = false;                 // it never ends, and the rank gets an error
  bool isCaptured = false;            // it becomes a part of a graph and does not run
  uint64_t capture = 0;               // that of the exchange in which it was captured; 0: it is no call of a graph
  uint64_t part = 0;                  // of Split: the handle of the rank in its part
  Posted* posted = nullptr;           // null: a Split, or aborted
  Exchange* exchange = nullptr;       // null: carried out
  std::shared_ptr<Operation> operation;
  std::string result;       // what it writes
  std::optional<Time> due;  // carried out, it ends then
  bool hasEnded = false;
};

// The calls that belong together: those of all ranks, or those of a sender and a receiver.
struct Exchange {
  bool isPosted() const;  // by all of its ranks
  bool canRun() const;    // all of its calls have started

  uint64_t communicator = 0;
  std::tuple<int, int, uint64_t> key;            // sender, receiver, and the number among these; -1: all ranks
  std::vector<std::shared_ptr<RankCall>> calls;  // by rank; null: it has not come so far
  uint64_t capture = 0;                          // of calls that are captured: a number that no other exchange has
};

// What a rank posts at once, a call or those of a group: one operation on all streams of its calls.
struct Posted {
  // When it may go on at the front of this stream.
  std::optional<Time> next(uint64_t stream, Time due) const;
  bool isReached() const;

  struct Place {
    std::shared_ptr<Operation> operation;
    bool isReached = false;
    std::weak_ptr<GraphRun> run;  // of a call of a graph
    size_t step = 0;              // in `run`
  };
  uint64_t rank = 0;  // handle
  std::vector<std::shared_ptr<RankCall>> calls;
  std::vector<Place> places;
  bool hasStarted = false;
  bool hasEnded = false;
  bool isAborted = false;
  uint64_t communicator = 0;
  uint64_t thread = 0;  // of the rank
  uint32_t device = 0;
};

class Communicators {
 public:
  explicit Communicators(const CommunicatorOptions& options) : options_(options) {}

  uint64_t newId() { return ++lastId_; }
  uint64_t init(const NewRank& rank, uint64_t process, uint64_t thread, uint32_t device);

  struct Rank {
    uint64_t process = 0;
    uint64_t thread = 0;  // that made it, or the communicator that was split
    uint32_t device = 0;
    uint64_t communicator = 0;  // 0: a part that is not made so far
    int rank = 0;
    int ranks = 0;
    bool isBlocking = true;
    std::string madeBy;
    int32_t error = kDone;
    bool isSplitting = false;
    enum class End { No, Asked, Told } end = End::No;  // finalized; Told: and the program knows
    bool isDestroying = false;
    uint64_t collectives = 0;
    std::map<int, uint64_t> sends;  // by peer
    std::map<int, uint64_t> receives;
    std::vector<std::shared_ptr<Posted>> unfinished;
    std::map<uint64_t, uint64_t> lastPosted;  // by stream: the number of the operation
    std::shared_ptr<Posted> inProgress;       // the program has not been told so far that it is on its streams
    Time inProgressUntil;
    bool waitsForPeers = false;
    struct Registered {
      uint64_t begin = 0;
      uint64_t end = 0;
      std::map<uint64_t, uint64_t> lastUses;  // by stream: the number of the operation
    };
    std::map<uint64_t, Registered> registered;
  };
  Rank* find(uint64_t handle);

  // What a program is told; a Done that comes after kInProgress counts as told.
  int32_t state(uint64_t handle);
  // Done, or why a call on this rank is refused; then the rank has that error.
  int32_t refusal(uint64_t handle);
  // In progress: the destruction of the rank waits. What else forbids it, finalize says.
  int32_t stateToDestroy(uint64_t handle);
  void fail(uint64_t handle, int32_t error) { ranks_.at(handle).error = error; }
  // The ranks of the device, in one process or in all: CUDA has failed.
  void failOn(uint32_t device, std::optional<uint64_t> process);

  // Puts the call in its exchange. Returns how it differs from the calls of other ranks, if it does.
  std::string place(uint64_t handle, const std::shared_ptr<RankCall>& call);
  // Notes what is posted, and says what the call returns: done, or in progress.
  int32_t note(uint64_t handle, const std::shared_ptr<Posted>& posted, std::mt19937_64& random);
  // The same for calls that are captured; once all ranks have captured them, their exchange is over.
  int32_t noteCaptured(uint64_t handle, const std::shared_ptr<Posted>& posted, std::mt19937_64& random);
  // The calls of a graph, which the operation launches.
  void noteLaunched(uint64_t handle, const std::shared_ptr<Posted>& posted, const Operation& launch);
  void noteEnd(const Posted& posted);
  void erase(const Exchange& exchange);

  uint64_t split(uint64_t handle, const RankSplit& split, std::string& difference);
  // Why the rank may not be destroyed or finalized; empty: it is on its way.
  std::string finalize(uint64_t handle, bool destroys);
  void release(uint64_t handle);
  // Why the rank may not be aborted now; empty: it is.
  std::string abort(uint64_t handle);

  uint64_t registerMemory(uint64_t handle, uint64_t begin, uint64_t end);
  // Fills in where the operand and the result lie in registered memory.
  static void findRegistered(const Rank& rank, RankCall& call);
  // An operation of a stream uses the registered memory of the call.
  void noteUse(uint64_t handle, const RankCall& call, const Operation& operation);
  std::string registrationIn(uint64_t begin, uint64_t end) const;  // who has registered some of it; empty: nobody

  // The call on the stream that is in progress for the program; empty: none is.
  std::string postingOn(uint64_t stream) const;
  // The process has ended. Returns what it left.
  std::vector<std::string> forget(uint64_t process);

 private:
  struct Clique {  // of all ranks
    int ranks = 0;
    int arrived = 0;
    int32_t error = kDone;
    std::vector<uint64_t> handles;  // by rank; 0: gone, or not there so far
    std::vector<bool> hasFinalized;
    std::vector<bool> hasAborted;
    std::map<std::tuple<int, int, uint64_t>, Exchange> exchanges;
  };

  int32_t progressOf(Rank& rank, const std::shared_ptr<Posted>& posted, bool isFirst, std::mt19937_64& random);
  void makeParts(Exchange& exchange);
  bool isQuiescent(const Clique& clique) const;
  void loseRank(const Rank& rank);

  CommunicatorOptions options_;
  std::map<uint64_t, Clique> cliques_;
  std::map<uint64_t, Rank> ranks_;  // by handle
  uint64_t lastId_ = 0;             // of cliques
  uint64_t lastHandle_ = 0;
  uint64_t lastCapture_ = 0;
};

}  // namespace simgpu
