// What the simulated NCCL answers and refuses, call by call.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simgpu/collectives.h"

namespace meshfuse::collective_calls {
namespace {

using cuda::DevicePointer;
using nccl::Communicator;
using nccl::ElementType;
using nccl::ReduceOperation;
using nccl::Result;

const std::vector<float> kOnes(8, 1);
constexpr auto kFloat = ElementType::Float;
constexpr auto kSum = ReduceOperation::Sum;

class CollectiveCalls : public CollectiveTest {
 protected:
  CollectiveCalls() : CollectiveTest(2) {}
};

// One rank with a buffer of eight elements
SimulatedProgram withBuffer(const std::function<void(Rank&, DevicePointer)>& program) {
  return onRanks(1, [=](Rank& rank) { program(rank, rank.buffer(kOnes)); });
}

TEST_F(CollectiveCalls, TheVersionIsThatOfNoLibrary) {
  expectFine([](Simulated&) {
    const NcclSimulated lib;
    int version = 0;
    require(lib.version(&version) == Result::Success && version == 29900, "the version");
    require(lib.version(nullptr) == Result::InvalidArgument, "a place is needed");
    for (const int result : {0, 1, 2, 3, 4, 5, 6, 7, 99}) {
      require(std::strlen(lib.errorString(static_cast<Result>(result))) > 0, "each result has a text");
    }
    require(std::strstr(lib.lastError(nullptr), "ncclGetVersion") != nullptr, "the call that failed last");
  });
}

TEST_F(CollectiveCalls, WrongArgumentsAreRefusedAndHaveNoEffect) {
  expectFine(withBuffer([](Rank& rank, DevicePointer at) {
    const auto& lib = rank.nccl;
    void* const x = bufferAt(at);
    const Communicator c = rank.communicator;
    const auto refused = [](Result result, const char* what) { require(result == Result::InvalidArgument, what); };
    for (const bool inGroup : {false, true}) {
      if (inGroup) {
        rank.expect(lib.groupStart(), "ncclGroupStart");
      }
      refused(lib.allReduce(x, x, 8, kFloat, kSum, nullptr, rank.stream), "no communicator");
      refused(lib.allReduce(nullptr, x, 8, kFloat, kSum, c, rank.stream), "no send buffer");
      refused(lib.allReduce(x, nullptr, 8, kFloat, kSum, c, rank.stream), "no receive buffer");
      refused(lib.allReduce(x, x, 8, ElementType{12}, kSum, c, rank.stream), "no such type");
      refused(lib.allReduce(x, x, 8, ElementType{-1}, kSum, c, rank.stream), "no such type");
      refused(lib.allReduce(x, x, 8, kFloat, ReduceOperation{5}, c, rank.stream), "no such operation");
      refused(lib.reduce(x, x, 8, kFloat, kSum, 1, c, rank.stream), "no such root");
      refused(lib.broadcast(x, x, 8, kFloat, -1, c, rank.stream), "no such root");
      refused(lib.send(x, 8, kFloat, 1, c, rank.stream), "no such peer");
      refused(lib.receive(nullptr, 8, kFloat, 0, c, rank.stream), "no receive buffer");
      if (inGroup) {
        rank.expect(lib.groupEnd(), "ncclGroupEnd of an empty group");
      }
    }
    refused(lib.finalize(nullptr), "no communicator");
    refused(lib.destroy(nullptr), "no communicator");
    refused(lib.abort(nullptr), "no communicator");
    Result state{};
    refused(lib.communicatorError(nullptr, &state), "no communicator");
    refused(lib.communicatorError(c, nullptr), "no place for the state");
    rank.expect(rank.allReduce(at, at, 8), "the communicator is as before");
  }));
}

TEST_F(CollectiveCalls, BuffersThatARankDoesNotUseMayBeNull) {
  expectFine(onRanks(2, [](Rank& rank) {
    const DevicePointer x = rank.buffer(kOnes);
    const bool isRoot = rank.number == 0;
    rank.expect(rank.nccl.reduce(bufferAt(x), isRoot ? bufferAt(x) : nullptr, 8, kFloat, kSum, 0, rank.communicator,
                                 rank.stream),
                "ncclReduce");
    rank.expect(
        rank.nccl.broadcast(isRoot ? bufferAt(x) : nullptr, bufferAt(x), 8, kFloat, 0, rank.communicator, rank.stream),
        "ncclBroadcast");
    require(rank.values<float>(x, 8) == std::vector<float>(8, 2), "the sum");
  }));
}

TEST_F(CollectiveCalls, WhatIsNotSimulatedIsNamed) {
  expectReport("ncclAllReduce:.*type 10 is not simulated", withBuffer([](Rank& rank, DevicePointer x) {
                 rank.nccl.allReduce(bufferAt(x), bufferAt(x), 8, ElementType{10}, kSum, rank.communicator,
                                     rank.stream);
               }));
  expectReport("ncclReduce:.*operation 4 is not simulated", withBuffer([](Rank& rank, DevicePointer x) {
                 rank.nccl.reduce(bufferAt(x), bufferAt(x), 8, kFloat, ReduceOperation{4}, 0, rank.communicator,
                                  rank.stream);
               }));
  expectReport("the network Pigeon is not simulated", [](Simulated&) {
    nccl::Config config;
    config.network = "Pigeon";
    Communicator c = nullptr;
    NcclSimulated().create(&c, 1, uniqueId(), 0, &config);
  });
}

// -- buffers ----------------------------------------------------------------------------------------------------------

TEST_F(CollectiveCalls, BuffersAreOnTheDeviceOfTheCommunicator) {
  expectReport("ncclAllReduce:.*the send buffer is a pointer of the host", withBuffer([](Rank& rank, DevicePointer x) {
                 const std::vector<float> host = kOnes;
                 rank.nccl.allReduce(host.data(), bufferAt(x), 8, kFloat, kSum, rank.communicator, rank.stream);
               }));
  const auto other = [](bool checks) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer own = rank.buffer(kOnes);
      cuda::Context second = nullptr;
      rank.gpu.expect(rank.gpu.primaryContextRetain(&second, 1 - rank.number), "cuDevicePrimaryCtxRetain");
      rank.gpu.expect(rank.gpu.contextPush(second), "cuCtxPushCurrent");
      const DevicePointer others = rank.gpu.allocate(32);
      const Result result = rank.allReduce(own, others, 8);
      require(checks && result == Result::InvalidArgument, "the buffer is on another device");
    });
  };
  expectReport("the receive buffer is in the memory of device ., but the communicator is of device .", other(false));
  set("NCCL_CHECK_POINTERS", "1");
  expectFine(other(true));
}

