// meshfuse blame on the records of ranks that disagreed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "multidevice/transport/loopback/loopback.h"
#include "tools/tool.h"

namespace meshfuse {
namespace {

TEST(ToolBlame, NamesTheCallThatDiffers) {
  const std::string directory = temporaryDirectory() + "/flight";
  auto body = [](Communicator& comm) {
    for (int i = 1; i <= 5; ++i) {
      std::vector<float> in(8, 1.0f);
      std::vector<float> out(8);
      comm.setStep(i, "the sum of T4");
      comm.allReduce(comm.world(), in.data(), out.data(), i == 4 && comm.rank() == 1 ? 7 : 8, DataType::Float,
                     ReduceOp::Sum);
    }
  };
  EXPECT_THROW(runLoopback(2, body, {.flightDirectory = directory}), DeviceError);
  const ToolRun run = tool("blame " + directory);
  EXPECT_EQ(run.code, 0) << run.err;
  for (const char* phrase : {"2 ranks, transport loopback; records of all", "the counts differ",
                             "first divergence: call 4 of the team of ranks 0, 1",
                             "rank 0: all-reduce(sum) of 8 Float in team {0, 1} at step 4 (the sum of T4)",
                             "rank 1: all-reduce(sum) of 7 Float in team {0, 1} at step 4 (the sum of T4)"}) {
    EXPECT_NE(run.out.find(phrase), std::string::npos) << "missing: " << phrase << "\nin:\n" << run.out;
  }
}

TEST(ToolBlame, RefusesDirectoriesWithoutRecords) {
  const ToolRun run = tool("blame {tmp}");
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("no flight records"), std::string::npos) << run.err;
  EXPECT_EQ(tool("blame {tmp}/nowhere").code, 2);
  EXPECT_EQ(tool("blame").code, 2);
  EXPECT_NE(tool("blame --help").out.find("MESHFUSE_FLIGHT_DIR"), std::string::npos);
}

// Records that no rank wrote: a number out of range is named, and takes neither memory nor time.
TEST(ToolBlame, RefusesRecordsWithNumbersOutOfRange) {
  const std::string directory = temporaryDirectory() + "/wrong_records";
  std::filesystem::create_directory(directory);
  const std::string call = "1 1 0 1 0 4 1 0 -1 8 77 3 0 0 0 0 a step";
  struct Case {
    std::string lines;
    std::string phrase;  // empty: a good record
  };
  const std::string rank = "rank 0 2\n";
  const Case cases[] = {
      {rank + call, ""},
      {"rank 0 9223372036854775807\n", "'rank 0 9223372036854775807' names no rank of a world of at most 1048576"},
      {"rank -5 2\n", "'rank -5 2' names no rank"},
      {"rank 2 2\n", "'rank 2 2' names no rank"},
      {"rank 99999999999999999999 2\n", "names no rank"},
      {rank + "opened -1\n", "'opened -1' is no time"},
      {rank + "opened 99999999999999999999\n", "is no time"},
      {rank + "1 1 0 1 0 99 1 0 -1 8 77 3 0 0 0 0 a step", "is no call"},
      {rank + "1 1 0 1 0 4 200 0 -1 8 77 3 0 0 0 0 a step", "is no call"},
      {rank + "1 1 0 1 0 4 1 -1 -1 8 77 3 0 0 0 0 a step", "is no call"},
      {rank + "1 1 0 1 0 4 1 0 -1 8 77 3 0 0 0 99 a step", "is no call"},
      {rank + "1 1 -9223372036854775807 1 0 4 1 0 -1 8 77 3 0 0 0 0 a step", "is no call"},
      {rank + "1 1 0 1 0 4 1 0 -1 99999999999999999999 77 3 0 0 0 0 a step", "is no call"},
      {rank + call + "\n18446744073709551615 18446744073709551615 0 1 0 4 1 0 -1 8 77 3 0 0 0 0 a step", ""},
      {rank + "1 1", "is no call"},
      {rank + std::string(100'000, '1'), "is no call"},
  };
  for (const Case& c : cases) {
    std::ofstream(directory + "/w.rank0.flight") << "meshfuse flight record 2\nworld w\ntransport x\n"
                                                 << c.lines << "\n";
    const ToolRun run = tool("blame " + directory, "timeout 20");
    EXPECT_EQ(run.code, c.phrase.empty() ? 0 : 2) << c.lines.substr(0, 200) << "\n" << run.err;
    expectContains(run.err, c.phrase);
    EXPECT_LT(run.err.size(), 1000u);
  }
}

}  // namespace
}  // namespace meshfuse
