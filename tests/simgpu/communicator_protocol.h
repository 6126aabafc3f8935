// What the stand-in for libnccl and the engine say to each other beside protocol.h.
#pragma once

#include <cstdint>

namespace simgpu {

enum CommunicatorResult : int32_t {  // ncclResult_t
  kDone = 0,
  kCudaFailed = 1,
  kSystemFailed = 2,
  kWrongArgument = 4,
  kWrongUsage = 5,
  kRemoteFailed = 6,
  kInProgress = 7,
};

struct NewRank {
  uint64_t id = 0;  // of the communicator
  int32_t ranks = 0;
  int32_t rank = 0;
  uint32_t isBlocking = 1;
};

struct RankSplit {
  int32_t color = 0;
  int32_t key = 0;
  uint32_t isBlocking = 1;
};

inline constexpr int32_t kNoColor = -1;  // the rank belongs to no part

enum class Collective : uint32_t { AllReduce, Reduce, Broadcast, AllGather, ReduceScatter, Send, Receive, Split };

inline constexpr uint32_t kElementTypes = 10;        // ncclInt8 to ncclBfloat16
inline constexpr uint32_t kReductionOperations = 4;  // ncclSum, ncclProd, ncclMax, ncclMin

constexpr uint64_t bytesOfElement(uint32_t type) {
  constexpr uint64_t kBytes[kElementTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[type];
}

// A call of one rank. Addresses that the call does not use are 0.
struct CollectiveCall {
  Collective kind = Collective::AllReduce;
  uint32_t type = 0;       // ncclDataType_t
  uint32_t operation = 0;  // ncclRedOp_t
  int32_t root = 0;        // of Send and Receive: the peer
  uint64_t count = 0;      // of elements
  uint64_t in = 0;
  uint64_t inBytes = 0;
  uint64_t out = 0;
  uint64_t outBytes = 0;
  uint64_t stream = 0;
};

}  // namespace simgpu
