// Collectives of the simulated NCCL give what plain loops give: on 1 to 4 ranks as threads, and on ranks of two processes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "simgpu/collectives.h"
#include "simgpu/products.h"

namespace meshfuse::collectives {
namespace {

using cuda::DevicePointer;
using nccl::ElementType;
using nccl::ReduceOperation;
using nccl::Result;

// More than two blocks of a ring, and no multiple of one
constexpr size_t kElements = 37;

size_t sizeOfElement(ElementType type) {
  using enum ElementType;
  switch (type) {
    case Int8:
    case Uint8:
      return 1;
    case Half:
    case BFloat16:
      return 2;
    case Int32:
    case Float:
      return 4;
    case Int64:
    case Double:
      return 8;
  }
  return 0;
}

std::string bytesOf(double value, ElementType type) {
  using enum ElementType;
  const auto integer = static_cast<int64_t>(value);  // little-endian
  switch (type) {
    case Int8:
    case Uint8:
    case Int32:
    case Int64:
      return {reinterpret_cast<const char*>(&integer), sizeOfElement(type)};
    case Half:
      return bytesOfValue(value, cublaslt::ElementType::Half);
    case BFloat16:
      return bytesOfValue(value, cublaslt::ElementType::BFloat16);
    case Float:
      return bytesOfValue(value, cublaslt::ElementType::Float);
    case Double:
      return bytesOfValue(value, cublaslt::ElementType::Double);
  }
  return "";
}

// Small, so that products of four are exact in all types; of Uint8, all that is negative wraps around
double valueAt(int rank, size_t i, ElementType type) {
  const double value = static_cast<double>((static_cast<size_t>(rank) * 3 + i * 5 + i / 16) % 7);
  return type == ElementType::Uint8 ? value : value - 3;
}

double reduced(double x, double y, ReduceOperation operation) {
  using enum ReduceOperation;
  switch (operation) {
    case Sum:
      return x + y;
    case Product:
      return x * y;
    case Max:
      return std::max(x, y);
    case Min:
      return std::min(x, y);
  }
  return 0;
}

// Elements [from, from + count) of all ranks, reduced
std::string reducedBytes(int ranks, size_t from, size_t count, ElementType type, ReduceOperation operation) {
  std::string bytes;
  for (size_t i = from; i < from + count; i++) {
    double value = valueAt(0, i, type);
    for (int r = 1; r < ranks; r++) {
      value = reduced(value, valueAt(r, i, type), operation);
    }
    bytes += bytesOf(value, type);
  }
  return bytes;
}

std::string bytesOfRank(int rank, size_t count, ElementType type) {
  std::string bytes;
  for (size_t i = 0; i < count; i++) {
    bytes += bytesOf(valueAt(rank, i, type), type);
  }
  return bytes;
}

DevicePointer bufferOf(Rank& rank, const std::string& bytes) {
  return rank.buffer(std::vector<char>(bytes.begin(), bytes.end()));
}

void expectBytes(const Rank& rank, DevicePointer at, const std::string& right, const char* what) {
  const std::vector<char> got = rank.values<char>(at, right.size());
  require(std::string(got.begin(), got.end()) == right, what);
}

void* at(DevicePointer p, size_t elements, ElementType type) { return bufferAt(p + elements * sizeOfElement(type)); }

void expectReductions(Rank& rank, ElementType type, ReduceOperation operation, bool isInPlace) {
  const size_t size = sizeOfElement(type);
  const auto fresh = [&](DevicePointer in, size_t count) { return isInPlace ? in : rank.gpu.allocate(count * size); };
  const DevicePointer a = bufferOf(rank, bytesOfRank(rank.number, kElements, type));
  const DevicePointer all = fresh(a, kElements);
  rank.expect(
      rank.nccl.allReduce(at(a, 0, type), at(all, 0, type), kElements, type, operation, rank.communicator, rank.stream),
      "ncclAllReduce");
  expectBytes(rank, all, reducedBytes(rank.count, 0, kElements, type, operation), "the reduction on all ranks");

  const int root = rank.count - 1;
  const bool isRoot = rank.number == root;
  const DevicePointer b = bufferOf(rank, bytesOfRank(rank.number, kElements, type));
  const DevicePointer one = isRoot ? fresh(b, kElements) : 0;
  rank.expect(rank.nccl.reduce(at(b, 0, type), isRoot ? at(one, 0, type) : nullptr, kElements, type, operation, root,
                               rank.communicator, rank.stream),
              "ncclReduce");
  if (isRoot) {
    expectBytes(rank, one, reducedBytes(rank.count, 0, kElements, type, operation), "the reduction on the root");
  }

  const auto own = static_cast<size_t>(rank.number) * kElements;
  const auto ranks = static_cast<size_t>(rank.count);
  const DevicePointer c = bufferOf(rank, bytesOfRank(rank.number, ranks * kElements, type));
  const DevicePointer part = isInPlace ? c + own * size : rank.gpu.allocate(kElements * size);
  rank.expect(rank.nccl.reduceScatter(at(c, 0, type), at(part, 0, type), kElements, type, operation, rank.communicator,
                                      rank.stream),
              "ncclReduceScatter");
  expectBytes(rank, part, reducedBytes(rank.count, own, kElements, type, operation), "the rank's part");
}

void expectCopies(Rank& rank, ElementType type, bool isInPlace) {
  const size_t size = sizeOfElement(type);
  const int root = rank.count / 2;
  const std::string own = bytesOfRank(rank.number, kElements, type);
  const DevicePointer a = rank.number == root ? bufferOf(rank, own) : rank.gpu.allocate(own.size());
  const DevicePointer copy = isInPlace ? a : rank.gpu.allocate(own.size());
  rank.expect(
      rank.nccl.broadcast(at(a, 0, type), at(copy, 0, type), kElements, type, root, rank.communicator, rank.stream),
      "ncclBroadcast");
  expectBytes(rank, copy, bytesOfRank(root, kElements, type), "what the root has");

  const DevicePointer all = rank.gpu.allocate(own.size() * static_cast<size_t>(rank.count));
  const DevicePointer place = all + static_cast<size_t>(rank.number) * kElements * size;
  const DevicePointer mine = isInPlace ? place : bufferOf(rank, own);
  if (isInPlace) {
    rank.put(place, std::vector<char>(own.begin(), own.end()));
  }
  rank.expect(rank.nccl.allGather(at(mine, 0, type), at(all, 0, type), kElements, type, rank.communicator, rank.stream),
              "ncclAllGather");
  std::string gathered;
  for (int r = 0; r < rank.count; r++) {
    gathered += bytesOfRank(r, kElements, type);
  }
  expectBytes(rank, all, gathered, "what all ranks have");
}

class Collectives : public CollectiveTest, public testing::WithParamInterface<ElementType> {};

TEST_P(Collectives, AreThoseOfPlainLoops) {
  using enum ReduceOperation;
  set("SIMGPU_DELAY", "50");
  const auto all = [type = GetParam()](Rank& rank) {
    for (const bool isInPlace : {false, true}) {
      for (const ReduceOperation operation : {Sum, Product, Max, Min}) {
        expectReductions(rank, type, operation, isInPlace);
      }
      expectCopies(rank, type, isInPlace);
    }
  };
  expectFine([&](Simulated& gpu) {
    for (int ranks = 1; ranks <= 4; ranks++) {
      onRanks(ranks, all, {.isBlocking = ranks % 2 == 0})(gpu);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Collectives,
                         testing::Values(ElementType::Int8, ElementType::Uint8, ElementType::Int32, ElementType::Int64,
                                         ElementType::Half, ElementType::Float, ElementType::Double,
                                         ElementType::BFloat16));

class CollectiveValues : public CollectiveTest {};

TEST_F(CollectiveValues, AreSummedInAnOrderThatDiffersAmongBlocks) {
  expectFine(onRanks(3, [](Rank& rank) {
    const float own[] = {1e8F, 1, -1e8F};
    const DevicePointer x = rank.buffer(std::vector<float>(32, own[rank.number]));
    rank.expect(rank.allReduce(x, x, 32), "ncclAllReduce");
    std::vector<float> right(32, 0);  // rank 1, then 2, then 0
    std::fill(right.begin() + 16, right.end(), 1.0F);
    require(rank.values<float>(x, 32) == right, "the same sums on all ranks");
  }));
}

TEST_F(CollectiveValues, OfSixteenBitsAreSummedInFloat) {
  expectFine(onRanks(4, [](Rank& rank) {
    // 2048 + 1 is no half: a sum that rounds each time would lose all three
    const std::string own = bytesOfValue(rank.number == 1 ? 2048 : 1, cublaslt::ElementType::Half);
    const DevicePointer x = bufferOf(rank, own);
    rank.expect(rank.nccl.allReduce(bufferAt(x), bufferAt(x), 1, ElementType::Half, ReduceOperation::Sum,
                                    rank.communicator, rank.stream),
                "ncclAllReduce");
    expectBytes(rank, x, bytesOfValue(2052, cublaslt::ElementType::Half), "2051, rounded to the even one");
  }));
}

TEST_F(CollectiveValues, OfIntegersWrapAround) {
  expectFine(onRanks(2, [](Rank& rank) {
    const DevicePointer x = rank.buffer(std::vector<int8_t>{100});
    rank.expect(rank.nccl.allReduce(bufferAt(x), bufferAt(x), 1, ElementType::Int8, ReduceOperation::Sum,
                                    rank.communicator, rank.stream),
                "ncclAllReduce");
    require(rank.values<int8_t>(x, 1)[0] == -56, "200 in 8 bits");
  }));
}

TEST_F(CollectiveValues, OfNothing) {
  expectFine(onRanks(2, [](Rank& rank) {
    rank.expect(rank.allReduce(0, 0, 0), "ncclAllReduce");
    rank.expect(rank.broadcast(0, 0, 0, 1), "ncclBroadcast");
    rank.synchronize();
  }));
}

TEST_F(CollectiveValues, InPinnedMemory) {
  expectFine(onRanks(2, [](Rank& rank) {
    float* const x = rank.gpu.pinned(2);
    x[0] = 1;
    x[1] = static_cast<float>(rank.number);
    const auto at = reinterpret_cast<DevicePointer>(x);
    rank.expect(rank.allReduce(at, at, 2), "ncclAllReduce");
    rank.synchronize();
    require(x[0] == 2 && x[1] == 1, "the sum");
  }));
}

// -- transfers and groups ---------------------------------------------------------------------------------------------

TEST_F(CollectiveValues, OfTransfersBetweenAllRanks) {
  for (int ranks = 1; ranks <= 4; ranks++) {
    const auto program = [](Rank& rank) {
      std::vector<float> out;
      for (int r = 0; r < rank.count; r++) {
        out.push_back(static_cast<float>(10 * rank.number + r));
      }
      const DevicePointer sent = rank.buffer(out);
      const DevicePointer received = rank.gpu.allocate(out.size() * sizeof(float));
      rank.expect(rank.nccl.groupStart(), "ncclGroupStart");
      for (int r = 0; r < rank.count; r++) {
        const size_t offset = static_cast<size_t>(r) * sizeof(float);
        rank.expect(rank.send(sent + offset, 1, r), "ncclSend");
        rank.expect(rank.receive(received + offset, 1, r), "ncclRecv");
      }
      rank.expect(rank.nccl.groupEnd(), "ncclGroupEnd");
      const std::vector<float> got = rank.values<float>(received, out.size());
      for (int r = 0; r < rank.count; r++) {
        require(got[static_cast<size_t>(r)] == static_cast<float>(10 * r + rank.number), "what rank r has sent");
      }
    };
    expectFine(onRanks(ranks, program, {.isBlocking = ranks % 2 == 0}));
  }
}

TEST_F(CollectiveValues, OfTransfersWithoutAGroupInTheOrderOfTheStream) {
  expectFine(onRanks(2, [](Rank& rank) {
    const DevicePointer x = rank.buffer(std::vector<float>{static_cast<float>(rank.number) + 1});
    const DevicePointer y = rank.gpu.allocate(sizeof(float));
    for (int sender = 0; sender < 2; sender++) {
      rank.expect(sender == rank.number ? rank.send(x, 1, 1 - sender) : rank.receive(y, 1, sender), "a transfer");
    }
    require(rank.values<float>(y, 1)[0] == static_cast<float>(2 - rank.number), "what the other rank has");
  }));
}

// One thread has all ranks, and a group in a group.
TEST_F(CollectiveValues, OfRanksOnOneThread) {
  expectFine([](Simulated& gpu) {
    const NcclSimulated lib;
    const nccl::UniqueId id = uniqueId();
    constexpr int kRanks = 3;
    nccl::Communicator all[kRanks] = {};
    cuda::Stream streams[kRanks] = {};
    DevicePointer x[kRanks] = {};
    const auto use = [&](int device) {
      cuda::Context context = nullptr;
      gpu.expect(gpu.primaryContextRetain(&context, device), "cuDevicePrimaryCtxRetain");
      gpu.expect(gpu.contextPush(context), "cuCtxPushCurrent");
    };
    const auto expect = [](Result result, const char* call) { require(result == Result::Success, call); };
    expect(lib.groupStart(), "ncclGroupStart");
    for (int r = 0; r < kRanks; r++) {
      use(r);
      streams[r] = gpu.stream();
      x[r] = gpu.allocate(4);
      const float own = static_cast<float>(r + 1);
      gpu.expect(gpu.copyToDevice(x[r], &own, 4), "cuMemcpyHtoD");
      expect(lib.create(&all[r], kRanks, id, r, nullptr), "ncclCommInitRankConfig");
      require(all[r] == nullptr, "communicators are made at the end of the group");
    }
    expect(lib.groupEnd(), "ncclGroupEnd");
    expect(lib.groupStart(), "ncclGroupStart");
    expect(lib.groupStart(), "ncclGroupStart");
    for (int r = 0; r < kRanks; r++) {
      expect(lib.allReduce(bufferAt(x[r]), bufferAt(x[r]), 1, ElementType::Float, ReduceOperation::Sum, all[r],
                           streams[r]),
             "ncclAllReduce");
    }
    expect(lib.groupEnd(), "the inner ncclGroupEnd");
    require(gpu.streamQuery(streams[0]) == cuda::Result::Success, "nothing is on the streams before the outer end");
    expect(lib.groupEnd(), "ncclGroupEnd");
    for (int r = 0; r < kRanks; r++) {
      use(r);
      gpu.expect(gpu.streamSynchronize(streams[r]), "cuStreamSynchronize");
      float got = 0;
      gpu.expect(gpu.copyToHost(&got, x[r], 4), "cuMemcpyDtoH");
      require(got == 6, "the sum of all ranks");
    }
    expect(lib.groupStart(), "ncclGroupStart");
    for (nccl::Communicator c : all) {
      expect(lib.destroy(c), "ncclCommDestroy");
    }
    expect(lib.groupEnd(), "ncclGroupEnd");
  });
}

// -- processes --------------------------------------------------------------------------------------------------------

TEST_F(CollectiveValues, OfTwoProcesses) {
  std::string job = "/tmp/simgpu_job_XXXXXX";
  ASSERT_NE(mkdtemp(job.data()), nullptr);
  set("SIMGPU_JOB", job);
  expectFine([](Simulated& gpu) {
    const nccl::UniqueId id = uniqueId();
    const DevicePointer ofTheFirst = gpu.allocate(4);
    const pid_t child = fork();
    {
      Rank rank(child == 0 ? 1 : 0, 2, id);
      const DevicePointer x = rank.buffer(std::vector<float>{1, static_cast<float>(rank.number)});
      rank.expect(rank.allReduce(x, x, 2), "ncclAllReduce");
      require(rank.values<float>(x, 2) == std::vector<float>{2, 1}, "the sum of two processes");
    }
    if (child == 0) {
      std::_Exit(0);
    }
    int status = -1;
    require(waitpid(child, &status, 0) == child && status == 0, "the other process ends well");
    gpu.expect(gpu.memoryFree(ofTheFirst), "cuMemFree, after another process has joined the job");
  });
  std::filesystem::remove_all(job);
}

}  // namespace
}  // namespace meshfuse::collectives