TEST_F(CollectiveCalls, BuffersAreAlignedToElements) {
  expectFine(withBuffer([](Rank& rank, DevicePointer x) {
    rank.expect(rank.allReduce(x + 4, x + 4, 4), "ncclAllReduce");
    rank.expect(rank.nccl.allReduce(bufferAt(x + 1), bufferAt(x + 1), 4, ElementType::Int8, kSum, rank.communicator,
                                    rank.stream),
                "ncclAllReduce");
  }));
  expectReport("the send buffer is not aligned to its elements of 4 bytes",
               withBuffer([](Rank& rank, DevicePointer x) { rank.allReduce(x + 2, x + 2, 4); }));
}

TEST_F(CollectiveCalls, BuffersDoNotOverlapButInPlace) {
  const std::string overlaps = "the receive buffer overlaps the send buffer";
  expectFine(withBuffer([](Rank& rank, DevicePointer x) {
    rank.expect(rank.allReduce(x, x + 16, 4), "ncclAllReduce");
    rank.expect(rank.allReduce(x, x, 8), "ncclAllReduce");
  }));
  expectReport(overlaps, withBuffer([](Rank& rank, DevicePointer x) { rank.allReduce(x, x + 12, 4); }));
  const auto gather = [](bool isInPlace) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(kOnes);
      const size_t part = static_cast<size_t>(isInPlace ? rank.number : 1 - rank.number);
      rank.expect(rank.nccl.allGather(bufferAt(x + part * 16), bufferAt(x), 4, kFloat, rank.communicator, rank.stream),
                  "ncclAllGather");
    });
  };
  expectFine(gather(true));
  expectReport(overlaps, gather(false));
}

