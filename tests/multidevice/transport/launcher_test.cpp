// What becomes of ranks whose launcher is killed. The test starts an `mpirun` of its own, which runs this test as its ranks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "base/error.h"
#include "meshfuse_config.h"
#include "multidevice/transport/host/world.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLogVariable = "MESHFUSE_TEST_LOG";

std::string textOf(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

int64_t countOf(const std::string& text, std::string_view phrase) {
  int64_t count = 0;
  for (size_t at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1)) {
    ++count;
  }
  return count;
}

// One line of a rank; appended whole.
void say(const std::string& file, const std::string& line) {
  const int fd = open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_EQ(write(fd, line.data(), line.size()), std::ssize(line));
  close(fd);
}

// Calls until the world fails. With messages only, the ranks form a network.
void runAsRank(const std::string& log, bool messagesOnly) {
  const std::unique_ptr<Communicator> world = openWorld({.deadline = kFailureDeadline, .messagesOnly = messagesOnly});
  say(log, fmt::format("process {} under way\n", getpid()));
  const std::string error = callUntilFailure(*world);
  say(log, fmt::format("ended: {}\n", error));
}

class LauncherTest : public ::testing::TestWithParam<bool> {};

TEST_P(LauncherTest, RanksEndSoonAfterTheLauncherWasKilled) {
  const char* given = std::getenv(kLogVariable);
  if (given != nullptr) {
    runAsRank(given, GetParam());
    return;
  }
  if (startedByLauncher()) {
    GTEST_SKIP() << "starts a launcher of its own";
  }
  if (!kHasPmix || std::system("mpirun --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no PMIx or no mpirun";
  }
  if (const std::string why = GetParam() ? whyNoNetwork() : ""; !why.empty()) {
    GTEST_SKIP() << why;
  }
  const std::string log = fmt::format("/tmp/meshfuse_test_launcher.{}", getpid());
  std::ofstream(log).flush();
  const std::string filter = fmt::format("--gtest_filter=*/LauncherTest.*/{}", GetParam() ? 1 : 0);
  const pid_t mpirun = fork();
  if (mpirun == 0) {
    setenv(kLogVariable, log.c_str(), 1);
    for (const char* variable : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "GTEST_OUTPUT"}) {
      unsetenv(variable);  // all of them run this one test
    }
    const int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, 0);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    char self[4096] = {};
    static_cast<void>(!readlink("/proc/self/exe", self, sizeof(self) - 1));
    execlp("mpirun", "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2", "-x",
           kLogVariable, self, filter.c_str(), nullptr);
    _exit(127);
  }
  const auto await = [&](std::string_view phrase) {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (countOf(textOf(log), phrase) < 2 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(5ms);
    }
    return textOf(log);
  };
  const std::string begun = await("under way\n");
  ASSERT_EQ(countOf(begun, "under way\n"), 2) << begun;
  kill(mpirun, SIGKILL);
  waitpid(mpirun, nullptr, 0);
  const std::string ended = await("ended: ");
  EXPECT_EQ(countOf(ended, "ended: "), 2) << ended;
  EXPECT_EQ(countOf(ended, "the launcher, mpirun or a daemon of it, has ended"), 2) << ended;
  // Nothing keeps the processes after their error.
  std::istringstream lines(begun);
  for (std::string word; lines >> word;) {
    pid_t process = 0;
    if (word == "process" && lines >> process) {
      awaitStandstill(process);
    }
  }
  unlink(log.c_str());
}

INSTANTIATE_TEST_SUITE_P(Transports, LauncherTest, ::testing::Values(false, true));

}  // namespace
}  // namespace meshfuse
