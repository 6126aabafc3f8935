// Teams as meshes make them: those of every set of axes, of meshes side by side, and the memory of what a program communicates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>

#include "meshfuse/meshfuse.h"
#include "multidevice/fixture/first_ranks.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/scenario.h"
#include "multidevice/sharding/shard_tensor.h"

namespace meshfuse {
namespace {

class TeamsTest : public MultiDeviceTest {};

Team teamOf(const DeviceMesh& mesh, int64_t rank, const std::vector<int64_t>& axes) {
  Team team;
  for (int64_t r : mesh.team(rank, axes)) {
    team.ranks.push_back(static_cast<int64_t>(r));
  }
  return team;
}

// Every rank contributes a bit of its own: a sum says who took part.
int64_t membersOf(Communicator& comm, const Team& team, int64_t count) {
  std::vector<int64_t> in(count, int64_t{1} << comm.rank());
  std::vector<int64_t> out(in.size());
  comm.allReduce(team, in.data(), out.data(), count, DataType::Int, ReduceOp::Sum);
  EXPECT_EQ(std::count(out.begin(), out.end(), out[0]), count);
  return out[0];
}

TEST_F(TeamsTest, OfEverySetOfAxes) {
  runOnRanks(4, [](Communicator& comm) {
    // Ranks stand in the mesh in another order than they are numbered.
    const DeviceMesh meshes[] = {DeviceMesh({2, 0, 3, 1}, {2, 2}), DeviceMesh({0, 1, 2, 3}, {1, 4}),
                                 DeviceMesh({3, 2, 1, 0}, {2, 1, 2})};
    for (const DeviceMesh& mesh : meshes) {
      const std::vector<int64_t> own = mesh.coordinates(comm.rank());
      for (int64_t set = 0; set < 1 << mesh.numAxes(); ++set) {
        std::vector<int64_t> axes;
        for (int64_t a = 0; a < mesh.numAxes(); ++a) {
          if ((set >> a & 1) != 0) {
            axes.push_back(a);
          }
        }
        int64_t expected = 0;  // who differs from this rank along these axes only
        for (int64_t r : mesh.devices()) {
          const std::vector<int64_t> theirs = mesh.coordinates(r);
          bool member = true;
          for (int64_t a = 0; a < mesh.numAxes(); ++a) {
            const bool along = (set >> a & 1) != 0;
            member = member && (along || theirs[a] == own[a]);
          }
          expected |= member ? int64_t{1} << r : 0;
        }
        for (int64_t count : {1, 700, 40'000}) {
          EXPECT_EQ(membersOf(comm, teamOf(mesh, comm.rank(), axes), count), expected);
        }
      }
    }
  });
}

// Two stages of a pipeline: each makes calls of its own among its ranks, how many is nobody else's business, and hands over what it
// has.
TEST_F(TeamsTest, OfMeshesSideBySide) {
  runOnRanks(4, [](Communicator& comm) {
    using Direction = Communicator::Transfer::Direction;
    const Team stages[] = {{{0, 2}}, {{1, 3}}};
    const int64_t stage = comm.rank() % 2;
    const int64_t members = stage == 0 ? 0b0101 : 0b1010;
    constexpr int64_t kCount = 9000;
    for (int64_t batch = 0; batch < 20; ++batch) {
      std::vector<int64_t> data(kCount);
      const auto bytes = static_cast<int64_t>(data.size() * sizeof(int64_t));
      const Communicator::Transfer get{Direction::Recv, comm.rank() - 1, data.data(), bytes};
      if (stage == 1) {
        comm.transfer({&get, 1});
        EXPECT_EQ(data, std::vector<int64_t>(kCount, batch * 0b0101));
      }
      for (int64_t call = 0; call < (stage == 0 ? 1 + batch % 3 : 5); ++call) {
        EXPECT_EQ(membersOf(comm, stages[stage], 1 + call * 1000), members);
      }
      if (stage == 0) {
        std::fill(data.begin(), data.end(), membersOf(comm, stages[0], 1) * batch);
        const Communicator::Transfer give{Direction::Send, comm.rank() + 1, data.data(), bytes};
        comm.transfer({&give, 1});
      }
      if (batch % 5 == 0) {
        comm.barrier(comm.world());
      }
    }
  });
}

// Knows what memory came from allocate(), and looks where the buffers of collectives lie.
class Watched final : public FirstRanks {
 public:
  explicit Watched(Communicator& whole) : FirstRanks(whole, whole.size()), whole_(whole) {}

  std::shared_ptr<void> allocate(size_t bytes) override {
    std::shared_ptr<void> block = whole_.allocate(bytes);
    blocks_[static_cast<std::byte*>(block.get())] = bytes;
    return block;
  }
  void run(const CollectiveCall& call) override {
    if (call.record.count > 0) {
      look(call.in, call.operand.total(), call.record.type);
      look(call.out, call.result.total(), call.record.type);
    }
    whole_.run(call);
  }
  std::vector<std::string> exchange(std::string_view message) override { return whole_.exchange(message); }

  int64_t looks() const { return looks_; }

 private:
  void look(const void* buffer, int64_t count, DataType type) {
    ++looks_;
    const auto* at = static_cast<const std::byte*>(buffer);
    auto block = blocks_.upper_bound(const_cast<std::byte*>(at));
    const bool known = block != blocks_.begin() && (--block, true);
    EXPECT_TRUE(known && at + count * dataTypeSize(type) <= block->first + block->second)
        << "a buffer of a collective does not lie in memory of the communicator";
  }

  Communicator& whole_;
  std::map<std::byte*, size_t> blocks_;
  int64_t looks_ = 0;
};

TEST_F(TeamsTest, AProgramCommunicatesInMemoryThatPeersCanRead) {
  runOnRanks(4, [](Communicator& comm) {
    Watched watched(comm);
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
      TensorView* x = input(*fusion, {8, 12}, mesh);
      shardBlock(x, 0, mesh, "x");
      TensorView* moved = set(mul(x, x));  // an all-to-all
      TensorView* total = sum(x, {0});     // an all-reduce
      TensorView* whole = set(exp(x));     // an all-gather
      for (TensorView* tv : {moved, total, whole}) {
        fusion->addOutput(tv);
        tv->setDeviceMesh(mesh);
      }
      shardBlock(moved, 1, mesh, "x");
    }
    const Tensor x = randomTensor({8, 12}, DataType::Float, 1, -2, 2);
    const Argument local(shardTensor(x, fusion->inputs()[0]->asTensor(), comm.rank()));
    FusionExecutorCache cache(std::move(fusion), {.communicator = &watched});
    for (int64_t call = 0; call < 3; ++call) {
      static_cast<void>(cache.runFusionWithInputs({local}));
    }
    EXPECT_EQ(watched.looks(), 3 * 3 * 2);
  });
}

}  // namespace
}  // namespace meshfuse