TEST_F(CollectiveCalls, CountsAreThoseOfMemory) {
  expectReport("the count .* is larger than the memory of a device",
               withBuffer([](Rank& rank, DevicePointer x) { rank.allReduce(x, x, ~size_t{0}); }));
}

TEST_F(CollectiveCalls, StreamsAreOfTheDeviceOfTheCommunicator) {
  expectFine(withBuffer([](Rank& rank, DevicePointer x) {
    rank.expect(rank.nccl.allReduce(bufferAt(x), bufferAt(x), 8, kFloat, kSum, rank.communicator, nullptr),
                "ncclAllReduce on the default stream");
    rank.gpu.expect(rank.gpu.contextSynchronize(), "synchronize");
  }));
  expectReport("stream . is of device 1, but the communicator of device 0", withBuffer([](Rank& rank, DevicePointer x) {
                 cuda::Context second = nullptr;
                 rank.gpu.expect(rank.gpu.primaryContextRetain(&second, 1), "cuDevicePrimaryCtxRetain");
                 rank.gpu.expect(rank.gpu.contextPush(second), "cuCtxPushCurrent");
                 rank.nccl.allReduce(bufferAt(x), bufferAt(x), 8, kFloat, kSum, rank.communicator, rank.gpu.stream());
                 rank.synchronize();
               }));
  expectFine(onRanks(1,
                     [](Rank& rank) {
                       const DevicePointer x = rank.buffer(kOnes);
                       const cuda::Stream gone = rank.gpu.stream();
                       rank.gpu.expect(rank.gpu.streamDestroy(gone), "cuStreamDestroy");
                       require(rank.nccl.allReduce(bufferAt(x), bufferAt(x), 8, kFloat, kSum, rank.communicator,
                                                   gone) == Result::CudaError,
                               "the stream is destroyed");
                       require(rank.nccl.abort(rank.communicator) == Result::Success, "ncclCommAbort");
                     },
                     {.isDestroyed = false}));
}

// -- groups -----------------------------------------------------------------------------------------------------------

TEST_F(CollectiveCalls, GroupsEndOnce) {
  expectFine(withBuffer([](Rank& rank, DevicePointer) {
    rank.expect(rank.nccl.groupStart(), "ncclGroupStart");
    rank.expect(rank.nccl.groupEnd(), "ncclGroupEnd");
    require(rank.nccl.groupEnd() == Result::InvalidUsage, "no group has been started");
  }));
}

TEST_F(CollectiveCalls, CommunicatorsAreMadeInGroupsOfTheirOwn) {
  expectFine(onRanks(1,
                     [](Rank& rank) {
                       const DevicePointer x = rank.buffer(kOnes);
                       Communicator other = nullptr;
                       rank.expect(rank.nccl.groupStart(), "ncclGroupStart");
                       rank.expect(rank.allReduce(x, x, 8), "ncclAllReduce");
                       rank.expect(rank.nccl.create(&other, 1, uniqueId(), 0, nullptr), "ncclCommInitRankConfig");
                       require(rank.nccl.groupEnd() == Result::InvalidUsage,
                               "the group makes a communicator and uses one");
                       require(other == nullptr && rank.state() == Result::InvalidUsage,
                               "nothing is made, and the other has an error");
                       require(rank.nccl.abort(rank.communicator) == Result::Success, "ncclCommAbort");
                     },
                     {.isDestroyed = false}));
}

// -- memory of the library --------------------------------------------------------------------------------------------

