// Reductions that NCCL does not have as meshfuse defines them, between GPUs or simulated ones: the ranks exchange operands, and a kernel
// combines them, with the bits of hosts and without host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/ranges.h"
#include "device/cuda/four_gpus.h"
#include "device/device.h"
#include "device/open.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/device_communicator.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

using GpuCombinedReductions = FourGpus;

// The operand of a rank, with NaN in some places.
Tensor operandOf(int64_t rank, int64_t count, DataType type) {
  Tensor t = randomTensor({count}, isFloatingPoint(type) ? DataType::Float : DataType::Int, 5 + rank, -9, 9);
  if (isFloatingPoint(type)) {
    for (int64_t i = rank; i < count; i += 101) {
      t.data_as<float>()[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return t.to(type);
}

void append(std::vector<double>& to, const Tensor& elements) {
  const std::vector<double> values = elements.to(DeviceId::cpu()).toVector();
  to.insert(to.end(), values.begin(), values.end());
}

// The communicator in host memory carried none.
void expectNoReduction(const std::vector<std::vector<std::string>>& calls) {
  for (const std::vector<std::string>& ofRank : calls) {
    EXPECT_FALSE(ofRank.empty());
    for (const std::string& call : ofRank) {
      EXPECT_EQ(call.find("reduce"), std::string::npos) << call;
    }
  }
}

// Memory for the next reduction of these communicators, as host programs give it.
Tensor lend(DeviceCommunicator& onGpus, const Device& gpu, const CollectiveOfElements& call, int64_t elements) {
  const int64_t bytes = gpu.info().combinedBytes(call, elements, kRanks);
  EXPECT_GT(bytes, 0);
  Tensor memory = Tensor::empty({bytes}, DataType::Char, gpu.id());
  onGpus.lend(memory.data());
  return memory;
}

struct Reduction {
  DataType type;
  ReduceOp op;
};
const Reduction kReductions[] = {{DataType::BFloat16, ReduceOp::Sum}, {DataType::Half, ReduceOp::Prod},
                                 {DataType::Half, ReduceOp::Max},     {DataType::Float, ReduceOp::Min},
                                 {DataType::Double, ReduceOp::Max},   {DataType::Short, ReduceOp::Sum},
                                 {DataType::Int, ReduceOp::Xor},      {DataType::Bool, ReduceOp::And}};

// Sizes that each rank combines whole, and larger ones, in parts, the last one smaller; whole vectors and not.
TEST_F(GpuCombinedReductions, HaveTheBitsOfHostsWithoutHostMemory) {
  constexpr int64_t kCounts[] = {5, 4096, 40'003};
  std::vector<std::vector<double>> expected(kRanks);
  runLoopback(kRanks, [&](Communicator& comm) {
    for (const Reduction& r : kReductions) {
      for (const int64_t count : kCounts) {
        const Tensor x = operandOf(comm.rank(), kRanks * count, r.type);
        const Tensor all = Tensor::zeros({count}, r.type);
        comm.allReduce(comm.world(), x.data(), all.data(), count, r.type, r.op);
        const Tensor part = Tensor::zeros({count}, r.type);
        comm.reduceScatter(comm.world(), x.data(), part.data(), count, r.type, r.op);
        append(expected[comm.rank()], all);
        append(expected[comm.rank()], part);
      }
    }
  });
  std::vector<std::vector<std::string>> calls;
  std::vector<std::vector<double>> got(kRanks);
  runLoopback(kRanks,
              [&](Communicator& comm) {
                const std::shared_ptr<Device> gpu = openDevice(gpuOf(comm));
                const std::shared_ptr<DeviceCommunicator> onGpus = gpu->communicator(comm);
                for (const Reduction& r : kReductions) {
                  for (const int64_t count : kCounts) {
                    const Tensor x = operandOf(comm.rank(), kRanks * count, r.type).to(gpu->id());
                    const Tensor all = x.clone();  // in place
                    const Tensor forAll = lend(*onGpus, *gpu, {Collective::AllReduce, r.type, r.op}, count);
                    onGpus->allReduce(comm.world(), all.data(), all.data(), count, r.type, r.op);
                    const Tensor part = Tensor::empty({count}, r.type, gpu->id());
                    const Tensor forPart = lend(*onGpus, *gpu, {Collective::ReduceScatter, r.type, r.op}, count);
                    onGpus->reduceScatter(comm.world(), x.data(), part.data(), count, r.type, r.op);
                    append(got[comm.rank()], all.asStrided({count}, {1}, 0));
                    append(got[comm.rank()], part);
                  }
                }
              },
              {.trace = &calls});
  for (int64_t r = 0; r < kRanks; r++) {
    const auto isSame = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    EXPECT_TRUE(std::ranges::equal(got[r], expected[r], isSame)) << "rank " << r << " has other results than on hosts";
  }
  expectNoReduction(calls);
}

TEST_F(GpuCombinedReductions, AreWorkOfAQueue) {
  constexpr int64_t kCounts[] = {100, 50'000, 30'000};
  std::vector<std::vector<std::string>> calls;
  runLoopback(
      kRanks,
      [&](Communicator& comm) {
        const std::shared_ptr<Device> gpu = openDevice(gpuOf(comm));
        const std::shared_ptr<DeviceCommunicator> onGpus = gpu->communicator(comm);
        std::vector<Tensor> sums;
        std::vector<Tensor> lent;
        for (const int64_t count : kCounts) {
          sums.push_back(Tensor::full({count}, DataType::BFloat16, comm.rank() + 1).to(gpu->id()));
        }
        const std::unique_ptr<Queue> queue = gpu->makeQueue();
        onGpus->use(queue.get());
        for (int64_t k = 0; k < std::ssize(sums); k++) {
          lent.push_back(lend(*onGpus, *gpu, {Collective::AllReduce, DataType::BFloat16, ReduceOp::Sum}, kCounts[k]));
          onGpus->allReduce(comm.world(), sums[k].data(), sums[k].data(), kCounts[k], DataType::BFloat16,
                            ReduceOp::Sum);
        }
        onGpus->finish();
        queue->wait();
        onGpus->use(nullptr);
        for (const Tensor& sum : sums) {
          EXPECT_TRUE(std::ranges::all_of(sum.to(DeviceId::cpu()).toVector(), [](double v) { return v == 10; }));
        }
      },
      {.trace = &calls});
  expectNoReduction(calls);
}

// A rank combines nothing of a reduce-scatter in which its block is empty.
TEST_F(GpuCombinedReductions, TakeBlocksOfAnySize) {
  runLoopback(kRanks, [](Communicator& comm) {
    const std::shared_ptr<Device> gpu = openDevice(gpuOf(comm));
    const std::shared_ptr<DeviceCommunicator> onGpus = gpu->communicator(comm);
    const std::vector<int64_t> counts = {3, 0, 9, 1};
    const Tensor x = Tensor::full({13}, DataType::Half, comm.rank()).to(gpu->id());
    const Tensor y = Tensor::empty({counts[comm.rank()]}, DataType::Half, gpu->id());
    const Tensor lent = lend(*onGpus, *gpu, {Collective::ReduceScatter, DataType::Half, ReduceOp::Max}, 9);
    onGpus->reduceScatterV(comm.world(), x.data(), y.data(), counts, DataType::Half, ReduceOp::Max);
    EXPECT_EQ(y.to(DeviceId::cpu()).toVector(), std::vector<double>(counts[comm.rank()], 3));
  });
}

struct Maximum {
  int64_t columns;
  bool isScattered;  // in blocks of two columns, one in the last
};

// Vectors that each rank combines whole, or a part of; blocks of several sizes. From the first call on, ranks allocate nothing beside arguments,
// results and arena.
TEST_F(GpuCombinedReductions, TakeTheMemoryThatTheirPlanSays) {
  for (const Maximum& m : {Maximum{7, false}, Maximum{7, true}, Maximum{8'501, false}}) {
    runLoopback(kRanks, [&](Communicator& comm) {
      const std::shared_ptr<Device> gpu = openDevice(gpuOf(comm));
      auto fusion = std::make_unique<Fusion>();
      {
        FusionGuard guard(fusion.get());
        const DeviceMesh mesh = DeviceMesh::createForNumDevices(kRanks);
        TensorView* x = makeContigConcreteTensor({kRanks, m.columns}, DataType::Double);
        fusion->addInput(x);
        x->setDeviceMesh(mesh);
        x->outer_split(0, kRanks);
        x->axis(0)->parallelize(ParallelType::DIDx);
        TensorView* y = max(x, {0});
        y->setDeviceMesh(mesh);
        if (m.isScattered) {
          y->outer_split(1, kRanks);  // dim 0 is the one that is reduced
          y->axis(1)->parallelize(ParallelType::DIDx);
        }
        fusion->addOutput(y);
      }
      gpu->resetMost();
      const int64_t before = gpu->memoryUse()->now;
      const std::vector<Argument> inputs = {random({1, m.columns}, comm.rank()).to(DataType::Double).to(gpu->id())};
      const int64_t own = !m.isScattered ? m.columns : comm.rank() == kRanks - 1 ? 1 : 2;
      std::vector<Tensor> outputs = {Tensor::empty({own}, DataType::Double, gpu->id())};
      FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Off});
      for (int64_t call = 0; call < 3; call++) {
        cache.run(inputs, outputs);
        EXPECT_EQ(gpu->memoryUse()->most - before, cache.hostProgram()->sizes().peakBytes)
            << "call " << call << "\n"
            << cache.hostProgram()->toString();
      }
    });
  }
}

}  // namespace
}  // namespace meshfuse
