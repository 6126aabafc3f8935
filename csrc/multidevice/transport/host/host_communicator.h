// The communicator of a process among the processes of its host.
//
// algorithms.h describes the algorithms. The choice follows from the call and from the places of all ranks' buffers, which the
// announcements contain: all ranks choose the same, without an agreement beforehand. Staged calls read buffers in a heap directly. Large
// buffers that are only moved are copied by the kernel of the system, if it permits this.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "multidevice/transport/algorithms.h"
#include "multidevice/transport/host/host_group.h"
#include "multidevice/transport/lanes.h"
#include "multidevice/transport/pull.h"

namespace meshfuse {

class HostCommunicator final : public Communicator {
 public:
  // The bootstrap is kept: the launcher's connection lives as long as the world.
  HostCommunicator(std::shared_ptr<Bootstrap> bootstrap, const TransportOptions& options, const std::string& world);
  // The bootstrap is needed only here.
  HostCommunicator(Bootstrap& bootstrap, const TransportOptions& options, const std::string& world);
  // The lane of a team.
  HostCommunicator(const HostCommunicator& whole, const Team& team);
  // Reports that this rank has left; or that it failed, if an exception destroys it before close().
  ~HostCommunicator() override;

  int64_t rank() const override { return group_.rank(); }
  int64_t size() const override { return group_.size(); }
  std::string_view transport() const override { return "host"; }
  std::shared_ptr<void> allocate(size_t bytes) override;

  void run(const CollectiveCall& call) override;
  void transfer(std::span<const Transfer> transfers) override;
  void await(const Team& team, const std::function<bool()>& ready) override;
  Communicator* lane(const Team& team) override;
  std::vector<std::string> exchange(std::string_view message) override;

  void setStep(int64_t step, std::string_view what) override;
  void setBusy(bool busy) override;
  void abort(std::string_view reason) override;

 private:
  Survivors survivors() override;
  // Shared areas of a rank's block that a call may fill. Two of each kind, used in turn.
  enum Area : uint8_t { Slot0, Slot1, Stage0, Stage1, Parts0, Parts1 };
  static constexpr int64_t kAreas = 6;
  // The announced place of a buffer: an offset in the rank's heap, an area, an address in the rank's ordinary memory, or none because no
  // peer reads it.
  using Place = int64_t;
  static constexpr Place kNotInHeap = -1;  // never announced
  static constexpr Place kNowhere = -2;
  static constexpr Place placeOf(Area area) { return -3 - static_cast<Place>(area); }
  static constexpr bool isArea(Place place) { return place < kNowhere && place >= placeOf(Parts1); }
  static constexpr Place kInLine = -64;  // in the announcement itself, instead of the place of the parts
  static constexpr Place kHighestAddress = -4096;
  static constexpr bool isAddress(Place place) { return place <= kHighestAddress; }
  static Place placeOf(const std::byte* address) {
    return kHighestAddress - static_cast<Place>(reinterpret_cast<uintptr_t>(address));
  }
  static const std::byte* addressOf(Place place) {
    return reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(kHighestAddress - place));
  }
  // The area of the k-th piece, if `place` is the area of the first piece: the two areas of a kind alternate.
  static constexpr Area areaOfPiece(Place place, int64_t piece) {
    const Place first = -3 - place;
    return static_cast<Area>(first - first % 2 + (first + piece) % 2);
  }
  struct Source {
    Place in;
    Place parts;
  };

  struct HostCall : CollectiveCall {
    Blocks blocks;  // one for each rank, if the operand or the result has blocks
    CopyOrder order = CopyOrder::Forward;
    bool ownTakesTurns = false;  // pull() copies this rank's block in turns with those of the peers

    bool inPlace() const { return in == out && traits().reduces; }
    bool inputHasBlocks() const { return traits().operandHasBlocks; }
    bool gathers() const { return traits().resultHasBlocks && gets(); }
    // The block that is the whole input, if it has no blocks.
    int64_t inputBlock() const { return blocks.number > 1 ? position : 0; }
    int64_t inBytes() const { return (inputHasBlocks() ? blocks.total() : blocks.of(inputBlock())) * elementBytes(); }
    // The bytes of this rank's own block, if the call gathers; else 0.
    int64_t gatheredOwnBytes() const { return gathers() ? blocks.of(position) * elementBytes() : 0; }
    // The part of them that copyOwnBlock() copies, and the part of that which it copies when the rank arrives.
    int64_t ownBytes() const { return ownTakesTurns ? 0 : gatheredOwnBytes(); }
    int64_t ownBytesOnArrival() const { return ownBytes() < 4096 ? ownBytes() : ownBytes() / 128 * 64; }
    int64_t largestInput() const {
      return (inputHasBlocks() ? blocks.total() : blocks.largest()) * elementBytes();  // of all ranks
    }
  };

  struct SendState;
  struct RecvState;

