// Ports of test_multidevice_communications.cpp, _communicator.cpp and _tutorial.cpp: collectives that the user calls, meshes, and the first
// programs of a newcomer.
#include <atomic>
#include <numeric>

#include "nvfuser_shape/port.h"

namespace meshfuse {
namespace {

constexpr int64_t kCount = 1024;
constexpr int64_t kRoot = 0;
constexpr int64_t kRepetitions = 8;

std::vector<float> counting(int64_t first, int64_t count = kCount) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(first));
  return values;
}

// Lists one after the other: what a gather gives.
std::vector<float> gathered(int64_t ranks, int64_t repetition) {
  std::vector<float> all;
  for (int64_t r = 0; r < ranks; r++) {
    append(all, counting((r + 1) * repetition));
  }
  return all;
}

// Of a sum over ranks of counting((r + 1) * repetition).
std::vector<float> summed(int64_t ranks, int64_t repetition) {
  std::vector<float> sum = counting(0);
  for (float& v : sum) {
    v = v * static_cast<float>(ranks) + static_cast<float>(ranks * (ranks + 1) / 2 * repetition);
  }
  return sum;
}

Team everyone(const Communicator& comm) { return {DeviceMesh::createForNumDevices(comm.size()).vector()}; }

class PortsOfCollectives : public MultiDeviceTest {
 protected:
  // Repeated, as fast as they come.
  void repeat(const std::function<void(Communicator&, const Team&, int64_t repetition)>& body) {
    runOnRanks([&](Communicator& comm) {
      for (int64_t k = 0; k < kRepetitions; k++) {
        body(comm, everyone(comm), k);
      }
    });
  }
};

TEST_F(PortsOfCollectives, Gather) {
  repeat([](Communicator& comm, const Team& team, int64_t k) {
    const auto in = counting((comm.rank() + 1) * k);
    std::vector<float> out(comm.rank() == kRoot ? kCount * comm.size() : 0);
    comm.gather(team, in.data(), out.data(), kCount, DataType::Float, kRoot);
    if (comm.rank() == kRoot) {
      EXPECT_EQ(out, gathered(comm.size(), k));
    }
  });
}

TEST_F(PortsOfCollectives, Allgather) {
  repeat([](Communicator& comm, const Team& team, int64_t k) {
    const auto in = counting((comm.rank() + 1) * k);
    std::vector<float> out(kCount * comm.size());
    comm.allGather(team, in.data(), out.data(), kCount, DataType::Float);
    EXPECT_EQ(out, gathered(comm.size(), k));
  });
}

TEST_F(PortsOfCollectives, Scatter) {
  repeat([](Communicator& comm, const Team& team, int64_t k) {
    const auto in = comm.rank() == kRoot ? gathered(comm.size(), k) : std::vector<float>();
    std::vector<float> out(kCount);
    comm.scatter(team, in.data(), out.data(), kCount, DataType::Float, kRoot);
    EXPECT_EQ(out, counting((comm.rank() + 1) * k));
  });
}

TEST_F(PortsOfCollectives, Broadcast) {
  repeat([](Communicator& comm, const Team& team, int64_t k) {
    auto data = comm.rank() == kRoot ? counting(k) : std::vector<float>(kCount);
    comm.broadcast(team, data.data(), kCount, DataType::Float, kRoot);
    EXPECT_EQ(data, counting(k));
  });
}

TEST_F(PortsOfCollectives, SendRecv) {
  using enum Communicator::Transfer::Direction;
  repeat([](Communicator& comm, const Team&, int64_t k) {
    auto data = comm.rank() == 0 ? counting(k) : std::vector<float>(kCount);
    if (comm.rank() < 2) {
      const Communicator::Transfer one{comm.rank() == 0 ? Send : Recv, 1 - comm.rank(), data.data(), kCount * 4};
      comm.transfer({&one, 1});
      EXPECT_EQ(data, counting(k));
    }
  });
}

TEST_F(PortsOfCollectives, Reduce) {
  repeat([](Communicator& comm, const Team& team, int64_t k) {
    const auto in = counting((comm.rank() + 1) * k);
    std::vector<float> out(kCount);
    comm.reduce(team, in.data(), out.data(), kCount, DataType::Float, {ReduceOp::Sum, kRoot});
    if (comm.rank() == kRoot) {
      EXPECT_EQ(out, summed(comm.size(), k));
    }
  });
}

TEST_F(PortsOfCollectives, Allreduce) {
  repeat([](Communicator& comm, const Team& team, int64_t k) {
    const auto in = counting((comm.rank() + 1) * k);
    std::vector<float> out(kCount);
    comm.allReduce(team, in.data(), out.data(), kCount, DataType::Float, ReduceOp::Sum);
    EXPECT_EQ(out, summed(comm.size(), k));
  });
}

