// The command line itself: unknown words, flags out of range, environment, files that are none, and output that goes nowhere.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tools/tool.h"

namespace meshfuse {
namespace {

ToolRun expectRefused(const std::string& arguments, const std::string& message, const std::string& launcher = "") {
  SCOPED_TRACE(arguments);
  const ToolRun run = tool(arguments, launcher);
  EXPECT_EQ(run.code, 2) << run.out << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err.find("meshfuse: error: "), 0u) << run.err;
  expectContains(run.err, message);
  return run;
}

TEST(ToolCommandLine, HelpHasExamplesAndExitCodes) {
  EXPECT_EQ(tool("--version").code, 0);
  for (const char* command : {"run", "explain", "opt", "compile"}) {
    const ToolRun run = tool(std::string(command) + " --help");
    EXPECT_EQ(run.code, 0) << command;
    EXPECT_EQ(run.err, "");
    expectContains(run.out, std::string("  meshfuse ") + command + " ");
    expectContains(run.out, "Exit codes: 0 success; 1 ");
  }
}

TEST(ToolCommandLine, WrongUseIsExitCodeTwo) {
  expectRefused("", "A subcommand is required");
  expectRefused("run", "FILE is required");
  expectRefused("run {dir}/softmax.fir --frob", "--frob");
  expectRefused("opt", "no file given");
  expectRefused("opt {dir}/softmax.fir", "no pass given");
  expectRefused("run a b", "not expected: b");
}

TEST(ToolCommandLine, NamesTheUnknownWordAndTheNearest) {
  expectRefused("frobnicate", "there is no subcommand \"frobnicate\"; there are: run, explain, opt, compile");
  expectRefused("explian {dir}/softmax.fir", "no subcommand \"explian\"; did you mean explain?");
  expectRefused("comple", "did you mean compile?");
  expectRefused("run {dir}/softmax.fir --verfy", "--verfy; did you mean --verify?");
}

TEST(ToolCommandLine, RefusesNumbersOutOfRange) {
  expectRefused("run {dir}/softmax.fir --size i0=4 --size i1=4 --ranks 0", "--ranks is 0, expected 1 to 256");
  expectRefused("explain {dir}/softmax.fir --size i0=4 --size i1=4 --ranks 2000", "--ranks is 2000, expected 1 to 256");
  expectRefused("run {dir}/softmax.fir --size i0=4 --size i1=4 --seed -1", "--seed is -1, expected 0 or more");
  expectRefused("run {dir}/softmax.fir --size i0=4 --size i1=4 --seed 1.5", "--seed");
}

TEST(ToolCommandLine, RefusesADirectoryAsAFile) {
  expectRefused("run {dir}", "is a directory");
  expectRefused("explain {tmp}", "is a directory");
}

// Files without an end, or that would be waited for, are refused at once.
TEST(ToolCommandLine, RefusesWhatIsNoFile) {
  const std::string soon = "timeout 20";
  const std::string pipe = temporaryDirectory() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const char* command : {"run ", "explain ", "opt --pass=all ", "compile --arch sm_90a "}) {
    expectRefused(command + pipe, "/pipe is a pipe, expected a regular file", soon);
    expectRefused(std::string(command) + "/dev/zero", "/dev/zero is a device, expected a regular file", soon);
  }
  const std::string sizes = "run {dir}/softmax.fir --size i0=4 --size i1=4 ";
  for (const char* flag : {"--input T0=", "--expect T7="}) {
    expectRefused(sizes + flag + pipe, "[npy] " + pipe + " is a pipe", soon);
    expectRefused(sizes + flag + "/dev/zero", "[npy] /dev/zero is a device", soon);
    expectRefused(sizes + flag + "{dir}", "is a directory", soon);
    expectRefused(sizes + flag + "{dir}/softmax.fir", "not an .npy file", soon);
  }
  constexpr int kTimedOut = 124;
  const std::string libraries = temporaryDirectory() + "/libraries";
  std::filesystem::create_directory(libraries);
  ASSERT_EQ(mkfifo((libraries + "/libnvrtc.so.13").c_str(), 0600), 0);
  EXPECT_NE(tool("compile --arch sm_90a -o {tmp}/piped {dir}/sharded_sum.fir",
                 soon + " env MESHFUSE_CUDA_LIBRARIES=" + libraries)
                .code,
            kTimedOut);
  const std::string records = temporaryDirectory() + "/records";
  std::filesystem::create_directory(records);
  ASSERT_EQ(mkfifo((records + "/w.rank0.flight").c_str(), 0600), 0);
  expectRefused("blame " + records, "w.rank0.flight is a pipe", soon);
}

