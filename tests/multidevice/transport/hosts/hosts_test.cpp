// Ranks on two hosts, started by `mpirun` and by hand: collectives, a program, and what becomes of them when a rank or the cable is
// gone. The hosts are namespaces of this machine; without the right to make such, the tests are skipped.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/ranges.h"
#include "host/program.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/scenario.h"
#include "multidevice/transport/check_collectives.h"
#include "multidevice/transport/failure_cases.h"
#include "multidevice/transport/host/socket.h"
#include "multidevice/transport/hosts/namespace_hosts.h"
#include "multidevice/transport/processes.h"
#include "multidevice/transport/reference.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 4;
constexpr int hostOf(int rank) { return rank / 2; }

// What the ranks run, on whatever world they are; on loopback, when the binary is started without a launcher.
class AcrossHosts : public ScenarioTest {
 protected:
  void runOnRanks(const Body& body) {
    ScenarioTest::runOnRanks([&](Communicator& comm) {
      if (std::getenv("MESHFUSE_HOST") != nullptr) {
        EXPECT_EQ(comm.transport(), "network");
        EXPECT_TRUE(comm.sparesProcessor());
      }
      body(comm);
    });
  }
};

TEST_F(AcrossHosts, Collectives) {
  runOnRanks([](Communicator& comm) {
    uint64_t seed = 1;
    for (const Team& team : {comm.world(), Team{{1, 0}}}) {
      for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Int}) {
        for (int64_t count : {0, 1, 77, 1025, 70'001}) {
          EXPECT_EQ(checkAllCollectives(comm, team, type, count, ++seed), "");
        }
      }
    }
  });
}

TEST_F(AcrossHosts, TransfersAndMessages) {
  runOnRanks([](Communicator& comm) {
    using Direction = Communicator::Transfer::Direction;
    const int n = comm.size();
    for (int64_t bytes : {0, 5, 5000, 300'000}) {
      const int previous = (comm.rank() + n - 1) % n;
      Bytes out(bytes, std::byte(comm.rank()));
      Bytes in(out.size(), std::byte{99});
      const Communicator::Transfer group[] = {{Direction::Send, (comm.rank() + 1) % n, out.data(), bytes},
                                              {Direction::Recv, previous, in.data(), bytes}};
      comm.transfer(group);
      EXPECT_EQ(in, Bytes(in.size(), std::byte(previous)));
    }
    const std::vector<std::string> all = comm.exchange(std::string(static_cast<size_t>(comm.rank()) * 10'000, 'x'));
    for (size_t r = 0; r < all.size(); ++r) {
      EXPECT_EQ(all[r], std::string(r * 10'000, 'x'));
    }
  });
}

TEST_F(AcrossHosts, AProgramWithAnAllReduceAndARedistribution) {
  runScenario([](int64_t n) {
    const int64_t rows = 2 * n;
    const int64_t columns = 3 * n;
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = DeviceMesh::create({{"x", n}});
                      TensorView* x = input(f, {rows, columns}, mesh);
                      shardBlock(x, 0, mesh, "x");
                      TensorView* moved = set(mul(x, x));
                      f.addOutput(moved);
                      moved->setDeviceMesh(mesh);
                      shardBlock(moved, 1, mesh, "x");
                      TensorView* total = sum(x, {0});
                      f.addOutput(total);
                      total->setDeviceMesh(mesh);
                    },
                    {randomTensor({rows, columns}, DataType::Float, 1, -2, 2)},
                    {{fmt::format("all-reduce/{}", n), fmt::format("all-to-all/{}", n)},
                     -1,
                     2 * 3 * (n - 1) * 4 + 2 * columns * 4 * (n - 1) / n}};
  });
}

TEST_F(AcrossHosts, AGradientIsAddedUpBesideKernels) {
  runOnRanks([](Communicator& comm) {
    constexpr int64_t kRows = 128, kFeatures = 256;  // 256 KiB: collectives of less do not leave the caller
    const int64_t n = comm.size();
    auto fusion = std::make_unique<Fusion>();
    const FusionGuard guard(fusion.get());
    const DeviceMesh mesh = DeviceMesh::create({{"x", n}});
    TensorView* dy = input(*fusion, {n, kRows, kFeatures}, mesh);
    TensorView* x = input(*fusion, {n, kRows, kFeatures}, mesh);
    TensorView* w = input(*fusion, {kFeatures, kFeatures}, mesh);
    shardBlock(dy, 0, mesh, "x");
    shardBlock(x, 0, mesh, "x");
    TensorView* dw = sum(matmul(transpose(dy, 1, 2), x), {0});
    dw->setDeviceMesh(mesh);
    fusion->addOutput(dw);
    fusion->addOutput(matmul(dy, w));
    std::vector<Argument> whole;
    for (const Val* in : fusion->inputs()) {
      whole.emplace_back(randomTensor(in->asTensor()->constantShape(), DataType::Float, in->id(), -1, 1));
    }
    const std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, whole, {.partials = n});
    const std::vector<Argument> local = shardsOfRank(*fusion, whole, comm);
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    for (int call = 0; call < 20; call++) {
      const std::vector<Tensor> got = cache.runFusionWithInputs(local);
      EXPECT_TRUE(std::ranges::any_of(cache.hostProgram()->steps, &Step::runsBeside));
      for (const int64_t i : indices(got)) {
        const BoundedTensor part = shardOf(expected[i], cache.planned()->outputs()[i]->asTensor(), comm.rank());
        EXPECT_EQ(compare(got[i], part).value_or(""), "");
      }
    }
  });
}

class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
    if (const std::string why = whyNoNetwork(); !why.empty()) {
      GTEST_SKIP() << why;
    }
    std::string whyNot;
    hosts_ = NamespaceHosts::make(whyNot);
    if (hosts_ == nullptr) {
      GTEST_SKIP() << "needs two network namespaces; " << whyNot;
    }
  }

  // In a child: goes to the host of its rank.
  void settle(int rank) const {
    hosts_->enter(hostOf(rank));
    setenv("MASTER_ADDR", NamespaceHosts::address(0).c_str(), 1);
    setenv("MESHFUSE_SECRET", "a secret that the ranks of this test share", 1);
    setenv("MESHFUSE_HOST", NamespaceHosts::name(hostOf(rank)).c_str(), 1);
  }
  static std::vector<std::string> ranksCommand() { return {"/proc/self/exe", "--gtest_filter=AcrossHosts.*"}; }
  // Both ways: every rank of a host got parts of what the ranks of the other have.
  void expectTrafficOnTheCable() const {
    for (int h = 0; h < NamespaceHosts::kHosts; ++h) {
      EXPECT_GT(hosts_->bytesReceived(h), 1 << 20);
    }
  }

  std::unique_ptr<NamespaceHosts> hosts_;
};

