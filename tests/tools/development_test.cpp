// tools/dev: the comparison of the demo's loss curves, the names of benchmarks, and what is said of failed tests.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "tools/tool.h"

namespace meshfuse {
namespace {

// A shell command in the root of the sources.
ToolRun shellInSources(const std::string& command) {
  const std::string out = temporaryDirectory() + "/stdout";
  const std::string err = temporaryDirectory() + "/stderr";
  const int status =
      std::system(fmt::format("cd {} && {} >{} 2>{} </dev/null", MESHFUSE_SOURCE_DIR, command, out, err).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, fileText(out), fileText(err)};
}

// Writes a curve of `steps` losses as train_lm does; returns its file.
std::string curve(const std::string& name, int steps, const std::function<double(int)>& loss) {
  const std::string path = temporaryDirectory() + "/" + name + ".csv";
  std::ofstream file(path);
  file << "step,loss\n";
  for (int s = 0; s < steps; s++) {
    file << fmt::format("{},{:.9g}\n", s, loss(s));
  }
  return path;
}

ToolRun compareCurves(const std::string& files) { return shellInSources("awk -f tools/compare_curves.awk " + files); }

void expectLastLine(const std::string& text, const std::string& line) {
  EXPECT_TRUE(text.ends_with(line + "\n")) << text;
}

TEST(CompareCurves, TakesTheLargestDifferenceOfAnyTwo) {
  const std::string one = curve("one", 200, [](int s) { return 5 - s * 0.01; });
  const std::string low = curve("low", 200, [](int s) { return (5 - s * 0.01) * (s == 7 ? 1 - 8e-5 : 1); });
  const std::string high = curve("high", 200, [](int s) { return (5 - s * 0.01) * (s == 7 ? 1 + 8e-5 : 1); });
  const ToolRun same = compareCurves(one + " " + one + " " + one);
  EXPECT_EQ(same.code, 0) << same.out;
  EXPECT_EQ(same.out, "loss-curve-difference: 0\n");
  const ToolRun near = compareCurves(one + " " + one + " " + high);
  EXPECT_EQ(near.code, 0) << near.out;
  EXPECT_EQ(near.out, "loss-curve-difference: 8e-05\n");
  const ToolRun apart = compareCurves(one + " " + low + " " + high);  // each is near the first
  EXPECT_EQ(apart.code, 1) << apart.out;
  EXPECT_NE(apart.out.find("loss curves: two of them differ by 0.00016, expected at most 1e-4\n"), std::string::npos);
  expectLastLine(apart.out, "loss-curve-difference: 0.00016");
}

TEST(CompareCurves, EveryCurveFallsByOneNat) {
  const std::string falls = curve("falls", 200, [](int s) { return 5 - s / 199.0; });
  const std::string flat = curve("flat", 200, [](int s) { return 5 - 0.9 * s / 199.0; });
  EXPECT_EQ(compareCurves(falls + " " + falls).code, 0);
  const ToolRun run = compareCurves(flat + " " + flat);
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.out.find("flat.csv falls by 0.900 nats, expected at least 1\n"), std::string::npos) << run.out;
  expectLastLine(run.out, "loss-curve-difference: 0");
  const std::string shortOne = curve("short", 5, [](int) { return 5.0; });
  EXPECT_EQ(compareCurves(shortOne + " " + shortOne).code, 0) << "a run of a few steps cannot fall so far";
}

TEST(CompareCurves, RefusesWhatAreNoCurves) {
  const std::string five = curve("five", 5, [](int) { return 5.0; });
  const std::string six = curve("six", 6, [](int) { return 5.0; });
  const std::string lost = curve("lost", 5, [](int s) { return s == 3 ? std::nan("") : 5.0; });
  for (const auto& [files, message] : std::initializer_list<std::pair<std::string, const char*>>{
           {five + " " + six, "six.csv has 6 steps, "},
           {five, "1 curves, expected at least 2"},
           {five + " " + lost, "lost.csv:5: \"nan\" is no loss"}}) {
    const ToolRun run = compareCurves(files);
    EXPECT_EQ(run.code, 1) << run.out;
    EXPECT_NE(run.out.find(message), std::string::npos) << run.out;
  }
}

TEST(DevelopmentTool, NamesTheBenchmarksThereAre) {
  const ToolRun run = shellInSources("tools/dev bench nosuch");
  EXPECT_EQ(run.code, 2) << run.out << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("there is no benchmark 'nosuch'; there are: autoplan_bench block_mpi_bench cold_bench "
                         "collectives_mpi_bench cuda_host_bench "),
            std::string::npos)
      << run.err;
  EXPECT_TRUE(run.err.ends_with(" peers\n")) << run.err;
  EXPECT_EQ(shellInSources("tools/dev frobnicate").code, 2);
}

