// What the host transport does when processes die, stop, leave, throw, come late or disagree. Ranks are child processes.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/host/socket.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

class HostTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
  }
};

void receive(Communicator& comm, int peer) {
  std::array<float, 4> data{};
  const Communicator::Transfer message{Communicator::Transfer::Direction::Recv, peer, data.data(), sizeof(data)};
  comm.transfer({&message, 1});
}

TEST_F(HostTest, AKilledRankIsNamedByAllOthers) {
  auto outcomes = runProcesses(3,
                               [](Communicator& comm) {
                                 return callUntilFailure(comm, [&] {
                                   if (comm.rank() == 1) {
                                     killSoon();
                                   }
                                 });
                               },
                               {.deadline = kFailureDeadline});
  expectSay(outcomes, {0, 2},
            {"[rank 1/3]", "process", "ended", "at step", "the test's sum", "all-reduce(sum)", "noticed by [rank"});
}

TEST_F(HostTest, AStuckRankIsNamedAtTheDeadline) {
  const SharedCounters failed(1);
  auto outcomes = runProcesses(2,
                               [&](Communicator& comm) {
                                 if (comm.rank() == 1) {
                                   comm.setStep(4, "a long thought");
                                   failed.await(0, 1);
                                 }
                                 std::string text = callUntilFailure(comm);
                                 failed.add(0);
                                 return text;
                               },
                               {.deadline = 4s});
  expectSay(outcomes, {0, 1},
            {"deadline of 4000 ms expired", "[rank 1/2] at step 4 (a long thought) outside any call, alive",
             "[rank 0/2]", "in all-reduce"});
}

// Rank 0 is the first to have waited long enough, for rank 1, which waits for rank 2: in a call, or for a message. The three cases run
// side by side.
TEST_F(HostTest, WhoIsWaitedForInTheEndIsNamed) {
  struct Case {
    bool inMessages;
    bool isStopped;
    const SharedCounters counters{2};  // ranks about to wait, and ranks that got the error
  };
  const Case cases[] = {{false, false}, {true, false}, {true, true}};
  std::vector<RankProcesses> running;
  for (const Case& c : cases) {
    running.emplace_back(3, [&](int rank) -> std::string {
      const std::unique_ptr<Communicator> comm = openWorld({.deadline = kSilenceDeadline});
      comm->setStep(rank, "a chain");
      if (rank == 1) {
        c.counters.await(0, 1);
        std::this_thread::sleep_for(kSilenceDeadline / 2);
      } else if (rank == 2 && c.isStopped) {
        kill(getpid(), SIGSTOP);
      } else if (rank == 2) {
        c.counters.await(1, 1);
      }
      const int peer = rank == 2 ? 1 : rank + 1;
      try {
        c.counters.add(0);
        if (c.inMessages) {
          receive(*comm, peer);
        } else {
          comm->barrier({{std::min(peer, rank), std::max(peer, rank)}});
        }
      } catch (const DeviceError& e) {
        c.counters.add(1);
        return e.what();
      }
      return "no error";
    });
  }
  for (size_t i = 0; i < running.size(); ++i) {
    const Case& c = cases[i];
    SCOPED_TRACE(fmt::format("{}, {}", c.isStopped ? "stopped" : "stuck", c.inMessages ? "messages" : "calls"));
    expectSay(
        running[i].await(c.isStopped ? std::vector<int64_t>{2} : std::vector<int64_t>()),
        c.isStopped ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0, 1, 2},
        {fmt::format("deadline of {} ms expired: [rank 0/3]", kSilenceDeadline.count()),
         "waits for [rank 1/3] at step 1 (a chain)", "which waits for [rank 2/3] at step 2 (a chain) outside any call",
         c.isStopped ? "without a heartbeat" : "alive"});
  }
}

TEST_F(HostTest, ABusyRankIsWaitedForAlsoByThoseWhoWaitForTheWaiting) {
  auto outcomes = runProcesses(3,
                               [](Communicator& comm) -> std::string {
                                 if (comm.rank() == 0) {
                                   comm.setBusy(true);
                                   std::this_thread::sleep_for(5s);
                                   comm.setBusy(false);
                                 }
                                 if (comm.rank() != 2) {
                                   callAllReduce(comm, Team{{0, 1}}, 10);
                                 }
                                 if (comm.rank() != 0) {
                                   callAllReduce(comm, Team{{1, 2}}, 10);
                                 }
                                 return "done";
                               },
                               {.deadline = 3s});
  expectSay(outcomes, {0, 1, 2}, {"done"});
}

