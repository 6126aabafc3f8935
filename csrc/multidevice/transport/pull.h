// Collectives among ranks that can read each other's buffers: each rank writes to its own memory only.
//
// Before: every member of the team has arrived, so that all inputs are complete. After: every member has finished reading, so
// that buffers may be reused. In between a rank reads its peers' inputs and, for an all-reduce, their parts of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

// The buffers of one rank as this rank sees them. `out` is read for all-reduce only.
struct PeerBuffers {
  const std::byte* in = nullptr;
  const std::byte* out = nullptr;
};

struct PullCall {
  int position = 0;                        // of this rank in the team
  std::span<const PeerBuffers> peers;      // in team order, this rank included
  std::byte* out = nullptr;                // of this rank
  int64_t count = 0;                       // as in the call's arguments
  DataType type = DataType::Float;
  ReduceOp op = ReduceOp::Sum;
  int64_t partAlignment = 1;               // elements; boundaries of all-reduce parts are multiples of it
  const std::function<void()>& synchronize;  // returns when all members have come to the same call of it
};

// Each returns the bytes it read from other ranks.
int64_t pullAllReduce(const PullCall& call);
int64_t pullAllGather(const PullCall& call);
int64_t pullReduceScatter(const PullCall& call);
int64_t pullAllToAll(const PullCall& call);
int64_t pullBroadcast(const PullCall& call, int root);

// First element of the i-th of n nearly equal parts of `count` elements, cut at multiples of `alignment`.
constexpr int64_t partBegin(int64_t count, int64_t i, int64_t n, int64_t alignment) {
  int64_t begin = (count / alignment) * i / n * alignment;
  return i == n ? count : begin;
}

}  // namespace meshfuse