TEST_F(PortsOfCollectives, ReduceScatter) {
  repeat([](Communicator& comm, const Team& team, int64_t k) {
    const auto in = counting((comm.rank() + 1) * k, kCount * comm.size());
    std::vector<float> out(kCount);
    comm.reduceScatter(team, in.data(), out.data(), kCount, DataType::Float, ReduceOp::Sum);
    for (int64_t i = 0; i < kCount; i++) {
      const int64_t n = comm.size();
      ASSERT_EQ(out[i], static_cast<float>(n * (comm.rank() * kCount + i) + n * (n + 1) / 2 * k)) << i;
    }
  });
}

// No rank leaves a barrier before all have entered it: threads count, in place of nvFuser's clocks.
TEST_F(PortsOfCollectives, Barrier) {
  if (launched()) {
    GTEST_SKIP() << "counts in memory that the ranks share";
  }
  std::atomic<int64_t> entered = 0;
  runOnRanks(4, [&](Communicator& comm) {
    for (int64_t k = 1; k <= kRepetitions; k++) {
      entered++;
      comm.barrier(everyone(comm));
      EXPECT_GE(entered, k * 4);
    }
  });
}

class PortsOfTheTutorial : public PortTest {};

TEST_F(PortsOfTheTutorial, CommunicatorAndItsCollectives) {
  runOnRanks([](Communicator& comm) {
    EXPECT_GE(comm.rank(), 0);
    EXPECT_LT(comm.rank(), comm.size());
    std::vector<float> ones(128, 1);
    comm.allReduce(everyone(comm), ones.data(), ones.data(), 128, DataType::Float, ReduceOp::Sum);
    EXPECT_EQ(ones, std::vector<float>(128, static_cast<float>(comm.size())));
  });
}

TEST_F(PortsOfTheTutorial, MeshesWithoutResharding) {
  EXPECT_THROW(DeviceMesh({1, 1}), UserError);
  for (const bool everywhere : {true, false}) {
    runPort([=](int64_t d) {
      const auto build = [=](Fusion& f) {
        TensorView* in = makeContigTensor(1);
        f.addInput(in);
        TensorView* out = set(in);
        f.addOutput(out);
        for (TensorView* tv : {in, out}) {
          tv->setDeviceMesh(everywhere ? DeviceMesh::createForNumDevices(d) : DeviceMesh{0});
        }
        EXPECT_EQ(f.allTvs().size(), 2U);
      };
      return Port{build, {random({128})}, kNoSteps};
    });
  }
}

TEST_F(PortsOfTheTutorial, TwoStages) {
  const auto build = [](Fusion& f) {
    TensorView* in = makeContigConcreteTensor({128});
    f.addInput(in);
    TensorView* doubled = add(in, in);
    TensorView* there = set(doubled);
    TensorView* out = mul(there, there);
    f.addOutput(out);
    in->setDeviceMesh({0});
    doubled->setDeviceMesh({0});
    there->setDeviceMesh({1});
    out->setDeviceMesh({1});
  };
  runPortOn(2, {build, {random({128})}, {{"transfer"}}, [](const auto&, const std::vector<Tensor>& out) {
                  EXPECT_TRUE(out[0].numel() == 0 || out[0].numel() == 128);
                }});
}

TEST_F(PortsOfTheTutorial, ShardingAndResharding) {
  const DeviceMesh all{0, 1, 2, 3};
  const DeviceMesh one{0};
  struct Row {
    DeviceMesh from, to;
    bool cutsIn, cutsOut;
    std::optional<std::vector<std::string>> kinds;
  };
  const Row rows[] = {{all, all, true, true, kNoSteps},
                      {all, all, true, false, {{"all-gather"}}},
                      {all, one, true, false, {{"transfer"}}},
                      {one, all, false, true, {{"transfer"}}}};
  for (const Row& row : rows) {
    const auto build = [&](Fusion& f) {
      TensorView* in = makeContigTensor(2);
      f.addInput(in);
      TensorView* out = set(in);
      f.addOutput(out);
      in->setDeviceMesh(row.from);
      out->setDeviceMesh(row.to);
      in->axis(0)->parallelize(row.cutsIn ? ParallelType::DIDx : ParallelType::Serial);
      out->axis(0)->parallelize(row.cutsOut ? ParallelType::DIDx : ParallelType::Serial);
    };
    runPortOn(4, {build, {random({4, 128})}, row.kinds});
  }
}

}  // namespace
}  // namespace meshfuse
