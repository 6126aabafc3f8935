// What `cmake --install` leaves, as a project outside finds it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tools/tool.h"

namespace meshfuse {
namespace {

// The exit code; what it prints goes to `log`.
int shell(const std::string& command, std::string& log) {
  const std::string file = temporaryDirectory() + "/log";
  const int status = std::system((command + " >" + file + " 2>&1 </dev/null").c_str());
  log = fileText(file);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Install, AProjectOutsideFindsBuildsAndRuns) {
  if (std::string(MESHFUSE_SANITIZE_TEXT) != "") {
    GTEST_SKIP() << "a consumer is not built with sanitizers";
  }
  const std::string prefix = temporaryDirectory() + "/installed";
  const std::string build = temporaryDirectory() + "/consumer";
  const std::string source = std::string(MESHFUSE_SOURCE_DIR) + "/tests/consumer";
  std::string log;
  ASSERT_EQ(shell("cmake --install " MESHFUSE_BINARY_DIR " --prefix " + prefix, log), 0) << log;
  ASSERT_EQ(shell("cmake -S " + source + " -B " + build + " -G Ninja -DCMAKE_PREFIX_PATH=" + prefix, log), 0) << log;
  ASSERT_EQ(shell("cmake --build " + build, log), 0) << log;
  EXPECT_EQ(shell(build + "/consumer", log), 0) << log;
  EXPECT_EQ(log, "right\n");
  EXPECT_EQ(shell(prefix + "/bin/meshfuse --version", log), 0) << log;
  EXPECT_NE(shell("ldd " + prefix + "/bin/meshfuse | grep " MESHFUSE_BINARY_DIR, log), 0)
      << "the installed program needs the build tree:\n"
      << log;
}

TEST(Install, AnotherMinorVersionIsNotThis) {
  if (std::string(MESHFUSE_SANITIZE_TEXT) != "") {
    GTEST_SKIP() << "a consumer is not built with sanitizers";
  }
  const std::string prefix = temporaryDirectory() + "/installed_again";
  const std::string project = temporaryDirectory() + "/later";
  std::filesystem::create_directories(project);
  std::ofstream(project + "/CMakeLists.txt") << "cmake_minimum_required(VERSION 3.25)\nproject(later LANGUAGES NONE)\n"
                                                "find_package(meshfuse 0.2 REQUIRED)\n";
  std::string log;
  ASSERT_EQ(shell("cmake --install " MESHFUSE_BINARY_DIR " --prefix " + prefix, log), 0) << log;
  EXPECT_NE(shell("cmake -S " + project + " -B " + project + "/build -G Ninja -DCMAKE_PREFIX_PATH=" + prefix, log), 0);
  EXPECT_NE(log.find("version: 0.1.0"), std::string::npos) << log;
}

}  // namespace
}  // namespace meshfuse
