// Collectives by NCCL between GPUs, or between simulated ones, compared with those of loopback ranks in host memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/four_gpus.h"
#include "device/device.h"
#include "device/open.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/device_communicator.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace meshfuse {
namespace {

using GpuCollectives = FourGpus;

// Small integers, so that sums are exact in every type and order.
Tensor integers(int64_t count, DataType type, uint64_t seed) {
  Tensor t = randomTensor({count}, DataType::Int, seed, -8, 8);
  return t.to(type);
}

// One collective of a rank: how many elements it has and gets, and the call.
struct Trial {
  std::string name;
  int64_t in = 0;
  int64_t out = 0;
  std::function<void(Communicator&, const void*, void*)> call;
};

std::vector<Trial> trials(const Team& team, int64_t position, DataType type) {
  constexpr int64_t kCount = 37;
  const int64_t n = std::ssize(team.ranks);
  std::vector<Trial> all = {
      {"all-gather", kCount, n * kCount,
       [=](Communicator& c, const void* in, void* out) { c.allGather(team, in, out, kCount, type); }},
      {"all-to-all", n * kCount, n * kCount,
       [=](Communicator& c, const void* in, void* out) { c.allToAll(team, in, out, kCount, type); }},
      {"broadcast", 0, kCount,
       [=](Communicator& c, const void*, void* out) { c.broadcast(team, out, kCount, type, n - 1); }}};
  const std::vector<ReduceOp> ops = type == DataType::Bool
                                        ? std::vector<ReduceOp>{ReduceOp::Or, ReduceOp::And}
                                        : std::vector<ReduceOp>{ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min};
  for (const ReduceOp op : ops) {
    all.push_back({"all-reduce", kCount, kCount,
                   [=](Communicator& c, const void* in, void* out) { c.allReduce(team, in, out, kCount, type, op); }});
    all.push_back({"reduce-scatter", n * kCount, kCount, [=](Communicator& c, const void* in, void* out) {
                     c.reduceScatter(team, in, out, kCount, type, op);
                   }});
  }
  // the second rank of a team has nothing
  const std::vector<int64_t> counts =
      mapped(indices(team.ranks), [](int64_t i) { return i == 1 ? int64_t{0} : 5 * i + 3; });
  const int64_t total = sumOf(counts, [](int64_t c) { return c; });
  all.push_back({"all-gather-v", counts[position], total,
                 [=](Communicator& c, const void* in, void* out) { c.allGatherV(team, in, out, counts, type); }});
  all.push_back({"reduce-scatter-v", total, counts[position], [=](Communicator& c, const void* in, void* out) {
                   c.reduceScatterV(team, in, out, counts, type, ops[0]);
                 }});
  const auto amount = [](int64_t from, int64_t to) { return (from + 2 * to) % 3 * 7; };
  const std::vector<int64_t> sent = mapped(indices(team.ranks), [&](int64_t i) { return amount(position, i); });
  const std::vector<int64_t> received = mapped(indices(team.ranks), [&](int64_t i) { return amount(i, position); });
  all.push_back(
      {"all-to-all-v", sumOf(sent, [](int64_t c) { return c; }), sumOf(received, [](int64_t c) { return c; }),
       [=](Communicator& c, const void* in, void* out) { c.allToAllV(team, in, out, sent, received, type); }});
  const int64_t bytes = kCount * dataTypeSize(type);
  const int64_t next = team.ranks[(position + 1) % n];
  const int64_t last = team.ranks[(position + n - 1) % n];
  all.push_back(
      {"transfer", kCount, kCount, [=](Communicator& c, const void* in, void* out) {
         using enum Communicator::Transfer::Direction;
         const Communicator::Transfer both[] = {{Send, next, const_cast<void*>(in), bytes}, {Recv, last, out, bytes}};
         c.transfer(both);
       }});
  return all;
}

TEST_F(GpuCollectives, AreThoseOfHosts) {
  const std::vector<Team> teams = {{{0, 1, 2, 3}}, {{0, 2}}, {{1, 3}}, {{1, 2, 3}}};
  runLoopback(kRanks, [&](Communicator& comm) {
    const std::shared_ptr<Device> gpu = openDevice(gpuOf(comm));
    const std::shared_ptr<DeviceCommunicator> onGpus = gpu->communicator(comm);
    ASSERT_NE(onGpus, nullptr);
    EXPECT_EQ(onGpus->transport(), "nccl");
    const Tensor lent = Tensor::empty({1 << 16}, DataType::Char, gpu->id());  // more than any of the calls takes
    for (const DataType type :
         {DataType::Float, DataType::Double, DataType::Half, DataType::BFloat16, DataType::Int, DataType::Int32,
          DataType::Short, DataType::Char, DataType::UInt16, DataType::Byte, DataType::Bool}) {
      for (const Team& team : teams) {
        if (!contains(team.ranks, comm.rank())) {
          continue;
        }
        for (const Trial& t : trials(team, positionIn(team.ranks, comm.rank()), type)) {
          const Tensor in = integers(t.in, type, 10 + comm.rank());
          const Tensor before = integers(t.out, type, 20 + comm.rank());
          const Tensor expected = before.clone();
          comm.resetCounters();
          t.call(comm, in.data(), expected.data());
          const TransferCounters ofHosts = comm.counters();
          const Tensor inOnGpu = in.to(gpu->id());
          onGpus->lend(lent.data());
          const Tensor got = before.to(gpu->id());
          comm.resetCounters();
          t.call(*onGpus, inOnGpu.data(), got.data());
          const std::string what = t.name + " of " + std::string(name(type));
          EXPECT_EQ(got.to(DeviceId::cpu()).toVector(), expected.toVector()) << what << " on rank " << comm.rank();
          for (const Collective k :
               {Collective::AllGather, Collective::AllToAll, Collective::Broadcast, Collective::Recv}) {
            EXPECT_EQ(comm.counters().of[static_cast<int64_t>(k)].bytesReceived,
                      ofHosts.of[static_cast<int64_t>(k)].bytesReceived)
                << what;
          }
        }
      }
    }
  });
}

// Of rows that lie in parts on the ranks.
struct Redistribution {
  std::string collective;
  TensorView* (*of)(TensorView* rows);
  std::optional<int64_t> cutDim;  // of the result; nothing: it is whole on each rank
};
const Redistribution kRedistributions[] = {
    {"all-reduce", [](TensorView* x) { return sum(x, {0}); }, {}},
    {"reduce-scatter", [](TensorView* x) { return sum(x, {0}); }, 1},  // dim 0 is the one that is summed
    {"all-gather", [](TensorView* x) { return add(x, x); }, {}},
    {"all-to-all", [](TensorView* x) { return neg(x); }, 1},
};

std::unique_ptr<Fusion> programOf(const Redistribution& r, int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  const auto place = [&](TensorView* tv, std::optional<int64_t> dim) {
    tv->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
    if (dim) {
      tv->outer_split(*dim, ranks);
      tv->axis(*dim)->parallelize(ParallelType::DIDx);
    }
  };
  TensorView* x = makeContigConcreteTensor({4 * ranks, 8});
  fusion->addInput(x);
  place(x, 0);
  TensorView* result = r.of(x);
  fusion->addOutput(result);
  place(result, r.cutDim);
  return fusion;
}

TEST_F(GpuCollectives, CarryPrograms) {
  for (const int64_t ranks : {2, 4}) {
    const Tensor whole = random({4 * ranks, 8}, 1);
    runLoopback(ranks, [&](Communicator& comm) {
      for (const Redistribution& r : kRedistributions) {
        FusionExecutorCache cache(programOf(r, ranks), {.communicator = &comm, .threads = 1, .verify = Verify::Always});
        const std::vector<Argument> arguments = {
            shardTensor(whole, 0, DeviceMesh::createForNumDevices(ranks), comm.rank()).to(gpuOf(comm))};
        for (int call = 0; call < 3; call++) {
          comm.resetCounters();
          (void)cache.runFusionWithInputs(arguments);
        }
        const std::vector<CommRecord> steps = cache.commSteps();
        ASSERT_EQ(steps.size(), 1) << r.collective;
        EXPECT_EQ(steps[0].kind, r.collective);
        EXPECT_EQ(sumOf(comm.counters().of, &TransferCounters::Entry::bytesReceived), steps[0].bytesReceived)
            << r.collective;
      }
      ASSERT_TRUE(comm.onDevice().has_value());
      ASSERT_NE(comm.onDevice()->communicator, nullptr);
      EXPECT_EQ(comm.onDevice()->communicator->transport(), "nccl");
    });
  }
}

TEST_F(GpuCollectives, OfRanksThatShareAGpuGoThroughHostMemory) {
  runLoopback(2, [](Communicator& comm) { EXPECT_EQ(openDevice(DeviceId::cuda(0))->communicator(comm), nullptr); });
  runLoopback(1, [](Communicator& comm) { EXPECT_EQ(openDevice(DeviceId::cuda(0))->communicator(comm), nullptr); });
}

// The errors of four ranks in a call that rank 2 does not make.
std::vector<std::string> errorsWithout(const std::function<void(Communicator&, Communicator&)>& ofRank2) {
  std::vector<std::string> errors(kRanks);
  (void)errorOf([&] {
    runLoopback(kRanks,
                [&](Communicator& comm) {
                  const std::shared_ptr<DeviceCommunicator> onGpus = openDevice(gpuOf(comm))->communicator(comm);
                  onGpus->setStep(3, "all-reduce T9");
                  const Tensor t = integers(100, DataType::Float, 1).to(gpuOf(comm));
                  if (comm.rank() == 2) {
                    return ofRank2(comm, *onGpus);
                  }
                  errors[comm.rank()] = errorOf([&] {
                    onGpus->allReduce(comm.world(), t.data(), t.data(), 100, DataType::Float, ReduceOp::Sum);
                  });
                },
                {.deadline = std::chrono::milliseconds(2'000)});
  });
  return errors;
}

TEST_F(GpuCollectives, ARankThatEndsIsNamed) {
  const std::vector<std::string> errors =
      errorsWithout([](Communicator&, Communicator&) { throwUserError("no more"); });
  for (const int64_t r : {0, 1, 3}) {
    EXPECT_TRUE(errors[r].starts_with("DeviceError: ")) << errors[r];
    EXPECT_NE(errors[r].find("rank 2/4"), std::string::npos) << errors[r];
    EXPECT_NE(errors[r].find("no more"), std::string::npos) << errors[r];
  }
}

TEST_F(GpuCollectives, ARankThatMakesAnotherCallIsNamed) {
  const std::vector<std::string> errors = errorsWithout([](Communicator& comm, Communicator& onGpus) {
    onGpus.setProgram(77);
    const Tensor t = integers(100, DataType::Float, 1).to(gpuOf(comm));
    EXPECT_NE(errorOf([&] { onGpus.allReduce(comm.world(), t.data(), t.data(), 100, DataType::Float, ReduceOp::Sum); }),
              "");
  });
  for (const int64_t r : {0, 1, 3}) {
    EXPECT_NE(errors[r].find("rank 2"), std::string::npos) << errors[r];
  }
}

// The errors of two ranks: rank 0 sends `sent` floats, rank 1 receives `received`, in programs of these numbers.
std::vector<std::string> errorsOfTransfer(int64_t sent, int64_t received, uint64_t program0, uint64_t program1) {
  std::vector<std::string> errors(2);
  (void)errorOf([&] {
    runLoopback(2,
                [&](Communicator& comm) {
                  const std::shared_ptr<DeviceCommunicator> onGpus = openDevice(gpuOf(comm))->communicator(comm);
                  const Tensor t = integers(100, DataType::Float, 1).to(gpuOf(comm));
                  onGpus->setProgram(comm.rank() == 0 ? program0 : program1);
                  using enum Communicator::Transfer::Direction;
                  const bool sends = comm.rank() == 0;
                  const Communicator::Transfer one[] = {
                      {sends ? Send : Recv, 1 - comm.rank(), t.data(), 4 * (sends ? sent : received)}};
                  errors[comm.rank()] = errorOf([&] { onGpus->transfer(one); });
                },
                {.deadline = std::chrono::milliseconds(20'000)});
  });
  return errors;
}

TEST_F(GpuCollectives, MessagesOfRanksThatDisagreeAreRefused) {
  EXPECT_EQ(errorsOfTransfer(20, 20, 5, 5), std::vector<std::string>(2));
  for (const std::string& e : errorsOfTransfer(20, 24, 5, 5)) {
    EXPECT_NE(e.find("disagree"), std::string::npos) << e;
    EXPECT_EQ(e.find("deadline"), std::string::npos) << e;
  }
  for (const std::string& e : errorsOfTransfer(20, 20, 5, 6)) {
    EXPECT_NE(e, "");
    EXPECT_EQ(e.find("deadline"), std::string::npos) << e;
  }
}

}  // namespace
}  // namespace meshfuse
