// Collectives among ranks that can read each other's buffers. Each rank writes only to its own memory, except in pushAllReduce.
//
// Before: every member of the team has arrived, so that all inputs are complete. After: every member has finished reading, so
// that buffers may be reused. In between a rank reads its peers' inputs and, for an all-reduce, their parts of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "multidevice/transport/communicator.h"
#include "multidevice/transport/stream_copy.h"

namespace meshfuse {

// The buffers of one rank as this rank sees them.
struct PeerBuffers {
  // The data that this rank reads: the peer's whole input, or only the block for this rank if inputs have blocks.
  const std::byte* in = nullptr;
  // All-reduce only: the address at which the peer writes its part of the result.
  const std::byte* parts = nullptr;
  // If results have blocks: the destination of the data that this rank reads, and its size. Pushed all-reduce: the peer's output.
  std::byte* out = nullptr;
  int64_t bytes = 0;
  // The rank whose memory holds `in`, if only the kernel of the system can read it (by PullCall::readProcess); -1: this rank can read it.
  int64_t process = -1;
};

struct PullCall {
  int64_t position = 0;                // of this rank in the team
  std::span<const PeerBuffers> peers;  // in team order, this rank included
  std::byte* out = nullptr;            // of this rank
  std::byte* parts = nullptr;          // all-reduce only: the address at which this rank writes its part; may be `out`
  int64_t count = 0;                   // elements of the output; not used if the output has blocks
  DataType type = DataType::Float;
  ReduceOp op = ReduceOp::Sum;
  CopyOrder order = CopyOrder::Forward;  // of blocks that are only moved
  Collective kind = Collective::Barrier;
  int64_t root = 0;
  // Returns when all members have called it. All-reduce uses it once.
  const std::function<void()>* synchronize = nullptr;
  // Throws if the group has failed. Pushed all-reduce only, before each piece.
  const std::function<void()>* throwIfFailed = nullptr;
  // Reads the memory of another process. Not for collectives that reduce.
  using ReadProcess = std::function<void(int64_t process, const std::byte* from, std::byte* to, int64_t bytes)>;
  const ReadProcess* readProcess = nullptr;
};

// Each returns the bytes that it read from other ranks.

// A collective of a rank that has a result.
int64_t pull(const PullCall& call);
// Reduces all elements from the inputs of all ranks, for an all-reduce in which every rank reduces everything.
int64_t pullReduced(const PullCall& call);
// An all-reduce in which each rank writes its part of the result to every peer's output, which saves a synchronization. Returns the bytes
// read and received. After a failed call, a peer may still write a piece to the output until all survivors have called shrink().
int64_t pushAllReduce(const PullCall& call);

// The copies of several blocks take turns if one of them is far (stream_copy.h), after this many bytes; after more if the kernel of the
// system reads one, because each read is a system call.
constexpr int64_t kTurnBytes = 256 << 10;
constexpr int64_t kTurnBytesOfProcess = 2 << 20;

// First element of the i-th of n nearly equal parts of `count` elements.
constexpr int64_t partBegin(int64_t count, int64_t i, int64_t n) { return count * i / n; }

}  // namespace meshfuse