TEST(DevelopmentTool, SaysWhyACaseFailed) {
  const std::string results = temporaryDirectory();
  std::ofstream(results + "/base.json") << R"({
  "tests": 2,
  "failures": 1,
          "name": "Passes",
          "classname": "Suite"
          "name": "Fails",
          "classname": "Suite",
          "failures": [
            {
              "failure": "\/a\/b.cpp:3\nExpected: \"x\"\n  is",
            {
              "failure": "c.cpp:4",
)";
  const ToolRun run = shellInSources("bash -c 'source tools/dev_test.sh; results=" + results +
                                     "; add_report base 1; echo $passed $failed $skipped'");
  EXPECT_EQ(run.out,
            "failed: base: Suite.Fails\n"
            "    /a/b.cpp:3\n"
            "    Expected: \"x\"\n"
            "      is\n"
            "    c.cpp:4\n"
            "1 1 0\n");
}

TEST(DevelopmentTool, SaysInWhichCaseARunEndedBadly) {
  const std::string results = temporaryDirectory();
  std::ofstream(results + "/ctest.log") << R"(1/3 Testing: base
[ RUN      ] Suite.Passes
[       OK ] Suite.Passes (1 ms)
2/3 Testing: crashes
[ RUN      ] Suite.PassesHereToo
[       OK ] Suite.PassesHereToo (1 ms)
[ RUN      ] Suite.Crashes
3/3 Testing: fails
[ RUN      ] Suite.Fails
[  FAILED  ] Suite.Fails (1 ms)
)";
  const ToolRun run = shellInSources("bash -c 'source tools/dev_test.sh; results=" + results +
                                     "; add_report crashes 1; add_report fails 1; echo $passed $failed $skipped'");
  EXPECT_EQ(run.out,
            "failed: crashes: ended badly (a crash, a timeout or a leak) without a failed test case in Suite.Crashes\n"
            "failed: fails: ended badly (a crash, a timeout or a leak) without a failed test case\n"
            "0 2 0\n");
}

// LeakSanitizer crashes in the first attempt, in which a case fails too. Google Test overwrites no report.
TEST(LeakChecked, TheReportIsThatOfTheLastAttempt) {
  const std::string folder = temporaryDirectory() + "/reports/";
  const std::string program = temporaryDirectory() + "/crashes_once";
  std::ofstream(program) << R"sh(#!/usr/bin/env bash
report=${GTEST_OUTPUT#json:}crashes_once
mkdir -p "$(dirname "$report")"
[ ! -e "$report.json" ] || report=${report}_1
if [[ ${LSAN_OPTIONS:-} == *use_tls=0* ]]; then echo passed >"$report.json"; exit 0; fi
echo failed >"$report.json"
echo "LeakSanitizer has encountered a fatal error."
exit 1
)sh";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const ToolRun run = shellInSources("env GTEST_OUTPUT=json:" + folder + " tools/leak_checked " + program);
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_EQ(fileText(folder + "crashes_once.json"), "passed\n");
  EXPECT_NE(run.out.find("attempt 1: LeakSanitizer crashed"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace meshfuse