TEST_F(HostTest, ARankLeftByAnExceptionFailsTheOthers) {
  auto outcomes = runProcesses(3,
                               [](Communicator& comm) {
                                 comm.barrier(comm.world());
                                 check(comm.rank() != 2, "[test] rank 2 had enough");
                                 return callUntilFailure(comm);
                               },
                               {.deadline = kFailureDeadline});
  expectSay(outcomes, {0, 1}, {"[rank 2/3]", "closed its communicator because of an exception"});
  expectSay(outcomes, {2}, {"had enough"});
}

TEST_F(HostTest, AnAbortReachesTheOthersWithItsReason) {
  auto outcomes = runProcesses(3,
                               [](Communicator& comm) {
                                 if (comm.rank() == 1) {
                                   std::this_thread::sleep_for(20ms);
                                   comm.abort("out of memory");
                                 }
                                 return callUntilFailure(comm);
                               },
                               {.deadline = kFailureDeadline});
  expectSay(outcomes, {0, 1, 2}, {"[rank 1/3]", "aborted: out of memory"});
}

TEST_F(HostTest, ARankThatLeftInGoodOrderIsNamed) {
  auto outcomes = runProcesses(
      2, [](Communicator& comm) { return comm.rank() == 1 ? std::string("left") : callUntilFailure(comm); },
      {.deadline = kFailureDeadline});
  expectSay(outcomes, {0}, {"[rank 1/2]", "has closed its communicator"});
}

// A rank may leave while others still talk to each other, and while they still read what it published last.
TEST_F(HostTest, LeavingDisturbsNobodyElse) {
  auto outcomes = runProcesses(3,
                               [](Communicator& comm) -> std::string {
                                 callAllReduce(comm, comm.world(), 10);
                                 for (int i = 0; comm.rank() != 0 && i < 50; ++i) {
                                   std::this_thread::sleep_for(1ms);
                                   callAllReduce(comm, Team{{1, 2}}, 1000 * i);
                                 }
                                 return "done";
                               },
                               {.deadline = kFailureDeadline});
  expectSay(outcomes, {0, 1, 2}, {"done"});
}

