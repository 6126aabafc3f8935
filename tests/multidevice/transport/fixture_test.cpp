// The fixture itself: one rank's failure fails the test on all ranks, says where, and leaves the next test unharmed. The failing
// bodies are disabled tests that the driver below runs under mpirun.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "meshfuse_config.h"
#include "multidevice/multidevice_test.h"

namespace meshfuse {
namespace {

class FixtureBodies : public MultiDeviceTest {};

TEST_F(FixtureBodies, DISABLED_1_OneRankExpectsInVain) {
  runOnRanks([](Communicator& comm) {
    comm.barrier(comm.world());
    EXPECT_NE(comm.rank(), 1) << "expected in vain";
  });
}

TEST_F(FixtureBodies, DISABLED_2_OneRankAssertsInVain) {
  runOnRanks([](Communicator& comm) {
    ASSERT_NE(comm.rank(), 1) << "asserted in vain";
    comm.barrier(comm.world());
  });
}

TEST_F(FixtureBodies, DISABLED_3_OneRankThrows) {
  runOnRanks([](Communicator& comm) {
    check(comm.rank() != 1, "[test] rank 1 had enough");
    comm.barrier(comm.world());
  });
}

TEST_F(FixtureBodies, DISABLED_4_TheNextTestIsUnharmed) {
  runOnRanks([](Communicator& comm) {
    comm.barrier(comm.world());
    EXPECT_EQ(comm.size(), 3);
    EXPECT_EQ(&defaultWorld(), &comm);
  });
}

TEST_F(FixtureBodies, DISABLED_5_TheFirstTwoRanksAreAWorld) {
  runOnRanks(2, [](Communicator& comm) {
    EXPECT_EQ(comm.size(), 2);
    EXPECT_EQ(comm.exchange(std::string(comm.rank(), 'x')), (std::vector<std::string>{"", "x"}));
  });
}

TEST_F(FixtureBodies, DISABLED_6_TooManyRanks) {
  runOnRanks(4, [](Communicator&) { FAIL() << "must not run"; });
}

TEST(FixtureTest, FailuresOfOneRankAreThoseOfAll) {
  if (MultiDeviceTest::launched() || std::system("mpirun --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "starts mpirun, which is not there or has started this process";
  }
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  const std::string command =
      std::string("env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX mpirun --allow-run-as-root --oversubscribe -np 3 ") +
      self + " --gtest_also_run_disabled_tests --gtest_filter='FixtureBodies.*' --gtest_color=no 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char buffer[4096];
  for (size_t n = fread(buffer, 1, sizeof(buffer), pipe); n > 0; n = fread(buffer, 1, sizeof(buffer), pipe)) {
    output.append(buffer, n);
  }
  EXPECT_NE(WEXITSTATUS(pclose(pipe)), 0);
  if (!kHasPmix) {
    EXPECT_NE(output.find("the launcher offers PMIx, which this build does not support"), std::string::npos) << output;
    return;
  }
  for (const char* line :
       {"[rank 1/3]", "expected in vain", "[  FAILED  ] FixtureBodies.DISABLED_1", "asserted in vain",
        "[  FAILED  ] FixtureBodies.DISABLED_2", "rank 1 had enough", "[  FAILED  ] FixtureBodies.DISABLED_3",
        "[       OK ] FixtureBodies.DISABLED_4", "[       OK ] FixtureBodies.DISABLED_5",
        "[  SKIPPED ] FixtureBodies.DISABLED_6", "needs 4 ranks"}) {
    EXPECT_NE(output.find(line), std::string::npos) << "missing: " << line << "\nin:\n" << output;
  }
  // Rank 0 prints, the others do not.
  const size_t first = output.find("[       OK ] FixtureBodies.DISABLED_4");
  EXPECT_EQ(output.find("[       OK ] FixtureBodies.DISABLED_4", first + 1), std::string::npos) << output;
}

}  // namespace
}  // namespace meshfuse
