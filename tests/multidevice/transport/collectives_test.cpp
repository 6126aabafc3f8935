// Every collective, type, operation, odd sizes and teams against the plain reference; on any transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/check_collectives.h"

namespace meshfuse {
namespace {

struct Case {
  Team team;
  DataType type;
  ReduceOp op;
  int64_t count;
  BufferPlace place;
  uint64_t seed;
};

std::vector<Bytes> inputsOf(const Case& c, int64_t count) {
  std::vector<Bytes> inputs;
  for (int r : c.team.ranks) {
    inputs.push_back(testData(c.type, count, r, c.seed));
  }
  return inputs;
}

void expectEqual(const CallBuffer& out, const Bytes& expected, const Case& c, std::string_view what) {
  const int64_t at = firstDifference(out.content(), expected, c.type);
  EXPECT_EQ(at, -1) << what << " of " << c.count << " " << name(c.type) << " " << name(c.op) << ", "
                    << c.team.ranks.size() << " ranks";
}

// Runs all collectives on one case and compares; called by the members of the team.
void checkCase(Communicator& comm, const Case& c) {
  const int64_t n = std::ssize(c.team.ranks);
  const int64_t me = std::find(c.team.ranks.begin(), c.team.ranks.end(), comm.rank()) - c.team.ranks.begin();
  const std::vector<Bytes> small = inputsOf(c, c.count);
  const std::vector<Bytes> large = inputsOf(c, c.count * n);
  const Bytes blank(small[0].size());
  const Bytes blankLarge(large[0].size());
  const auto mine = static_cast<size_t>(me);

  CallBuffer in(comm, c.place, small[mine]);
  CallBuffer inLarge(comm, c.place, large[mine]);
  CallBuffer out(comm, c.place, blank);
  CallBuffer outLarge(comm, c.place, blankLarge);
  const Bytes sum = referenceReduce(small, c.type, c.op);
  comm.allReduce(c.team, in.data(), out.data(), c.count, c.type, c.op);
  expectEqual(out, sum, c, "all-reduce");
  comm.reduceScatter(c.team, inLarge.data(), out.data(), c.count, c.type, c.op);
  expectEqual(out, elements(referenceReduce(large, c.type, c.op), c.type, me * c.count, c.count), c, "reduce-scatter");
  comm.allGather(c.team, in.data(), outLarge.data(), c.count, c.type);
  expectEqual(outLarge, concatenated(small), c, "all-gather");
  comm.allToAll(c.team, inLarge.data(), outLarge.data(), c.count, c.type);
  std::vector<Bytes> blocks;
  for (const Bytes& l : large) {
    blocks.push_back(elements(l, c.type, me * c.count, c.count));
  }
  expectEqual(outLarge, concatenated(blocks), c, "all-to-all");
  expectEqual(in, small[mine], c, "the input");
  const int root = static_cast<int>(c.seed % static_cast<uint64_t>(n));
  comm.broadcast(c.team, in.data(), c.count, c.type, root);
  expectEqual(in, small[root], c, "broadcast");
  CallBuffer both(comm, c.place, small[mine]);
  comm.allReduce(c.team, both.data(), both.data(), c.count, c.type, c.op);
  expectEqual(both, sum, c, "all-reduce in place");
  EXPECT_EQ(checkRootedCollectives(comm, c.team, c.type, c.op, c.count, c.seed, c.place), "");
}

bool holds(const Team& team, int rank) {
  return std::find(team.ranks.begin(), team.ranks.end(), rank) != team.ranks.end();
}

Team reversed(Team team) {
  std::reverse(team.ranks.begin(), team.ranks.end());
  return team;
}

class CollectivesTest : public MultiDeviceTest {};

TEST_F(CollectivesTest, EveryTypeAndOperation) {
  runOnRanks([](Communicator& comm) {
    uint64_t seed = 0;
    for (const DataTypeInfo& type : kDataTypes) {
      for (ReduceOp op : kReduceOps) {
        for (int64_t count : {1, 13, 300}) {
          for (BufferPlace place : {BufferPlace::Shared, BufferPlace::Ordinary}) {
            checkCase(comm, {comm.world(), type.type, op, count, place, ++seed});
          }
        }
      }
    }
  });
}

TEST_F(CollectivesTest, EverySizeAndPlace) {
  runOnRanks([](Communicator& comm) {
    uint64_t seed = 100;
    for (int64_t count : {0, 1, 2, 3, 31, 1023, 1024, 2047, 2049, 5000, 8191, 30000, 70001, 262145}) {
      for (BufferPlace place : {BufferPlace::Shared, BufferPlace::Ordinary, BufferPlace::Mixed}) {
        checkCase(comm, {comm.world(), DataType::Float, ReduceOp::Sum, count, place, ++seed});
      }
      checkCase(comm, {comm.world(), DataType::BFloat16, ReduceOp::Sum, count, BufferPlace::Mixed, ++seed});
    }
    checkCase(comm, {comm.world(), DataType::Double, ReduceOp::Max, 400001, BufferPlace::Ordinary, ++seed});
  });
}

TEST_F(CollectivesTest, TeamsOfSomeRanksInAnyOrder) {
  runOnRanks([](Communicator& comm) {
    std::vector<Team> teams = {comm.world(), reversed(comm.world()), {{0}}, {{1}}, {{0, 1}}, {{1, 0}}};
    if (comm.size() >= 4) {
      teams.insert(teams.end(), {{{2, 3}}, {{0, 2}}, {{3, 1}}, {{3, 0, 2}}, {{1, 2, 3}}, {{2, 0, 3, 1}}});
    }
    uint64_t seed = 1000;
    for (int round = 0; round < 3; ++round) {
      for (const Team& team : teams) {
        for (int64_t count : {5, 3001, 40000}) {
          const BufferPlace place = static_cast<BufferPlace>(++seed % 3);
          if (holds(team, comm.rank())) {
            checkCase(comm, {team, DataType::Float, ReduceOp::Sum, count, place, seed});
          }
        }
      }
    }
  });
}

// Teams share members, calls differ in size, and no team waits for ranks outside it.
TEST_F(CollectivesTest, RandomSequencesOverRandomTeams) {
  runOnRanks([](Communicator& comm) {
    uint64_t state = 7;
    for (int i = 0; i < 400; ++i) {
      state = hashCombine(state, static_cast<uint64_t>(i));
      Team team;
      for (int r = 0; r < comm.size(); ++r) {
        if ((state >> r & 1) != 0) {
          team.ranks.push_back(r);
        }
      }
      std::rotate(team.ranks.begin(), team.ranks.begin() + (team.ranks.empty() ? 0 : (state >> 8) % team.ranks.size()),
                  team.ranks.end());
      const int64_t count = static_cast<int64_t>((state >> 16) % ((state >> 40) % 4 == 0 ? 50000 : 900));
      if (holds(team, comm.rank())) {
        checkCase(comm, {team, (state >> 50) % 2 == 0 ? DataType::Int32 : DataType::Half, ReduceOp::Sum, count,
                         static_cast<BufferPlace>((state >> 52) % 3), state});
      }
    }
  });
}

TEST_F(CollectivesTest, TransfersInRings) {
  using Direction = Communicator::Transfer::Direction;
  runOnRanks([](Communicator& comm) {
    for (int64_t count : {0, 1, 1000, 40000, 700001}) {
      for (BufferPlace place : {BufferPlace::Shared, BufferPlace::Ordinary, BufferPlace::Mixed}) {
        const int n = comm.size();
        const int next = (comm.rank() + 1) % n;
        const int previous = (comm.rank() + n - 1) % n;
        CallBuffer out(comm, place, testData(DataType::Int32, count, comm.rank(), 5));
        CallBuffer in(comm, place, Bytes(out.content().size()));
        CallBuffer own(comm, place, Bytes(out.content().size()));
        const auto bytes = count * dataTypeSize(DataType::Int32);
        // The receive stands last: all are posted at once.
        const Communicator::Transfer group[] = {{Direction::Send, next, out.data(), bytes},
                                                {Direction::Send, comm.rank(), out.data(), bytes},
                                                {Direction::Recv, comm.rank(), own.data(), bytes},
                                                {Direction::Recv, previous, in.data(), bytes}};
        comm.transfer(group);
        EXPECT_EQ(in.content(), testData(DataType::Int32, count, previous, 5));
        EXPECT_EQ(own.content(), out.content());
      }
    }
  });
}

TEST_F(CollectivesTest, SeveralMessagesToOnePeerKeepTheirOrder) {
  using Direction = Communicator::Transfer::Direction;
  runOnRanks([](Communicator& comm) {
    // Ragged all-to-all: rank r sends r + s + 1 numbers to rank s, in two messages.
    std::vector<std::vector<int>> out;
    std::vector<std::vector<int>> in;
    std::vector<Communicator::Transfer> group;
    const int n = comm.size();
    out.reserve(static_cast<size_t>(n) * 2);
    in.reserve(static_cast<size_t>(n) * 2);
    for (int peer = 0; peer < n; ++peer) {
      for (int part = 0; part < 2; ++part) {
        const auto count = static_cast<size_t>((comm.rank() + peer + 1) * (part == 0 ? 1 : 3000));
        out.emplace_back(count, comm.rank() * 100 + peer * 10 + part);
        in.emplace_back(count, -1);
        group.push_back({Direction::Recv, peer, in.back().data(), static_cast<int64_t>(count * sizeof(int))});
        group.push_back({Direction::Send, peer, out.back().data(), static_cast<int64_t>(count * sizeof(int))});
      }
    }
    comm.transfer(group);
    for (int peer = 0; peer < n; ++peer) {
      for (int part = 0; part < 2; ++part) {
        const std::vector<int>& got = in[peer * 2 + part];
        EXPECT_EQ(got, std::vector<int>(got.size(), peer * 100 + comm.rank() * 10 + part));
      }
    }
  });
}

TEST_F(CollectivesTest, ExchangeCarriesMessagesOfAnyLength) {
  runOnRanks([](Communicator& comm) {
    for (size_t length : {0u, 1u, 100u, 70'000u, 3'000'000u}) {
      const std::vector<std::string> all =
          comm.exchange(std::string(length * static_cast<size_t>(comm.rank()), static_cast<char>('a' + comm.rank())));
      ASSERT_EQ(all.size(), comm.size());
      for (int r = 0; r < comm.size(); ++r) {
        EXPECT_EQ(all[r], std::string(length * static_cast<size_t>(r), static_cast<char>('a' + r)));
      }
    }
  });
}

TEST_F(CollectivesTest, CountersCountCallsAndBytesFromOthers) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    comm.resetCounters();
    std::vector<float> in(64 * n, 1.0f);
    std::vector<float> out(in.size());
    comm.allGather(comm.world(), in.data(), out.data(), 64, DataType::Float);
    comm.allToAll(comm.world(), in.data(), out.data(), 64, DataType::Float);
    comm.allToAll(comm.world(), in.data(), out.data(), 32, DataType::Float);
    comm.barrier(comm.world());
    comm.exchange("not counted");
    EXPECT_EQ(comm.counters()[Collective::AllGather].calls, 1);
    EXPECT_EQ(comm.counters()[Collective::AllGather].bytesReceived, (n - 1) * 256);
    EXPECT_EQ(comm.counters()[Collective::AllToAll].calls, 2);
    EXPECT_EQ(comm.counters()[Collective::AllToAll].bytesReceived, (n - 1) * 384);
    EXPECT_EQ(comm.counters()[Collective::Barrier].calls, 1);
    std::vector<float> large(4096 * n, 1.0f);
    comm.allReduce(comm.world(), large.data(), large.data(), 4096 * n, DataType::Float, ReduceOp::Sum);
    EXPECT_EQ(comm.counters()[Collective::AllReduce].bytesReceived, 2 * (n - 1) * 4096 * 4);
    comm.gather(comm.world(), in.data(), out.data(), 64, DataType::Float, 1);
    comm.scatter(comm.world(), in.data(), out.data(), 64, DataType::Float, 1);
    comm.reduce(comm.world(), in.data(), out.data(), 64, DataType::Float, {.op = ReduceOp::Sum, .root = 1});
    const bool isRoot = comm.rank() == 1;
    EXPECT_EQ(comm.counters()[Collective::Gather].bytesReceived, isRoot ? (n - 1) * 256 : 0);
    EXPECT_EQ(comm.counters()[Collective::Scatter].bytesReceived, isRoot ? 0 : 256);
    EXPECT_EQ(comm.counters()[Collective::Reduce].bytesReceived, isRoot ? (n - 1) * 256 : 0);
    EXPECT_EQ(comm.counters()[Collective::Reduce].calls, 1);
    comm.resetCounters();
    EXPECT_EQ(comm.counters()[Collective::AllGather].calls, 0);
  });
}

}  // namespace
}  // namespace meshfuse
