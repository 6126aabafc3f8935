// A rank that is killed or stopped while a program runs whose collectives have lanes of their own: the other ranks get an error that names it,
// and run the program without it.
#include <gtest/gtest.h>
#include <signal.h>

#include "exec/backward_program.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

constexpr int kVictim = 2;

class OverlapFailureTest : public testing::TestWithParam<bool> {
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
    if (const std::string why = GetParam() ? whyNoNetwork() : ""; !why.empty()) {
      GTEST_SKIP() << why;
    }
  }

 protected:
  // Runs the program until a peer fails, then with the survivors. `underWay` counts the ranks that have run it once.
  static std::string runAndGoOn(const SharedCounters& underWay) {
    const std::unique_ptr<Communicator> world = openWorld({.deadline = kSilenceDeadline, .messagesOnly = GetParam()});
    std::string error;
    {
      FusionExecutorCache cache(backwardProgram(3), {.communicator = world.get(), .threads = 1});
      const std::vector<Argument> arguments = argumentsOf(cache.fusion(), world->rank());
      try {
        for (bool first = true;; first = false) {
          (void)cache.runFusionWithInputs(arguments);
          if (first) {
            underWay.add(0);
          }
        }
      } catch (const DeviceError& e) {
        error = e.what();
      }
    }
    const Communicator::Survivors left = world->shrink();
    FusionExecutorCache after(backwardProgram(2), {.communicator = left.world.get(), .threads = 1});
    const std::vector<Tensor> results = after.runFusionWithInputs(argumentsOf(after.fusion(), left.world->rank()));
    return fmt::format("{} | {} ranks go on with {} results", error, left.oldRanks.size(), results.size());
  }

  static void expectNamed(int number) {
    const SharedCounters underWay(1);
    RankProcesses processes(3, [&](int) { return runAndGoOn(underWay); });
    while (!underWay.reached(0, 3)) {
      ASSERT_LT(processes.age(), kPatience);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // somewhere within a run
    processes.signal(kVictim, number);
    const std::vector<ProcessOutcome>& outcomes = processes.await({kVictim});
    for (const int rank : {0, 1}) {
      const std::string& text = outcomes[rank].text;
      EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
      // the collective of a lane and its step, or where ranks meet before a call's first one
      EXPECT_TRUE(text.find("all-reduce", text.find(" at step ")) != std::string::npos ||
                  text.find("the begin of a program") != std::string::npos)
          << text;
      EXPECT_NE(text.find("2 ranks go on with 5 results"), std::string::npos) << text;
    }
  }
};

TEST_P(OverlapFailureTest, AKilledRankIsNamedAndTheOthersGoOn) { expectNamed(SIGKILL); }
TEST_P(OverlapFailureTest, AStoppedRankIsNamedAndTheOthersGoOn) { expectNamed(SIGSTOP); }

INSTANTIATE_TEST_SUITE_P(Between, OverlapFailureTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Hosts" : "ProcessesOfOneHost"; });

}  // namespace
}  // namespace meshfuse
