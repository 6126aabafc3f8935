// meshfuse run --device: refusals, and programs on the simulated GPU.
#include <gtest/gtest.h>

#include <string>

#include "sanitized.h"
#include "tools/tool.h"

namespace meshfuse {
namespace {

TEST(ToolDevice, RefusesWhatIsNoDevice) {
  for (const char* text : {"gpu", "cuda:x", "cuda:-1", "''"}) {
    const ToolRun r = tool(std::string("run {dir}/softmax.fir --size i0=4 --size i1=4 --device ") + text);
    EXPECT_EQ(r.code, 2) << r.err;
    EXPECT_NE(r.err.find("is no device; expected cpu, or such as cuda:0"), std::string::npos) << r.err;
  }
}

TEST(ToolDevice, SaysWhyThereIsNoGpu) {
  const ToolRun r =
      tool("run {dir}/softmax.fir --size i0=4 --size i1=4 --device cuda", "env MESHFUSE_CUDA_LIBRARIES=/nothing");
  EXPECT_EQ(r.code, 3) << r.err;
  EXPECT_NE(r.err.find("[cuda] no device can be used: "), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("libcuda.so.1"), std::string::npos) << r.err;
}

// A kernel is compiled for the host when it first runs: half a second each.
TEST(ToolDevice, RunsProgramsOnTheSimulatedGpu) {
  if (kSanitized) {
    GTEST_SKIP() << "the release build runs them";
  }
  const std::string simulated = std::string("env MESHFUSE_CUDA_LIBRARIES=") + MESHFUSE_BINARY_DIR + "/simgpu";
  for (const char* program :
       {"softmax.fir --size i0=37 --size i1=130", "column_and_row_sums.fir", "updated_in_place.fir", "sharded_sum.fir",
        "rows_to_columns.fir", "view_and_no_elements.fir", "scaled_embedding.fir", "product_and_sum.fir",
        "two_meshes.fir", "neighbours.fir", "mlp_of_any_size.fir --mesh tp=2"}) {
    const ToolRun r = tool(std::string("run {dir}/") + program + " --verify --device cuda:0", simulated);
    EXPECT_EQ(r.code, 0) << program << "\n" << r.out << r.err;
    expectContains(r.out, "the outputs agree with the reference interpreter");
  }
}

TEST(ToolDevice, RefusesOpsWithoutAKernelOnAGpuByName) {
  if (kSanitized) {
    GTEST_SKIP() << "the release build runs it";
  }
  const std::string simulated = std::string("env MESHFUSE_CUDA_LIBRARIES=") + MESHFUSE_BINARY_DIR + "/simgpu";
  const ToolRun r = tool("run {dir}/steps_of_all_kinds.fir --device cuda:0", simulated);
  EXPECT_EQ(r.code, 2) << r.err;
  EXPECT_NE(r.err.find("[cuda] scan has no kernel on a GPU so far"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace meshfuse
