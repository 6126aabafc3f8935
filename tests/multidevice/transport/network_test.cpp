// The communicator of ranks on several hosts, here among processes of one that are told to exchange messages only.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/check_collectives.h"
#include "multidevice/transport/processes.h"
#include "multidevice/transport/reference.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

const TransportOptions kNetworkOptions = {.deadline = kFailureDeadline, .messagesOnly = true};

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
              text += checkAllCollectives(comm, team, type, count, ++seed);
            }
          }
        }
        return text;
      },
      kNetworkOptions);
  expectSay(outcomes, {0, 1, 2}, {"network"});
  EXPECT_EQ(outcomes[0].text, "network");
}

TEST_F(NetworkTest, TransfersAndMessages) {
  auto outcomes = runProcesses(
      3,
      [](Communicator& comm) -> std::string {
        using Direction = Communicator::Transfer::Direction;
        for (int64_t bytes : {0, 5, 5000, 300'000}) {
          Bytes out(bytes, std::byte(comm.rank()));
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
      kNetworkOptions);
  expectSay(outcomes, {0, 1, 2}, {"done"});
}

TEST_F(NetworkTest, AKilledRankIsNamedByAllOthers) {
  for (int killed : {0, 1}) {
    auto outcomes = runProcesses(
        3,
        [&](Communicator& comm) {
          return callUntilFailure(comm, [&] {
            if (comm.rank() == killed) {
              killSoon();
            }
          });
        },
        kNetworkOptions);
    const std::vector<std::string> phrases = {fmt::format("[rank {}/3]: its process ended", killed),
                                              "(the test's sum)"};
    if (killed != 0) {
      expectSay(outcomes, {1 - killed, 2}, phrases);
    } else {  // each says where it was itself: without rank 0 nobody decides whose text it is
      expectSay(outcomes, {1}, phrases);
      expectSay(outcomes, {2}, phrases);
    }
  }
}

// Rank 0 waits for rank 1, which waits for a stopped rank, and has waited longest: the stopped one is named all the same.
TEST_F(NetworkTest, AStoppedRankIsNamedByThoseWhoWaitForTheWaiting) {
  const SharedCounters counters(1);
  RankProcesses processes(3, [&](int rank) -> std::string {
    const std::unique_ptr<Communicator> comm = openWorld({.deadline = 6s, .messagesOnly = true});
    counters.add(0);
    counters.await(0, 3);  // nobody is still opening the world
    if (rank == 2) {
      counters.add(0);
      kill(getpid(), SIGSTOP);
    }
    counters.await(0, 4);
    if (rank == 1) {
      std::this_thread::sleep_for(3s);
    }
    try {
      comm->barrier(Team{rank == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1, 2}});
    } catch (const DeviceError& e) {
      return e.what();
    }
    return "no error";
  });
  processes.await({2});
  const std::string& text = processes.outcomes()[0].text;
  EXPECT_NE(text.find("[rank 0/3] in barrier in team {0, 1} waits for [rank 1/3]"), std::string::npos) << text;
  EXPECT_NE(text.find("[rank 2/3] has sent no heartbeat"), std::string::npos) << text;
  EXPECT_EQ(processes.outcomes()[1].text, text);
}

TEST_F(NetworkTest, DisagreementStuckAndLeavingRanksAreErrors) {
  auto counts = runProcesses(
      3,
      [](Communicator& comm) -> std::string {
        try {
          callAllReduce(comm, comm.world(), comm.rank() == 1 ? 65 : 64);
        } catch (const DeviceError& e) {
          return e.what();
        }
        return callUntilFailure(comm);
      },
      kNetworkOptions);
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
                            {.deadline = 4s, .messagesOnly = true});
  expectSay(stuck, {0, 1}, {"deadline of 4000 ms expired", "[rank 0/2]", "waits for [rank 1/2]"});
  auto busy = runProcesses(2,
                           [](Communicator& comm) -> std::string {
                             if (comm.rank() == 1) {
                               comm.setBusy(true);
                               std::this_thread::sleep_for(5s);
                               comm.setBusy(false);
                             }
                             callAllReduce(comm, comm.world(), 10);
                             return "done";
                           },
                           {.deadline = 3s, .messagesOnly = true});
  expectSay(busy, {0, 1}, {"done"});
  auto thrown = runProcesses(
      2,
      [](Communicator& comm) {
        check(comm.rank() != 1, "[test] had enough");
        return callUntilFailure(comm);
      },
      kNetworkOptions);
  expectSay(thrown, {0}, {"[rank 1/2]", "closed its communicator because of an exception"});
}

// A rank may leave long before the others do, rank 0 as well.
TEST_F(NetworkTest, LeavingDisturbsNobodyElse) {
  for (int leaver : {0, 2}) {
    auto outcomes = runProcesses(
        3,
        [&](Communicator& comm) -> std::string {
          callAllReduce(comm, comm.world(), 10);
          for (int i = 0; comm.rank() != leaver && i < 30; ++i) {
            std::this_thread::sleep_for(100ms);
            callAllReduce(comm, Team{{leaver == 0 ? 2 : 0, 1}}, 1000 * i);
          }
          return "done";
        },
        kNetworkOptions);
    expectSay(outcomes, {0, 1, 2}, {"done"});
  }
}

// Rank 0 leaves while rank 1 is busy for as long as rank 0 is there.
TEST_F(NetworkTest, ALeavingRankDoesNotWaitForABusyOne) {
  const SharedCounters counters(2);
  RankProcesses processes(2, [&](int rank) -> std::string {
    std::unique_ptr<Communicator> comm = openWorld(kNetworkOptions);
    if (rank == 1) {
      comm->setBusy(true);
      counters.add(0);
      counters.await(1, 1);
      return "done";
    }
    counters.await(0, 1);
    comm.reset();
    counters.add(1);
    return "done";
  });
  expectSay(processes.await(), {0, 1}, {"done"});
}

}  // namespace
}  // namespace meshfuse