TEST_F(HostsTest, StartedByHand) {
  const int log = memfd_create("log", 0);
  RankProcesses processes(kRanks, [&](int rank) -> std::string {
    settle(rank);
    dup2(log, 1);
    dup2(log, 2);
    const std::vector<std::string> command = ranksCommand();
    execl(command[0].c_str(), command[0].c_str(), command[1].c_str(), nullptr);
    return "cannot start itself";
  });
  processes.await();
  std::string text(1 << 20, '\0');
  text.resize(std::max<ssize_t>(0, pread(log, text.data(), text.size(), 0)));
  close(log);
  for (const ProcessOutcome& o : processes.outcomes()) {
    EXPECT_TRUE(o.ended) << text;
  }
  EXPECT_NE(text.find("[  PASSED  ] 4 tests"), std::string::npos) << text;
  expectTrafficOnTheCable();
}

TEST_F(HostsTest, StartedByMpirun) {
  std::string text;
  if (hosts_->run(0, {"mpirun", "--version"}, text) != 0) {
    GTEST_SKIP() << "no mpirun: " << text;
  }
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  const std::string cable = NamespaceHosts::device(0) + "," + NamespaceHosts::device(1);
  text.clear();
  const int code = hosts_->run(0,
                               {"timeout",
                                "120",
                                "mpirun",
                                "--allow-run-as-root",
                                "--oversubscribe",
                                "--mca",
                                "plm_rsh_agent",
                                hosts_->remoteShell(),
                                "--mca",
                                "plm_rsh_no_tree_spawn",
                                "1",
                                "--mca",
                                "oob_tcp_if_include",
                                cable,
                                "-H",
                                fmt::format("{}:2,{}:2", NamespaceHosts::name(0), NamespaceHosts::name(1)),
                                "-n",
                                std::to_string(kRanks),
                                "sh",
                                "-c",
                                "MESHFUSE_HOST=$(hostname) exec \"$0\" \"$@\"",
                                self,
                                ranksCommand()[1],
                                "--gtest_color=no"},
                               text);
  EXPECT_EQ(code, 0) << text;
  EXPECT_NE(text.find("[  PASSED  ] 4 tests"), std::string::npos) << text;
  expectTrafficOnTheCable();
}