TEST_F(CollectiveCalls, MemoryIsAllocatedAndFreedByOneLibrary) {
  expectFine(withBuffer([](Rank& rank, DevicePointer other) {
    void* memory = nullptr;
    rank.expect(rank.nccl.memoryAllocate(&memory, 32), "ncclMemAlloc");
    const auto x = reinterpret_cast<DevicePointer>(memory);
    rank.put(x, kOnes);
    rank.expect(rank.allReduce(x, x, 8), "ncclAllReduce");
    require(rank.gpu.memoryFree(x) == cuda::Result::InvalidValue, "it is not memory of cuMemAlloc");
    require(rank.nccl.memoryFree(bufferAt(other)) == Result::InvalidArgument, "it is not memory of ncclMemAlloc");
    rank.expect(rank.nccl.memoryFree(memory), "ncclMemFree");
    require(rank.nccl.memoryFree(memory) == Result::InvalidArgument, "it is freed");
    require(rank.nccl.memoryAllocate(nullptr, 32) == Result::InvalidArgument, "a place is needed");
    require(rank.nccl.memoryAllocate(&memory, size_t{1} << 40) == Result::CudaError, "there is less memory");
  }));
}

TEST_F(CollectiveCalls, MemoryIsRegisteredWhileItLives) {
  const auto program = [](bool deregisters) {
    return withBuffer([=](Rank& rank, DevicePointer) {
      void* memory = nullptr;
      void* handle = nullptr;
      rank.expect(rank.nccl.memoryAllocate(&memory, 32), "ncclMemAlloc");
      rank.expect(rank.nccl.memoryRegister(rank.communicator, memory, 32, &handle), "ncclCommRegister");
      if (deregisters) {
        rank.expect(rank.nccl.memoryDeregister(rank.communicator, handle), "ncclCommDeregister");
        require(rank.nccl.memoryDeregister(rank.communicator, handle) == Result::InvalidArgument, "no such handle");
      }
      rank.expect(rank.nccl.memoryFree(memory), "ncclMemFree");
    });
  };
  expectFine(program(true));
  expectReport(
      "ncclMemFree: frees memory of ncclMemAlloc of 32 bytes that is registered with the communicator of rank 0",
      program(false));
  expectReport("ncclCommRegister: bytes 0 to 33 of the 32 bytes of cuMemAlloc",
               withBuffer([](Rank& rank, DevicePointer x) {
                 void* handle = nullptr;
                 rank.nccl.memoryRegister(rank.communicator, bufferAt(x), 33, &handle);
               }));
  expectReport("ncclCommRegister: no memory of device 0", withBuffer([](Rank& rank, DevicePointer) {
                 void* handle = nullptr;
                 rank.nccl.memoryRegister(rank.communicator, &handle, 8, &handle);
               }));
  expectFine(withBuffer([](Rank& rank, DevicePointer x) {
    void* handle = nullptr;
    require(rank.nccl.memoryRegister(rank.communicator, nullptr, 8, &handle) == Result::InvalidArgument, "no memory");
    require(rank.nccl.memoryRegister(rank.communicator, bufferAt(x), 8, nullptr) == Result::InvalidArgument,
            "no place for the handle");
  }));
}

TEST_F(CollectiveCalls, MemoryIsRegisteredOnAllRanksOrNone) {
  const auto program = [](bool all) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(kOnes);
      void* handle = nullptr;
      if (all || rank.number == 0) {
        rank.expect(rank.nccl.memoryRegister(rank.communicator, bufferAt(x), 32, &handle), "ncclCommRegister");
      }
      rank.expect(rank.allReduce(x + 4, x + 4, 4), "ncclAllReduce");
    });
  };
  expectFine(program(true));
  expectReport(
      "ncclAllReduce of rank 0 of 2 has its operand in registered memory and ncclAllReduce of rank 1 of 2 has not",
      program(false));
}

