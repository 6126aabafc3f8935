// Runs compare.py on some programs: README.md.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "sanitized.h"

namespace meshfuse {

namespace {

struct Finished {
  int code = -1;
  std::string text;
};

Finished finished(const std::string& command) {
  Finished result;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) {
    return result;
  }
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    result.text.append(buffer, n);
  }
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

// The first Python that has NumPy; empty if none has.
std::string pythonWithNumpy() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    if (finished(fmt::format("{} -c 'import numpy'", python)).code == 0) {
      return python;
    }
  }
  return "";
}

Finished compared(const std::string& arguments) {
  const std::string programs =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename("numpy_programs").string();
  return finished(fmt::format("{} '{}/tests/numpy/compare.py' '{}' {}", pythonWithNumpy(), MESHFUSE_SOURCE_DIR,
                              programs, arguments));
}

class NumpyTest : public testing::Test {
 protected:
  void SetUp() override {
    if (pythonWithNumpy().empty()) {
      GTEST_SKIP() << "needs python3 with NumPy; install python3-numpy";
    }
  }
};

constexpr int kLast = kSanitized ? 2015 : 2150;

TEST_F(NumpyTest, ComputesTheSame) {
  const Finished run = compared(fmt::format("2001 {}", kLast));
  EXPECT_EQ(run.code, 0) << run.text;
}

// An op in place of another one, for NumPy alone, must be seen in most programs that have it.
TEST_F(NumpyTest, NoticesAnotherOp) {
  const Finished run = compared("2001 2040 --plant add=sub --show 0");
  EXPECT_EQ(run.code, 0) << run.text;
}

}  // namespace

}  // namespace meshfuse