TEST_F(HostTest, DisagreementIsAnErrorOnAllRanks) {
  auto run = [](const std::function<void(Communicator&)>& body) {
    return runProcesses(3,
                        [&](Communicator& comm) -> std::string {
                          try {
                            body(comm);
                            return callUntilFailure(comm);
                          } catch (const DeviceError& e) {
                            return e.what();
                          }
                        },
                        {.deadline = kFailureDeadline});
  };
  expectSay(run([](Communicator& comm) { callAllReduce(comm, comm.world(), comm.rank() == 1 ? 65 : 64); }), {0, 1, 2},
            {"the counts differ", "64", "65"});
  expectSay(run([](Communicator& comm) { callAllReduce(comm, comm.world(), comm.rank() == 1 ? 65 : 64'000); }),
            {0, 1, 2}, {"the counts differ", "64000", "65"});
  expectSay(run([](Communicator& comm) {
              callAllReduce(comm, comm.world(), 8, DataType::Float, comm.rank() == 0 ? ReduceOp::Max : ReduceOp::Min);
            }),
            {0, 1, 2}, {"the operations differ", "max", "min"});
  expectSay(run([](Communicator& comm) {
              comm.rank() == 0 ? comm.barrier(comm.world()) : callAllReduce(comm, comm.world(), 8);
            }),
            {0, 1, 2}, {"the calls differ", "barrier", "all-reduce(sum) of 8 Float"});
  expectSay(run([](Communicator& comm) {
              comm.rank() == 0 ? callAllReduce(comm, Team{{0, 1}}, 8) : callAllReduce(comm, comm.world(), 8);
            }),
            {0, 1, 2}, {"the teams differ", "{0, 1}", "{0, 1, 2}"});
  expectSay(run([](Communicator& comm) {
              comm.rank() == 0 ? static_cast<void>(comm.exchange("hash")) : callAllReduce(comm, comm.world(), 8);
            }),
            {0, 1, 2}, {"the calls differ", "exchange"});
}

TEST_F(HostTest, DifferentOrdersOfTeamsAreFoundBeforeTheDeadline) {
  auto outcomes = runProcesses(3,
                               [](Communicator& comm) -> std::string {
                                 const Team teams[] = {{{0, 1}}, {{1, 2}}, {{2, 0}}};
                                 try {
                                   callAllReduce(comm, teams[comm.rank()], 4);
                                   callAllReduce(comm, teams[(comm.rank() + 2) % 3], 4);
                                 } catch (const DeviceError& e) {
                                   return e.what();
                                 }
                                 return "";
                               },
                               {.deadline = kFailureDeadline});
  expectSay(outcomes, {0, 1, 2}, {"[host] deadlock: ", "waits for rank 0", "waits for rank 1", "waits for rank 2"});
}

TEST_F(HostTest, DeadlockOfMessagesIsFoundBeforeTheDeadline) {
  auto outcomes = runProcesses(3,
                               [](Communicator& comm) -> std::string {
                                 try {
                                   receive(comm, (comm.rank() + 1) % 3);
                                 } catch (const DeviceError& e) {
                                   return e.what();
                                 }
                                 return "";
                               },
                               {.deadline = kFailureDeadline});
  expectSay(outcomes, {0, 1, 2}, {"[host] deadlock: ", "waits for rank 0", "waits for rank 1", "waits for rank 2"});
}

TEST_F(HostTest, TransfersThatDoNotMatchAreErrors) {
  auto outcomes = runProcesses(2,
                               [](Communicator& comm) -> std::string {
                                 char buffer[64] = {};
                                 const bool sends = comm.rank() == 0;
                                 const Communicator::Transfer t{sends ? Communicator::Transfer::Direction::Send
                                                                      : Communicator::Transfer::Direction::Recv,
                                                                1 - comm.rank(), buffer, sends ? 64 : 60};
                                 try {
                                   comm.transfer({&t, 1});
                                   comm.barrier(comm.world());
                                 } catch (const DeviceError& e) {
                                   return e.what();
                                 }
                                 return "";
                               },
                               {.deadline = kFailureDeadline});
  expectSay(outcomes, {0, 1}, {"rank 0 sends 64 bytes, rank 1 receives 60"});
}

// Rank 2 opens its lane only when it has heard from rank 1, and rank 1 waits for rank 0. Rank 0 names rank 2 first.
TEST_F(HostTest, AMessageDoesNotWaitForTheLaneOfAnotherRank) {
  auto outcomes = runProcesses(
      3,
      [](Communicator& comm) -> std::string {
        using Transfer = Communicator::Transfer;
        using enum Transfer::Direction;
        float in[4] = {};
        float out[4] = {};
        const auto lane = [&] { return comm.lane(comm.world()); };
        const Transfer group[] = {{Recv, 2, in, sizeof(in)}, {Send, 1, out, sizeof(out)}};
        const Transfer fromPrevious[] = {{Recv, (comm.rank() + 2) % 3, in, sizeof(in)}};
        const Transfer toNext[] = {{Send, (comm.rank() + 1) % 3, out, sizeof(out)}};
        if (comm.rank() == 0) {
          lane()->transfer(group);
        } else if (comm.rank() == 1) {
          lane()->transfer(fromPrevious);
          comm.transfer(toNext);
        } else {
          comm.transfer(fromPrevious);
          lane()->transfer(toNext);
        }
        return "done";
      },
      {.deadline = kFailureDeadline}, kFailureDeadline);
  expectSay(outcomes, {0, 1, 2}, {"done"});
}

// Rank 1 opens the lane only when rank 0 waits for its message there.
TEST_F(HostTest, DeadlockInALaneThatIsOpenedLateIsFoundBeforeTheDeadline) {
  const SharedCounters underWay(1);
  auto outcomes = runProcesses(
      2,
      [&](Communicator& comm) -> std::string {
        if (comm.rank() == 1) {
          underWay.await(0, 1);
          std::this_thread::sleep_for(50ms);
        }
        Communicator* const lane = comm.lane(comm.world());
        underWay.add(0);
        try {
          receive(*lane, 1 - comm.rank());
        } catch (const DeviceError& e) {
          return e.what();
        }
        return "no error";
      },
      {.deadline = kFailureDeadline}, kFailureDeadline);
  expectSay(outcomes, {0, 1}, {"[host] deadlock: ", "waits for rank 0", "waits for rank 1"});
}

// Another user's processes, and such of this user that are no ranks, at the place where the ranks meet.
TEST_F(HostTest, StrangersOfTheHostTakeNoPlaceAndHoldUpNobody) {
  const SharedCounters counters(4);
  RankProcesses processes(3, [&](int rank) -> std::string {
    setenv("WORLD_SIZE", "2", 1);
    if (rank < 2) {
      counters.await(0, 1);
      if (rank == 1) {  // rank 0 listens, and strangers come first
        counters.await(2, 1);
        counters.await(3, geteuid() == 0 ? 1 : 0);
      }
      const std::unique_ptr<Communicator> world = openWorld({.deadline = kFailureDeadline});
      callAllReduce(*world, world->world(), 70'000);
      counters.add(1);
      counters.await(1, 2);
      return std::string(world->transport());
    }
    const std::string name = fmt::format("meshfuse.world.{}.{}", geteuid(), std::getenv("MASTER_PORT"));
    const bool isOther = geteuid() == 0 && fork() == 0;
    if (isOther && setuid(65534) != 0) {
      _exit(1);
    }
    std::vector<Socket> silent;
    for (int64_t i = 0; !counters.reached(1, 2); ++i) {
      Socket socket = Socket::createLocal();
      const std::string message(static_cast<size_t>(i % 3) * 50, '\x01');
      if (socket.connectLocal(name)) {
        counters.add(isOther ? 3 : 2);
        static_cast<void>(socket.send(message.data(), message.size(), WaitingClock::now() + 1s));
        silent.push_back(std::move(socket));
        silent.erase(silent.begin(), silent.begin() + (std::ssize(silent) > 100 ? 50 : 0));
      }
      counters.add(0);
      usleep(200);
    }
    if (isOther) {
      _exit(0);
    }
    return "tried";
  });
  processes.await();
  EXPECT_EQ(processes.outcomes()[0].text, "host");
  EXPECT_EQ(processes.outcomes()[1].text, "host");
}

TEST_F(HostTest, BadSettingsOfTheBootstrapAreNamed) {
  struct Setting {
    std::vector<std::pair<const char*, const char*>> variables;
    const char* phrase;
  };
  const std::string open = fmt::format("/tmp/meshfuse_test_secret.{}", getpid());
  std::ofstream(open) << "a secret that others can read";
  chmod(open.c_str(), 0644);
  const Setting settings[] = {
      {{{"MASTER_PORT", "70000"}}, "MASTER_PORT is \"70000\", expected a number from 1 to 65535"},
      {{{"MASTER_PORT", "0"}}, "MASTER_PORT is \"0\", expected a number from 1 to 65535"},
      {{{"MASTER_PORT", "99999999999999999999"}}, "MASTER_PORT is \"99999999999999999999\", expected a number from 1"},
      {{{"RANK", "4294967296"}}, "RANK is \"4294967296\", expected a number from 0 to"},
      {{{"WORLD_SIZE", "4000000000"}}, "WORLD_SIZE is \"4000000000\", expected a number from 1 to"},
      {{{"MASTER_ADDR", "10.0.0.1"}}, "MASTER_ADDR is 10.0.0.1: ranks of several hosts need a secret"},
      {{{"MASTER_ADDR", "10.0.0.1"}, {"MESHFUSE_SECRET", "short"}}, "has 5 characters, expected 16 to 4096"},
      {{{"MASTER_ADDR", "10.0.0.1"}, {"MESHFUSE_SECRET_FILE", open.c_str()}}, "that nobody else may read"},
      {{{"MASTER_ADDR", "10.0.0.1"}, {"MESHFUSE_SECRET_FILE", "/dev/zero"}}, "that nobody else may read"},
      {{{"MASTER_ADDR", "10.0.0.1"}, {"MESHFUSE_SECRET_FILE", "/nowhere"}}, "cannot be read: No such file"}};
  for (const Setting& setting : settings) {
    RankProcesses processes(2, [&](int) -> std::string {
      for (const auto& [name, value] : setting.variables) {
        setenv(name, value, 1);
      }
      try {
        static_cast<void>(openWorld({.deadline = 3s}));
      } catch (const UserError& e) {
        return fmt::format("user error: {}", e.what());
      }
      return "opened";
    });
    expectSay(processes.await(), {0, 1}, {"user error: ", setting.phrase});
  }
  unlink(open.c_str());
}

// As in containers with a common network: each is process 1 of its namespace, and sees no process of the other.
TEST_F(HostTest, ProcessesThatDoNotSeeEachOtherShareMemory) {
  RankProcesses processes(2, [&](int) -> std::string {
    if (unshare(CLONE_NEWPID) != 0) {
      return "no namespace";
    }
    const pid_t first = fork();
    if (first == 0) {
      auto world = openWorld({.deadline = kFailureDeadline});
      callAllReduce(*world, world->world(), 70'000);
      _exit(world->transport() == "host" ? 0 : 1);
    }
    int status = -1;
    return waitpid(first, &status, 0) == first && status == 0 ? "shared" : "not shared";
  });
  const std::vector<ProcessOutcome>& outcomes = processes.await();
  if (outcomes[0].text == "no namespace") {
    GTEST_SKIP() << "the system gives no namespaces of process ids";
  }
  expectSay(outcomes, {0, 1}, {"shared"});
  EXPECT_EQ(outcomes[0].text, "shared");
}

TEST_F(HostTest, ARankThatNeverComesIsAnErrorAtTheDeadline) {
  auto outcomes = runProcesses(2, [](Communicator&) { return std::string("opened"); }, {.deadline = kFailureDeadline});
  expectSay(outcomes, {0, 1}, {"opened"});
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_PORT", "1", 1);
  EXPECT_THROW(static_cast<void>(openWorld({.deadline = 200ms})), DeviceError);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  unsetenv("MASTER_PORT");
}

}  // namespace
}  // namespace meshfuse
