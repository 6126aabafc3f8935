// The control data that the ranks of a host share, one block for each rank: plain data in shared memory, written by several processes.
//
// A rank writes only to its own block. Exceptions are the doorbells of its peers, the failure in the block of rank 0, and the slots of
// survivors. A lane has its own blocks for its calls; it uses the doorbells, failure, heartbeats and survivor slots of the main blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/rounding.h"
#include "multidevice/transport/call.h"
#include "multidevice/transport/flight_recorder.h"

namespace meshfuse {

constexpr size_t kSlotBytes = 32 << 10;
constexpr size_t kStageBytes = 1 << 20;
constexpr size_t kChunkBytes = 64 << 10;
constexpr uint32_t kChunks = 4;  // of a channel
constexpr size_t kFailureText = 4000;

// The threads of a rank sleep on its doorbell. A peer that changes a word for this rank rings if a thread sleeps.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleeping;  // number of sleeping threads
};

// One direction of a pair of ranks, for collectives: one cache line holds the arrival and the data of the call.
struct alignas(64) PairLine {
  std::atomic<uint32_t> step;  // synchronizations of the pair that the writer has reached, over all calls
  uint32_t reserved;
  CallRecord call;
  int64_t in;     // place of the writer's input: see Place in host_communicator.h
  int64_t parts;  // place of its part of an all-reduce; or a small input itself
};
static_assert(sizeof(PairLine) == 64);

// A pair has two lines, for even and odd calls. Call k + 2 overwrites the line of call k. A rank begins call k + 2 with a peer only after
// both met in call k + 1. The peer has then left call k and no longer reads its line.
struct PairLines {
  PairLine ofCall[2];
};

// The number of calls of the pair, modulo 2^32, whose data the writer has finished reading. Peers need it before they reuse slots, stages
// and buffers that are read in place. It has a line of its own, because a peer may read it when later calls of the writer have overwritten
// the PairLine of that call.
struct alignas(64) FinishedLine {
  std::atomic<uint32_t> calls;
};

// One direction of a pair of ranks, for send and receive: a ring of chunks. The sender counts up `posted` in its own block, the receiver
// `taken` in its own.
struct ChunkHead {
  int64_t messageBytes;
  int64_t heapOffset;  // -1: the bytes are in the chunk; else the whole message lies in the sender's heap
  int64_t stream;      // the stream that it belongs to
};
struct alignas(64) ChannelOut {
  std::atomic<uint32_t> posted;
  ChunkHead heads[kChunks];
};
struct alignas(64) ChannelIn {
  std::atomic<uint32_t> taken;
};

// The status of this rank for the errors of its peers, and the word that it waits for. Text may be read while it is written.
struct alignas(64) Status {
  std::atomic<int64_t> beat;           // milliseconds of the machine's clock, updated regularly
  std::atomic<uint32_t> closed;        // 1: it has left without a failure
  std::atomic<uint32_t> busy;          // 1: the rank has declared a long computation
  std::atomic<uint32_t> waitsForBusy;  // 1 + the busy rank that it waits for, if any, directly or through other ranks
  std::atomic<uint32_t> inCall;
  CallRecord call;
  std::atomic<int64_t> step;
  char what[248];
  // While the rank waits: it waits until the word at `waitOffset` in the block of rank `waitOwner` reaches `waitValue`. Owner -1: it does
  // not wait, or not for a single word.
  alignas(64) std::atomic<
      uint32_t> waits;  // counted up before and after the next three change: odd while they are being written
  std::atomic<int32_t> waitOwner;
  std::atomic<uint32_t> waitValue;
  std::atomic<uint64_t> waitOffset;
};

struct alignas(64) Failure {
  enum State : uint32_t { None, BeingWritten, Written };
  std::atomic<uint32_t> state;
  uint32_t isDisagreement;  // a mismatch of programs, see disagreement.h
  char text[kFailureText];
};

// A lane that this rank has opened: the control block of the lane in the rank's heap, with the layout of the main block.
struct LaneEntry {
  static constexpr uint32_t kLanes = 128;
  std::atomic<uint64_t> team;  // teamHash, stored last; 0: none yet
  int64_t heapOffset;
};

// The slot in which a rank rejoins after a failure; see rejoin.h.
struct alignas(64) RejoinSlot {
  static constexpr uint32_t kRounds = 16;  // message exchanges of one attempt, and its end
  static constexpr size_t kMessageBytes = 2048;
  static constexpr uint32_t kOut = ~uint32_t{0};