// Numbers that no tensor, mesh or seed has.
TEST(ToolCommandLine, RefusesNumbersBeyondAllSizes) {
  const std::string sizes = "run {dir}/softmax.fir --size i0=4 --size i1=";
  expectRefused(sizes + "4611686018427387904", "[4, 4611686018427387904] of Float have more than 2^63 bytes");
  expectRefused(sizes + "9223372036854775807", "more than 2^63 bytes");
  expectRefused("explain {dir}/softmax.fir --size i0=4 --size i1=4611686018427387904", "more than 2^50 bytes");
  expectRefused("compile --arch sm_90a {dir}/softmax.fir --size i0=4 --size i1=4611686018427387904", "2^50 bytes");
  expectRefused(sizes + "99999999999999999999", "i1 is \"99999999999999999999\", expected a number");
  expectRefused(sizes + "4 --ranks 9223372036854775807", "--ranks is 9223372036854775807, expected 1 to 256");
  for (const std::string flag : {"--ranks", "--seed"}) {
    expectRefused(sizes + "4 " + flag + " 99999999999999999999",
                  flag + ": got 99999999999999999999, expected a number of 64 bits");
  }
  expectRefused("run {dir}/mlp_of_any_size.fir --mesh tp=4294967296", "4294967296");
  expectRefused("explain {dir}/mlp_of_any_size.fir --mesh tp=9223372036854775807", "9223372036854775807");
}

TEST(ToolCommandLine, RefusesNumbersOfALauncherThatNoRankHas) {
  const std::string run = "run {dir}/softmax.fir --size i0=4 --size i1=4 --mpi";
  const std::string none = "timeout 20 env -u PMIX_RANK -u PMIX_NAMESPACE ";
  expectRefused(run, "RANK is \"99999999999\", expected a number from 0 to 65535",
                none + "RANK=99999999999 WORLD_SIZE=2");
  expectRefused(run, "RANK is \"-1\"", none + "RANK=-1 WORLD_SIZE=2");
  expectRefused(run, "RANK is \"1x\"", none + "RANK=1x WORLD_SIZE=2");
  expectRefused(run, "WORLD_SIZE is \"99999999999999999999\"", none + "RANK=0 WORLD_SIZE=99999999999999999999");
  expectRefused(run, "WORLD_SIZE is \"0\", expected a number from 1", none + "RANK=0 WORLD_SIZE=0");
  expectRefused(run, "MASTER_PORT is \"99999999999\", expected a number from 1 to 65535",
                none + "RANK=0 WORLD_SIZE=2 MASTER_PORT=99999999999");
}

// Which elements of an uneven dim a rank lacks is counted block by block: of more blocks than there is memory for, none.
TEST(ToolCommandLine, RefusesUnevenPartsOfTooManyBlocks) {
  const std::string file = temporaryDirectory() + "/long_rows.fir";
  std::ofstream(file) << "fusion {\n"
                         "  mesh M0 {x: 4} [0, 1, 2, 3]\n"
                         "  T0 = input() : Float[2147483649, 3] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
                         "  T1 = set(T0) : Float[2147483649, 3] mesh M0 outer_split(1, 4) parallelize(1, DIDx)\n"
                         "  output T1\n"
                         "}\n";
  expectRefused("opt --pass=all " + file, "a dim of 2147483649 elements is cut in parts with", "timeout 20");
}

TEST(ToolCommandLine, ColoursOnATerminalOnly) {
  const std::string terminal = "python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)'";
  const std::string command = "explain {dir}/sharded_sum.fir";
  const ToolRun coloured = tool(command, "env -u NO_COLOR -u PMIX_RANK TERM=xterm " + terminal);
  EXPECT_EQ(coloured.code, 0) << coloured.err;
  expectContains(coloured.out, "\033[1mtensors of the planned program\033[0m");
  for (const std::string& plain :
       {"env NO_COLOR=1 TERM=xterm " + terminal, "env -u NO_COLOR TERM=dumb " + terminal,
        "env -u NO_COLOR PMIX_RANK=0 TERM=xterm " + terminal, std::string("env -u NO_COLOR TERM=xterm")}) {
    const ToolRun run = tool(command, plain);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.out.find('\033'), std::string::npos) << plain;
  }
}

TEST(ToolCommandLine, NamesOfDumpedPassesAreChecked) {
  for (const char* command : {"run", "explain", "compile --arch cpu -o {tmp}/dumped", "opt --pass=all"}) {
    const ToolRun run = expectRefused(std::string(command) + " {dir}/sharded_sum.fir",
                                      "MESHFUSE_DUMP names \"bogus\"; there are: check-annotations, ",
                                      "env MESHFUSE_DUMP=fold-transposes,bogus");
    expectContains(run.err, "fold-transposes");
  }
  const ToolRun run = tool("run {dir}/sharded_sum.fir", "env MESHFUSE_DUMP=fold-transposes,check-annotations");
  EXPECT_EQ(run.code, 0) << run.err;
  expectContains(run.err, "check-annotations changed nothing");
}

TEST(ToolCommandLine, OutputThatCannotBeWrittenIsAFailure) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "no /dev/full";
  }
  for (const char* command : {"run {dir}/softmax.fir --size i0=4 --size i1=4", "explain {dir}/sharded_sum.fir",
                              "--help", "opt --print-pipeline"}) {
    const ToolRun run = tool(std::string(command) + " >/dev/full");
    EXPECT_EQ(run.code, 3) << command;
    expectContains(run.err, "cannot write to standard output");
  }
}

}  // namespace
}  // namespace meshfuse
