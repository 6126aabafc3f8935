// meshfuse blame on the records of ranks that disagreed.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace meshfuse