  std::atomic<uint32_t> came;       // 1 + the last attempt that its owner joined, or kOut; any rank may set kOut
  std::atomic<uint32_t> published;  // by its owner: rounds of all attempts
  std::atomic<uint32_t> verdict;    // in the block of rank 0: 2k during attempt k, 2k + 1 after it has succeeded
  uint32_t messageBytes[kRounds];
  char messages[kRounds][kMessageBytes];
};

// Addresses within one rank's block. The layout is a function of the number of ranks.
class ControlBlock {
 public:
  ControlBlock() = default;
  ControlBlock(std::byte* base, int64_t ranks) : base_(base), ranks_(ranks) {}

  static size_t bytes(int64_t ranks) { return ControlBlock(nullptr, ranks).end(); }
  bool isThere() const { return base_ != nullptr; }
  // Resets a block in memory that has been used before.
  void clear() const {
    std::memset(base_, 0, slotOffset());
    std::memset(base_ + flightOffset(), 0, end() - flightOffset());
  }

  Doorbell& doorbell() const { return *at<Doorbell>(0); }
  Status& status() const { return *at<Status>(sizeof(Doorbell)); }
  Failure& failure() const { return *at<Failure>(sizeof(Doorbell) + sizeof(Status)); }
  PairLines& linesTo(int64_t peer) const { return at<PairLines>(kHead)[peer]; }
  FinishedLine& finishedWith(int64_t peer) const { return at<FinishedLine>(finishedOffset())[peer]; }
  ChannelOut& channelTo(int64_t peer) const { return at<ChannelOut>(channelOutOffset())[peer]; }
  ChannelIn& channelFrom(int64_t peer) const { return at<ChannelIn>(channelInOffset())[peer]; }
  RejoinSlot& rejoinSlot() const { return *at<RejoinSlot>(rejoinOffset()); }
  FlightRing& flight() const { return *at<FlightRing>(flightOffset()); }
  LaneEntry& lane(uint32_t which) const { return at<LaneEntry>(laneOffset())[which]; }
  std::byte* slot(int64_t which) const { return base_ + slotOffset() + static_cast<size_t>(which) * kSlotBytes; }
  std::byte* stage(int64_t which) const { return base_ + stageOffset() + static_cast<size_t>(which) * kStageBytes; }
  std::byte* parts(int64_t which) const { return stage(2 + which); }
  std::byte* chunk(int64_t peer, uint32_t which) const {
    return base_ + chunkOffset() + (static_cast<size_t>(peer) * kChunks + which) * kChunkBytes;
  }

  uint64_t offsetOf(const std::atomic<uint32_t>& word) const {
    return static_cast<uint64_t>(reinterpret_cast<const std::byte*>(&word) - base_);
  }
  std::atomic<uint32_t>& word(uint64_t offset) const { return *at<std::atomic<uint32_t>>(offset); }

 private:
  static constexpr size_t kHead = 8192;
  static constexpr size_t kPage = 4096;
  static_assert(sizeof(Doorbell) + sizeof(Status) + sizeof(Failure) <= kHead);

  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  size_t finishedOffset() const { return kHead + ranks_ * sizeof(PairLines); }
  size_t channelOutOffset() const { return finishedOffset() + ranks_ * sizeof(FinishedLine); }
  size_t channelInOffset() const { return channelOutOffset() + ranks_ * sizeof(ChannelOut); }
  size_t slotOffset() const { return roundUp(channelInOffset() + ranks_ * sizeof(ChannelIn), kPage); }
  size_t stageOffset() const { return slotOffset() + 2 * kSlotBytes; }
  size_t chunkOffset() const { return stageOffset() + 4 * kStageBytes; }
  size_t rejoinOffset() const { return chunkOffset() + ranks_ * kChunks * kChunkBytes; }
  size_t flightOffset() const { return roundUp(rejoinOffset() + sizeof(RejoinSlot), kPage); }
  size_t laneOffset() const { return roundUp(flightOffset() + sizeof(FlightRing), 64); }
  size_t end() const { return roundUp(laneOffset() + LaneEntry::kLanes * sizeof(LaneEntry), kPage); }

  std::byte* base_ = nullptr;
  size_t ranks_ = 0;
};

}  // namespace meshfuse
