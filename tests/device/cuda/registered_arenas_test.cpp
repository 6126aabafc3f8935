// Arenas that are registered with NCCL, on the simulated GPU, which reports what NCCL leaves undefined. Each program runs in a process of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "base/ranges.h"
#include "device/cuda/planted.h"
#include "device/open.h"
#include "host/program.h"
#include "host/program_sizes.h"
#include "stress/checked_cache.h"

namespace meshfuse {
namespace {

// The sums of the columns of a matrix with a row on each rank, computed in an arena.
std::unique_ptr<Fusion> columnSums(int64_t ranks, int64_t columns) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
  TensorView* x = makeContigConcreteTensor({ranks, columns});
  fusion->addInput(x);
  x->setDeviceMesh(mesh);
  x->outer_split(0, ranks)->axis(0)->parallelize(ParallelType::DIDx);
  TensorView* y = neg(sum(add(x, 1.0), {0}));
  y->setDeviceMesh(mesh);
  fusion->addOutput(y);
  return fusion;
}

class GpuPlantedArenas : public GpuPlanted {
 protected:
  // A fault of the simulated GPU: "register:1".
  static Ended withFault(const std::string& fault) {
    return run("", [&] {
      setenv("SIMGPU_FAULT", fault.c_str(), 1);
      return callsAreRight();
    });
  }
};

// If one of the calls that end a registration is left out, its memory is freed too soon. So each arena is registered, and given back.
TEST_F(GpuPlantedArenas, AreRegisteredUntilTheyAreFreed) {
  const auto ended = [](const std::string& plant) { return run(plant, [] { return callsAreRight(); }); };
  EXPECT_EQ(ended("").end, End::Right);
  for (const int n : {1, 2}) {
    const Ended wrong = ended("deregister:" + std::to_string(n));
    EXPECT_EQ(wrong.end, End::Reported) << wrong.text;
    EXPECT_NE(wrong.text.find("that is registered with the communicator"), std::string::npos) << wrong.text;
  }
}

// The first two calls are those of the two ranks: one of them cannot register its arena, and the other one must not.
TEST_F(GpuPlantedArenas, AreRegisteredOnAllRanksOrNone) {
  for (const int n : {1, 2}) {
    const Ended ended = withFault("register:" + std::to_string(n));
    EXPECT_EQ(ended.end, End::Right) << ended.text;
  }
}

// Rank 1 has its operands at other places of its arena.
TEST_F(GpuPlantedArenas, OfOtherLayoutsAreNotRegistered) {
  const Ended ended = run("", [] {
    return callsAreRight([](HostProgram& host) {
      constexpr int64_t kShift = 256;
      ProgramSizes sizes = *host.constant;
      for (const int64_t t : indices(host.tensors)) {
        sizes.tensors[t].offset += host.tensors[t].place == Place::Arena ? kShift : 0;
      }
      for (const int64_t i : indices(host.steps)) {
        for (const int64_t k : indices(host.steps[i].workspaces)) {
          sizes.steps[i].workspaces[k].offset += host.steps[i].workspaces[k].zeroed ? 0 : kShift;
        }
      }
      sizes.arenaBytes += kShift;
      host.constant = std::make_shared<const ProgramSizes>(std::move(sizes));
    });
  });
  EXPECT_EQ(ended.end, End::Right) << ended.text;
}

// NCCL has no memory: the arena is memory of the pool.
TEST_F(GpuPlantedArenas, AreOfThePoolIfNcclHasNone) {
  for (int n = 1; n <= 6; n++) {
    const Ended ended = withFault("nccl-memory:" + std::to_string(n));
    EXPECT_EQ(ended.end, End::Right) << n << ": " << ended.text;
  }
}

// A cache ends while its group lives on. NCCL still has its arena, which must not count as used, and makes room for a tensor.
TEST_F(GpuPlantedArenas, MakeRoomWhenTheyHaveBeenGivenBack) {
  const Ended ended = run("", [] {
    constexpr int64_t kMemory = 1 << 20;
    constexpr int64_t kColumns = kMemory / 32;
    setenv("SIMGPU_MEMORY", std::to_string(kMemory).c_str(), 1);
    std::array<bool, kPlantedRanks> isRight = {};
    runLoopback(kPlantedRanks, [&](Communicator& comm) {
      const DeviceId gpu = DeviceId::cuda(comm.rank());
      const auto takesMost = [&] { (void)Tensor::empty({kMemory / 8 * 7}, DataType::Char, gpu); };
      const std::shared_ptr<Device> device = openDevice(gpu);
      const int64_t before = device->memoryUse()->now;
      std::string refusal;
      {
        FusionExecutorCache cache(columnSums(kPlantedRanks, kColumns), {.communicator = &comm, .threads = 1});
        const Tensor x = Tensor::zeros({1, kColumns}, DataType::Float).to(gpu);
        (void)cache.runFusionWithInputs({x});
        refusal = errorOf(takesMost);
      }
      const int64_t after = device->memoryUse()->now;
      takesMost();
      isRight[comm.rank()] = refusal.find("has no memory for") != std::string::npos && after == before;
    });
    return std::ranges::all_of(isRight, std::identity());
  });
  EXPECT_EQ(ended.end, End::Right) << ended.text;
}

}  // namespace
}  // namespace meshfuse