// Processes of the other host that connect to rank 0, and to whatever it listens at, before and while the world opens and works.
TEST_F(HostsTest, StrangersTakeNoPlaceAndHoldUpNobody) {
  const SharedCounters counters(3);
  RankProcesses processes(kRanks + 1, [&](int rank) -> std::string {
    settle(std::min(rank, kRanks - 1));
    setenv("WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
    if (rank < kRanks) {
      // Rank 0 listens for the ranks once the stranger has begun; the others come once the stranger has a connection.
      counters.await(rank == 0 ? 0 : 2, 1);
      const std::unique_ptr<Communicator> world = openWorld({.deadline = kFailureDeadline});
      for (int64_t i = 0; i < 200; ++i) {
        callAllReduce(*world, world->world(), 1000);
      }
      counters.add(1);
      counters.await(1, kRanks);
      return std::string(world->transport());
    }
    // The first hello of a rank, as this transport had it once: a number, the rank and the size of the world.
    const uint32_t words[] = {0x6d657369, 1, kRanks, 0xffffffff, 0xffffffff, 0xffffffff};
    std::vector<Socket> silent;
    for (int64_t i = 0; !counters.reached(1, kRanks); ++i) {
      Socket socket = Socket::create();
      if (socket.connect(NamespaceHosts::address(0), std::getenv("MASTER_PORT"), WaitingClock::now() + 1s)) {
        counters.add(2);
        static_cast<void>(socket.send(words, static_cast<size_t>(i % 4) * 8, WaitingClock::now() + 1s));
        silent.push_back(std::move(socket));
        silent.erase(silent.begin(), silent.begin() + (std::ssize(silent) > 100 ? 50 : 0));
      }
      counters.add(0);
      usleep(200);
    }
    return counters.value(2) > 0 ? "connected" : "never connected";
  });
  processes.await();
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(processes.outcomes()[r].text, "network");
  }
  EXPECT_EQ(processes.outcomes()[kRanks].text, "connected");
}

TEST_F(HostsTest, WithoutTheSameSecretThereIsNoWorld) {
  for (const char* kind : {"none", "other"}) {
    RankProcesses processes(2, [&](int rank) -> std::string {
      settle(2 * rank);
      if (rank == 1 && kind == std::string("other")) {
        setenv("MESHFUSE_SECRET", "a secret that another job has", 1);
      } else if (kind == std::string("none")) {
        unsetenv("MESHFUSE_SECRET");
      }
      static_cast<void>(openWorld({.deadline = 3s}));
      return "opened";
    });
    processes.await();
    for (const ProcessOutcome& o : processes.outcomes()) {
      EXPECT_NE(o.text.find("secret"), std::string::npos) << o.text;
    }
  }
}

void halveIfSanitized(std::deque<FailureCase>& cases) {
  if (kSanitized) {
    cases.erase(cases.begin() + std::ssize(cases) / 2, cases.end());
  }
}

TEST_F(HostsTest, RanksThatFailAreNamedAndTheOthersGoOn) {
  std::deque<FailureCase> cases = missedCalls({.messagesOnly = true});
  std::erase_if(cases, [](const FailureCase& c) {
    const bool some = c.title.ends_with("all-reduce") || c.title.ends_with("close");
    return c.ranks != kRanks || !some;
  });
  EXPECT_EQ(cases.size(), 16u);
  halveIfSanitized(cases);
  for (FailureCase& c : cases) {
    c.body = [this, body = c.body](int rank) {
      settle(rank);
      return body(rank);
    };
  }
  runCases(std::move(cases));
}

TEST_F(HostsTest, RanksThatFailBeforeTheWorldIsOpenAreNamedAndTheOthersMeet) {
  std::deque<FailureCase> cases = missedOpenings({});
  std::erase_if(cases, [](const FailureCase& c) { return c.ranks != kRanks; });
  EXPECT_EQ(cases.size(), 8u);
  halveIfSanitized(cases);
  // All of the host of rank 0: those of the other one find no place to meet in the network, and one at home.
  FailureCase both = openingCase("the ranks of host 0 are killed before they open their world", kRanks, 0);
  both.alsoDies = 1;
  both.body = [survivors = both.survivors()](int rank) {
    const TransportOptions options{.deadline = kSilenceDeadline};
    return surviveOpening(
        [&] {
          if (hostOf(rank) == 0) {
            fail(Way::Kill);
          }
          static_cast<void>(openWorld(options));
        },
        survivors, options);
  };
  cases.push_back(std::move(both));
  for (FailureCase& c : cases) {
    c.body = [this, body = c.body](int rank) {
      settle(rank);
      return body(rank);
    };
  }
  runCases(std::move(cases));
}

TEST_F(HostsTest, RanksWithoutACableGetAnError) {
  const SharedCounters counters(1);
  RankProcesses processes(kRanks, [&](int rank) -> std::string {
    settle(rank);
    const std::unique_ptr<Communicator> world = openWorld({.deadline = kSilenceDeadline});
    std::vector<float> in(1000, 1);
    std::vector<float> out(in.size());
    try {
      for (int64_t i = 0;; ++i) {
        world->setStep(i, "the test's sum");
        world->allReduce(world->world(), in.data(), out.data(), 1000, DataType::Float, ReduceOp::Sum);
        counters.add(0);
      }
    } catch (const DeviceError& e) {
      return e.what();
    }
  });
  while (!counters.reached(0, 10 * kRanks)) {
    ASSERT_FALSE(processes.haveEnded());
    usleep(2000);
  }
  hosts_->pullTheCable();
  processes.await();
  for (const ProcessOutcome& o : processes.outcomes()) {
    EXPECT_TRUE(o.ended);
    EXPECT_NE(o.text.find("[network]"), std::string::npos) << o.text;
    EXPECT_NE(o.text.find("(the test's sum)"), std::string::npos) << o.text;
  }
}

}  // namespace
}  // namespace meshfuse
