// The part of NCCL that meshfuse calls, declared as versions 2.19 and later export it. tests/device/cuda/api compares the declarations with
// nccl.h and with libnccl.
#pragma once

#include <climits>
#include <cstddef>

#include "device/cuda/api/driver.h"

namespace meshfuse::nccl {

enum class Result : int {
  Success = 0,
  CudaError = 1,
  SystemError = 2,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
  InProgress = 7
};
enum class ElementType : int {
  Int8 = 0,
  Uint8 = 1,
  Int32 = 2,
  Int64 = 4,
  Half = 6,
  Float = 7,
  Double = 8,
  BFloat16 = 9
};
enum class ReduceOperation : int { Sum = 0, Product = 1, Max = 2, Min = 3 };

using Communicator = struct CommunicatorObject*;

struct UniqueId {
  char bytes[128];
};

// What a communicator is made with, as in version 2.18; later versions give their new attributes the default values.
struct Config {
  static constexpr int kDefault = INT_MIN;
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = kDefault;  // 0: calls return InProgress, and communicatorError tells when they have ended
  int clusterSize = kDefault;
  int leastBlocks = kDefault;
  int mostBlocks = kDefault;
  const char* network = nullptr;
  int splitShare = kDefault;
};

// call(member, exported function, result, parameters). Counts are of elements; buffers are in the memory of the communicator's device.
#define MESHFUSE_NCCL_CALLS(call)                                                                                   \
  call(version, ncclGetVersion, nccl::Result, (int* version));                                                      \
  call(errorString, ncclGetErrorString, const char*, (nccl::Result result));                                        \
  call(lastError, ncclGetLastError, const char*, (nccl::Communicator communicator));                                \
  call(uniqueId, ncclGetUniqueId, nccl::Result, (nccl::UniqueId * id));                                             \
  call(create, ncclCommInitRankConfig, nccl::Result,                                                                \
       (nccl::Communicator * communicator, int ranks, nccl::UniqueId id, int rank, nccl::Config* config));          \
  call(finalize, ncclCommFinalize, nccl::Result, (nccl::Communicator communicator));                                \
  call(destroy, ncclCommDestroy, nccl::Result, (nccl::Communicator communicator));                                  \
  call(abort, ncclCommAbort, nccl::Result, (nccl::Communicator communicator));                                      \
  call(communicatorError, ncclCommGetAsyncError, nccl::Result,                                                      \
       (nccl::Communicator communicator, nccl::Result * error));                                                    \
  call(memoryAllocate, ncclMemAlloc, nccl::Result, (void** memory, size_t bytes));                                  \
  call(memoryFree, ncclMemFree, nccl::Result, (void* memory));                                                      \
  call(memoryRegister, ncclCommRegister, nccl::Result,                                                              \
       (nccl::Communicator communicator, void* memory, size_t bytes, void** handle));                               \
  call(memoryDeregister, ncclCommDeregister, nccl::Result, (nccl::Communicator communicator, void* handle));        \
  call(groupStart, ncclGroupStart, nccl::Result, ());                                                               \
  call(groupEnd, ncclGroupEnd, nccl::Result, ());                                                                   \
  call(allReduce, ncclAllReduce, nccl::Result,                                                                      \
       (const void* in, void* out, size_t count, nccl::ElementType type, nccl::ReduceOperation operation,           \
        nccl::Communicator communicator, cuda::Stream stream));                                                     \
  call(reduce, ncclReduce, nccl::Result,                                                                            \
       (const void* in, void* out, size_t count, nccl::ElementType type, nccl::ReduceOperation operation, int root, \
        nccl::Communicator communicator, cuda::Stream stream));                                                     \
  call(broadcast, ncclBroadcast, nccl::Result,                                                                      \
       (const void* in, void* out, size_t count, nccl::ElementType type, int root, nccl::Communicator communicator, \
        cuda::Stream stream));                                                                                      \
  call(allGather, ncclAllGather, nccl::Result,                                                                      \
       (const void* in, void* out, size_t count, nccl::ElementType type, nccl::Communicator communicator,           \
        cuda::Stream stream));                                                                                      \
  call(reduceScatter, ncclReduceScatter, nccl::Result,                                                              \
       (const void* in, void* out, size_t count, nccl::ElementType type, nccl::ReduceOperation operation,           \
        nccl::Communicator communicator, cuda::Stream stream));                                                     \
  call(send, ncclSend, nccl::Result,                                                                                \
       (const void* in, size_t count, nccl::ElementType type, int peer, nccl::Communicator communicator,            \
        cuda::Stream stream));                                                                                      \
  call(receive, ncclRecv, nccl::Result,                                                                             \
       (void* out, size_t count, nccl::ElementType type, int peer, nccl::Communicator communicator,                 \
        cuda::Stream stream))

}  // namespace meshfuse::nccl
