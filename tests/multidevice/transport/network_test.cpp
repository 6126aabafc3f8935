// The communicator of ranks on several hosts, here among processes of one that are told to exchange messages only.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/processes.h"
#include "multidevice/transport/reference.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

const TransportOptions kNetwork = {.deadline = 10s, .messagesOnly = true};

class NetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
    if (const std::string why = whyNoNetwork(); !why.empty()) {
      GTEST_SKIP() << why;
    }
  }
};

void sum(Communicator& comm, int64_t count) {
  std::vector<float> in(static_cast<size_t>(count), 1.0f);
  std::vector<float> out(in.size());
  comm.allReduce(comm.world(), in.data(), out.data(), count, DataType::Float, ReduceOp::Sum);
}

std::string callUntilFailure(Communicator& comm) {
  try {
    for (int64_t i = 0;; ++i) {
      comm.setStep(i, "the test's sum");
      sum(comm, i % 3 == 0 ? 10 : 40'000);
    }
  } catch (const DeviceError& e) {
    return e.what();
  }
}

void expectSay(const std::vector<ProcessOutcome>& outcomes, const std::vector<int>& ranks,
               const std::vector<std::string>& phrases) {
  for (int r : ranks) {
    const ProcessOutcome& o = outcomes.at(static_cast<size_t>(r));
    EXPECT_TRUE(o.ended) << "rank " << r;
    EXPECT_EQ(o.text, outcomes[static_cast<size_t>(ranks[0])].text);
    for (const std::string& phrase : phrases) {
      EXPECT_NE(o.text.find(phrase), std::string::npos)
          << "rank " << r << " says: " << o.text << "\nexpected: " << phrase;
    }
  }
}

std::string wrong(std::string_view what, const Bytes& got, const Bytes& expected, DataType type, int64_t count) {
  const int64_t at = firstDifference(got, expected, type);
  return at < 0 ? std::string() : fmt::format("{} of {}: element {} differs; ", what, count, at);
}

std::string checkAll(Communicator& comm, const Team& team, DataType type, int64_t count, uint64_t seed) {
  const auto n = static_cast<int64_t>(team.ranks.size());
  const int64_t me = std::find(team.ranks.begin(), team.ranks.end(), comm.rank()) - team.ranks.begin();
  if (me == n) {
    return "";
  }
  std::vector<Bytes> small;
  std::vector<Bytes> large;
  std::vector<Bytes> blocks;
  for (int r : team.ranks) {
    small.push_back(testData(type, count, r, seed));
    large.push_back(testData(type, count * n, r, seed));
    blocks.push_back(elements(large.back(), type, me * count, count));
  }
  const Bytes& in = small[static_cast<size_t>(me)];
  const Bytes& inLarge = large[static_cast<size_t>(me)];
  Bytes out(in.size());
  Bytes outLarge(inLarge.size());
  std::string text;
  comm.allReduce(team, in.data(), out.data(), count, type, ReduceOp::Sum);
  text += wrong("all-reduce", out, referenceReduce(small, type, ReduceOp::Sum), type, count);
  comm.reduceScatter(team, inLarge.data(), out.data(), count, type, ReduceOp::Max);
  text += wrong("reduce-scatter", out, elements(referenceReduce(large, type, ReduceOp::Max), type, me * count, count),
                type, count);
  comm.allGather(team, in.data(), outLarge.data(), count, type);
  text += wrong("all-gather", outLarge, concatenated(small), type, count);
  comm.allToAll(team, inLarge.data(), outLarge.data(), count, type);
  text += wrong("all-to-all", outLarge, concatenated(blocks), type, count);
  Bytes both = in;
  comm.allReduce(team, both.data(), both.data(), count, type, ReduceOp::Sum);
  text += wrong("all-reduce in place", both, referenceReduce(small, type, ReduceOp::Sum), type, count);
  both = in;
  const int root = static_cast<int>(seed % static_cast<uint64_t>(n));
  comm.broadcast(team, both.data(), count, type, root);
  return text + wrong("broadcast", both, small[static_cast<size_t>(root)], type, count);
}

TEST_F(NetworkTest, CollectivesGiveTheSameBitsAsOnOneHost) {
  auto outcomes = runProcesses(
      3,
      [](Communicator& comm) {
        std::string text(comm.transport());
        const Team teams[] = {comm.world(), {{2, 0}}, {{1, 2}}, {{0}}};
        uint64_t seed = 1;
        for (const Team& team : teams) {
          for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Int, DataType::Bool}) {
            for (int64_t count : {0, 1, 77, 1024, 1025, 5000, 70'001}) {
              text += checkAll(comm, team, type, count, ++seed);
            }
          }
        }
        return text;
      },
      kNetwork, 40s);
  expectSay(outcomes, {0, 1, 2}, {"network"});
  EXPECT_EQ(outcomes[0].text, "network");
}