  // The other ranks of a team.
  auto peersIn(const Team& team) const {
    return team.ranks | std::views::filter([own = rank()](int64_t p) { return p != own; });
  }
  const ControlBlock& own() const { return group_.ownCalls(); }
  const ControlBlock& of(int64_t peer) const { return group_.callsOf(peer); }
  // Makes a call, `body(event)`, with its record. If an exception of any kind leaves the call, the group has failed before: the caller may
  // then change buffers that peers still read.
  template <class Body>
  void recorded(const CallRecord& record, const Body& body) {
    try {
      FlightEvent& event = enter(record);
      body(event);
      leave(event);
    } catch (...) {
      failUnderWay();
      throw;
    }
  }
  FlightEvent& enter(const CallRecord& record);
  void leave(FlightEvent& event);
  // Reports the exception under way to all ranks, unless they have a failure already.
  void failUnderWay();
  // Each returns the bytes received from peers.
  int64_t tradePairwise(const HostCall& c);
  int64_t copyAlone(const HostCall& c) const;
  int64_t small(const HostCall& c);
  // Copies the input without the block that only this rank reads.
  static void copyForPeers(const HostCall& c, std::byte* slot);
  // A call that reads inputs of one size from every rank, all in slots or in announcements. `own`: the place of this rank's.
  bool hasSmallInputs(const HostCall& c, Place own) const;
  const std::byte* smallInputOf(int64_t peer) const;
  // As pullPiece(), for the calls whose latency counts most.
  int64_t copySmallBlocks(const HostCall& c);
  int64_t reduceSmallInputs(const HostCall& c);
  int64_t large(HostCall c, Algorithm algorithm);
  int64_t carry(const HostCall& c);
  int64_t inPieces(const HostCall& c, int64_t pieceElements);
  int64_t pullPiece(const HostCall& c, int64_t from, int64_t elements, int64_t piece);
  void setSources(const HostCall& c, Source own);
  bool isReadByTheKernel(const HostCall& c, Algorithm algorithm) const;
  // The algorithm of a call, from the announced places of all ranks' buffers.
  Algorithm wayOf(const HostCall& c, Algorithm asked) const;
  bool everyRankReducesAll(const HostCall& c, Algorithm asked) const;
  void end(const HostCall& c);

  // Announces a call to its team. `sent`: the counts of an all-to-all-v, by position, announced instead of `parts`.
  void announce(const Team& team, const CallRecord& record, Place in, Place parts, std::span<const int64_t> sent = {});
  // Waits for all members' announcements of the same call.
  void meet(const Team& team, const CallRecord& record);
  void synchronize(const Team& team);
  // A gathering rank copies its own block while it waits for its peers: a part on arrival, the rest after it has read the peers' blocks.
  enum class OwnPart : uint8_t { OnArrival, Rest };
  static void copyOwnBlock(const HostCall& c, OwnPart part);
  // The copy order of an output: forward and backward alternately, so that a call begins with data that the previous call left in the
  // caches.
  CopyOrder nextOrder(const void* out);
  // Ends a call whose areas peers may still be reading.
  void finish(const Team& team);
  // Ends a call by a synchronization: afterwards no peer reads its buffers. DeviceError if the data that this rank has read in place may be
  // wrong.
  void finishSynchronized(const HostCall& c);
  // Waits until the peer has finished call number `call`. The two ranks count the calls in which both take part.
  void awaitFinished(int64_t peer, uint64_t call);

  // The next area of a kind, once its last readers have finished.
  Area nextArea(Area first);
  std::byte* areaOf(int64_t rank, Area area) const;
  const PairLine& lineFrom(int64_t peer) const;
  // In an exchange, a slot holds the length of a message, and the message itself if it is short.
  static constexpr size_t kMessageRoom = kSlotBytes - sizeof(int64_t);
  std::string_view messageIn(int64_t rank, const PairLine& line) const;
  // The next lines to be written are in the caches of the peers that read them last: this prefetches them during other work.
  static void prefetchForWriting(const void* at, int64_t bytes) {
    constexpr int64_t kLine = 64;
    for (int64_t line = 0; line < bytes; line += kLine) {
      asm volatile("prefetchw %0" : : "m"(static_cast<const std::byte*>(at)[line]));
    }
  }
  void stagePiece(const HostCall& c, int64_t from, int64_t elements, std::byte* stage) const;
  // `all`: of all ranks, with their lengths; the result.
  void exchangeLong(std::string_view message, std::vector<std::string>& all);

  // The kind of a message. A stream number combines the kind and the program; a receive takes only messages with its own stream number.
  enum class Stream : int64_t { Transfer, Pairwise };
  void moveMessages(std::span<const Transfer> transfers, int64_t stream);
  bool advance(SendState& send, int64_t stream);
  bool advance(RecvState& receive, int64_t stream);
  // Fails if the programs of this rank's messages and of the peer's call differ.
  void checkProgramOf(int64_t peer, const CallRecord& theirs, std::string_view message = {});
  // Fails if an awaited sender has begun a collective of another program instead, so that its message will not arrive.
  void checkComes(const RecvState& receive);
  // The stream of a chunk: its kind and its program.
  int64_t streamNumber(Stream stream) const {
    return static_cast<int64_t>(stream) | static_cast<int64_t>(shortHash(program())) << 8;
  }

  struct PeerState {
    uint32_t steps = 0;                      // synchronizations with the peer
    uint64_t calls = 0;                      // collectives with it
    uint64_t finished = 0;                   // the number of these that the peer is known to have left
    uint32_t posted = 0;                     // chunks sent to it
    uint32_t taken = 0;                      // chunks taken from it
    std::array<uint64_t, kAreas> lastUse{};  // by area: the last call in which it read this area; 0: none
  };

  std::shared_ptr<Bootstrap> bootstrap_;
  TransportOptions options_;
  AlgorithmTable algorithms_;
  HostGroup group_;
  std::vector<PeerState> peers_;
  std::array<uint8_t, 3> nextOf_{};     // which of the two areas of a kind comes next
  std::array<bool, kAreas> used_{};     // by the call under way
  Algorithm way_ = Algorithm::Default;  // of the call under way
  std::array<CopyOrder, 64> orders_{};  // by output
  std::vector<Source> sources_;         // of the running call, in team order
  std::vector<PeerBuffers> buffers_;    // of the piece under way
  std::vector<const void*> inputs_;     // of a small reduction, in team order
  std::mutex stepMutex_;                // setStep() in one thread, abort() in another
  Lanes lanes_;
};

}  // namespace meshfuse