// The operand, the result, or both are registered on a rank.
TEST_F(CollectiveCalls, OneOfTwoBuffersIsRegisteredOnAllRanksOrNone) {
  struct Registered {
    bool in = false;
    bool out = false;
  };
  const auto program = [](Registered first, Registered second, DevicePointer secondOffset = 0) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(kOnes);
      const DevicePointer y = rank.buffer(kOnes);
      const Registered own = rank.number == 0 ? first : second;
      for (const auto& [memory, isRegistered] : {std::pair(x, own.in), std::pair(y, own.out)}) {
        void* handle = nullptr;
        if (isRegistered) {
          rank.expect(rank.nccl.memoryRegister(rank.communicator, bufferAt(memory), 32, &handle), "ncclCommRegister");
        }
      }
      const DevicePointer offset = rank.number == 0 ? 0 : secondOffset;
      rank.expect(rank.allReduce(x + offset, y + offset, 4), "ncclAllReduce");
    });
  };
  const Registered none;
  const Registered in{.in = true};
  const Registered out{.out = true};
  const Registered both{.in = true, .out = true};
  for (const Registered& same : {in, out, both}) {
    expectFine(program(same, same));
  }
  expectReport("has its operand in registered memory and", program(in, out));
  expectReport("has its operand in registered memory and", program(in, none));
  expectReport("has its operand in registered memory and", program(both, out));
  expectReport("has its result in registered memory and", program(both, in));
  expectReport("has its result in registered memory and", program(out, none));
  expectReport("the offset of the operand in registered memory is", program(in, in, 8));
  expectReport("the offset of the result in registered memory is", program(out, out, 8));
}

TEST_F(CollectiveCalls, MemoryIsRegisteredOnce) {
  const auto program = [](bool again) {
    return withBuffer([=](Rank& rank, DevicePointer x) {
      void* first = nullptr;
      void* second = nullptr;
      rank.expect(rank.nccl.memoryRegister(rank.communicator, bufferAt(x), 16, &first), "ncclCommRegister");
      rank.expect(rank.nccl.memoryRegister(rank.communicator, bufferAt(again ? x + 8 : x + 16), 16, &second),
                  "ncclCommRegister");
      rank.expect(rank.nccl.memoryDeregister(rank.communicator, first), "ncclCommDeregister");
      rank.expect(rank.nccl.memoryDeregister(rank.communicator, second), "ncclCommDeregister");
    });
  };
  expectFine(program(false));
  expectReport("ncclCommRegister: bytes 0 to 8 are registered with the communicator already", program(true));
}

TEST_F(CollectiveCalls, MemoryIsRegisteredUntilItsCallsHaveEnded) {
  const auto program = [](bool waits) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(kOnes);
      void* handle = nullptr;
      rank.expect(rank.nccl.memoryRegister(rank.communicator, bufferAt(x), 32, &handle), "ncclCommRegister");
      rank.expect(rank.allReduce(x, x, 8), "ncclAllReduce");
      if (waits) {
        rank.synchronize();
      }
      rank.expect(rank.nccl.memoryDeregister(rank.communicator, handle), "ncclCommDeregister");
      rank.synchronize();
    });
  };
  expectFine(program(true));
  expectReport("ncclCommDeregister of rank . of 2: operation .* uses the memory, and the host has not waited for it",
               program(false));
}

TEST_F(CollectiveCalls, RegisteredMemoryIsUsedAtOneOffset) {
  const auto program = [](bool isOne) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(kOnes);
      void* handle = nullptr;
      rank.expect(rank.nccl.memoryRegister(rank.communicator, bufferAt(x), 32, &handle), "ncclCommRegister");
      const DevicePointer at = x + (isOne || rank.number == 0 ? 4 : 8);
      rank.expect(rank.allReduce(at, at, 4), "ncclAllReduce");
    });
  };
  expectFine(program(true));
  expectReport("the offset of the operand in registered memory is", program(false));
}

}  // namespace
}  // namespace meshfuse::collective_calls