TEST_F(NetworkTest, TransfersAndMessages) {
  auto outcomes = runProcesses(
      3,
      [](Communicator& comm) -> std::string {
        using Direction = Communicator::Transfer::Direction;
        for (int64_t bytes : {0, 5, 5000, 300'000}) {
          Bytes out(static_cast<size_t>(bytes), std::byte(comm.rank()));
          Bytes in(out.size(), std::byte{99});
          const Communicator::Transfer group[] = {{Direction::Send, (comm.rank() + 1) % 3, out.data(), bytes},
                                                  {Direction::Recv, (comm.rank() + 2) % 3, in.data(), bytes}};
          comm.transfer(group);
          if (in != Bytes(in.size(), std::byte((comm.rank() + 2) % 3))) {
            return fmt::format("{} bytes arrived changed", bytes);
          }
        }
        const std::vector<std::string> all = comm.exchange(std::string(static_cast<size_t>(comm.rank()) * 10'000, 'x'));
        return all[0].empty() && all[1].size() == 10'000 && all[2] == std::string(20'000, 'x') ? "done"
                                                                                               : "messages differ";
      },
      kNetwork);
  expectSay(outcomes, {0, 1, 2}, {"done"});
}

TEST_F(NetworkTest, AKilledRankIsNamedByAllOthers) {
  for (int killed : {0, 1}) {
    auto outcomes = runProcesses(
        3,
        [&](Communicator& comm) {
          if (comm.rank() == killed) {
            std::thread([] {
              std::this_thread::sleep_for(50ms);
              kill(getpid(), SIGKILL);
            }).detach();
          }
          return callUntilFailure(comm);
        },
        kNetwork);
    expectSay(outcomes, {1 - killed, 2}, {fmt::format("[rank {}/3]", killed), "its process ended"});
    EXPECT_LT(outcomes[2].after, kNetwork.deadline) << "not found before the deadline";
  }
}

TEST_F(NetworkTest, DisagreementStuckAndLeavingRanksAreErrors) {
  auto counts = runProcesses(
      3,
      [](Communicator& comm) -> std::string {
        try {
          sum(comm, comm.rank() == 1 ? 65 : 64);
        } catch (const DeviceError& e) {
          return e.what();
        }
        return callUntilFailure(comm);
      },
      kNetwork);
  expectSay(counts, {0, 1, 2}, {"the counts differ", "64", "65"});
  const SharedCounters failed(1);
  auto stuck = runProcesses(2,
                            [&](Communicator& comm) {
                              if (comm.rank() == 1) {
                                failed.await(0, 1);
                              }
                              std::string text = callUntilFailure(comm);
                              failed.add(0);
                              return text;
                            },
                            {.deadline = 1500ms, .messagesOnly = true});
  expectSay(stuck, {0, 1}, {"deadline of 1500 ms expired", "[rank 0/2]", "waits for rank 1"});
  auto busy = runProcesses(2,
                           [](Communicator& comm) -> std::string {
                             if (comm.rank() == 1) {
                               comm.setBusy(true);
                               std::this_thread::sleep_for(2500ms);
                               comm.setBusy(false);
                             }
                             sum(comm, 10);
                             return "done";
                           },
                           {.deadline = 1000ms, .messagesOnly = true});
  expectSay(busy, {0, 1}, {"done"});
  auto thrown = runProcesses(
      2,
      [](Communicator& comm) {
        check(comm.rank() != 1, "[test] had enough");
        return callUntilFailure(comm);
      },
      kNetwork);
  expectSay(thrown, {0}, {"[rank 1/2]", "left by an exception"});
}

}  // namespace
}  // namespace meshfuse
