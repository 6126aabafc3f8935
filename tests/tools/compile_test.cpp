// The steps that `meshfuse compile` prints are those of the host program, and so are the kernels that it writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "device/cuda/capabilities.h"
#include "device/device.h"
#include "device/open.h"
#include "exec/compile.h"
#include "exec/explain.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "multidevice/transport/communicator.h"
#include "tensor/tensor.h"
#include "tools/tool.h"

namespace meshfuse {
namespace {

CompiledProgram compiled(const std::string& program) {
  const std::unique_ptr<Fusion> fusion = parseFusion(fileText(MESHFUSE_SOURCE_DIR "/tests/tools/" + program));
  std::vector<Argument> arguments;
  for (const Val* in : fusion->inputs()) {
    arguments.emplace_back(Tensor::zeros(in->asTensor()->constantShape(), in->dtype()));
  }
  const std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  return compile(*fusion, arguments, Agreement(*alone).call(),
                 openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false}));
}

class CompiledKernels : public testing::TestWithParam<const char*> {};

TEST_P(CompiledKernels, AreThoseThatRun) {
  const std::string program = GetParam();
  const std::string directory = temporaryDirectory() + "/kernels_of_" + program;
  const ToolRun run = tool("compile {dir}/" + program + " --arch cpu -o " + directory);
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".tile") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  const CompiledProgram made = compiled(program);
  const Explanation explanation = explain(made, 0);
  size_t kernel = 0;
  for (const Step& step : made.host->steps) {
    if (step.kind == HostStepKind::Launch) {
      ASSERT_LT(kernel, files.size());
      EXPECT_EQ(fileText(files[kernel].string()), step.launch.program) << step.name;
      EXPECT_EQ(explanation.steps.at(kernel).name, step.name);
      kernel++;
    }
  }
  EXPECT_EQ(kernel, files.size());
}

INSTANTIATE_TEST_SUITE_P(Programs, CompiledKernels, testing::Values("column_and_row_sums.fir", "updated_in_place.fir"),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });

// The lines of a run that are no files, in order.
std::vector<std::string> stepLines(const std::string& out) {
  std::vector<std::string> lines;
  std::istringstream text(out);
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("  ")) {
      lines.push_back(line);
    }
  }
  return lines;
}

TEST(ToolCompile, PrintsEachStep) {
  const ToolRun run = tool("compile {dir}/steps_of_all_kinds.fir --arch cpu -o {tmp}/all_kinds");
  ASSERT_EQ(run.code, 0) << run.err;
  const std::vector<std::string> expected = {
      "oneDNN matmul T7[8, 6, r{4}]",
      "C++ routine scan T8[8, 6]",
      "C++ routine argsort T9[8, 6]",
      "kernel 00_pointwise_T14: checked_index",
      "C++ routine index_put_accumulate T10[8, 6]",
      "kernel 01_pointwise_T16: checked_index",
      "C++ routine scatter T11[8, 6]",
      "kernel 02_pointwise_T12: exp",
      "kernel 03_reduction_T18: reduce",
      "collective all-reduce T13[3]",
      "4 kernels for cpu",
  };
  EXPECT_EQ(stepLines(run.out), expected);
}

TEST(ToolCompile, PrintsViewsAndStepsWithoutElements) {
  const ToolRun run = tool("compile {dir}/view_and_no_elements.fir --arch cpu -o {tmp}/views");
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "view reshape T3[4]: no code\n");
  expectContains(run.out, "interpreter add T5[0]: some tensor has no elements\n");
}

TEST(ToolCompile, NamesTheRoutinesOfAGpu) {
  const ToolRun run = tool("compile {dir}/steps_of_all_kinds.fir --arch sm_90a -o {tmp}/routines");
  if (!cudaCapabilities().nvrtc) {
    GTEST_SKIP() << "no NVRTC";
  }
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* step : {"argsort T9[8, 6]", "index_put_accumulate T10[8, 6]", "scatter T11[8, 6]"}) {
    expectContains(run.out, std::string("CUDA routine ") + step + "\n");
  }
  expectContains(run.out, "kernel 00_scan_T8: scan\n");
}

// The casts before and after it are in the kernel of the scan.
TEST(ToolCompile, AScanOf16BitsIsOneKernelOfAGpu) {
  const ToolRun run =
      tool("compile {dir}/../../benchmarks/gpu_static/programs/cumsum_bf16.fir --arch sm_90a -o {tmp}/cumsum");
  if (!cudaCapabilities().nvrtc) {
    GTEST_SKIP() << "no NVRTC";
  }
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "1 kernel for sm_90a\n");
  EXPECT_EQ(run.out.find("routine"), std::string::npos) << run.out;
}

// As on a GPU with cuBLASLt.
TEST(ToolCompile, AGpuCallsALibraryForAMatrixProduct) {
  const ToolRun run = tool("compile {dir}/product_and_sum.fir --arch sm_90a -o {tmp}/product");
  if (!cudaCapabilities().nvrtc) {
    GTEST_SKIP() << "no NVRTC";
  }
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "kernel 00_reduction_T5: reduce\n  1 blocks of 256 threads, 128 bytes of shared memory\n");
  std::vector<std::string> lines = stepLines(run.out);
  lines.pop_back();  // the compiler's report
  const std::vector<std::string> expected = {"cuBLASLt matmul T3[8, 6, r{4}]", "kernel 00_reduction_T5: reduce",
                                             "collective all-reduce T4[3]", "1 kernel for sm_90a"};
  EXPECT_EQ(lines, expected);
}

// A kernel bypasses the caches of a GPU for results that outgrow them.
TEST(ToolCompile, TheScheduleFollowsTheArchitecture) {
  const auto bypasses = [](const std::string& arch) {
    (void)tool("compile {dir}/eleven_megabytes.fir -o {tmp}/" + arch + " --arch " + arch);
    const std::string text = fileText(temporaryDirectory() + "/" + arch + "/00_pointwise_T1.tile");
    EXPECT_FALSE(text.empty()) << arch;
    return text.find(" once") != std::string::npos;
  };
  EXPECT_TRUE(bypasses("sm_80")) << "40 MB";
  EXPECT_TRUE(bypasses("sm_86")) << "6 MB";
  EXPECT_FALSE(bypasses("sm_90")) << "50 MB";
}

TEST(ToolCompile, ADeviceHasTheFactsOfItsArchitecture) {
  const DeviceInfo gpu = namedDevice("sm_90")->info();
  const DeviceInfo known = DeviceInfo::hopper();
  EXPECT_EQ(gpu.target, known.target);
  EXPECT_EQ(gpu.l1Bytes, known.l1Bytes) << "not that of this machine's CPU";
  EXPECT_EQ(gpu.l2Bytes, known.l2Bytes);
  EXPECT_EQ(gpu.lastCacheBytes, known.lastCacheBytes);
  EXPECT_EQ(gpu.library, "cuBLASLt");
  const DeviceInfo cpu = namedDevice("cpu")->info();
  const DeviceInfo opened = openDevice(DeviceId::cpu(), {.threads = 1})->info();
  EXPECT_EQ(cpu.l1Bytes, opened.l1Bytes);
  EXPECT_EQ(cpu.l2Bytes, opened.l2Bytes);
  EXPECT_EQ(cpu.lastCacheBytes, opened.lastCacheBytes);
}

TEST(ToolCompile, AnUnknownArchitectureIsRefusedWithTheKnownOnes) {
  for (const char* arch : {"gfx90a", "sm_", "sm_999", "sm_75"}) {
    const ToolRun run = tool(std::string("compile {dir}/eleven_megabytes.fir -o {tmp}/unknown --arch ") + arch);
    EXPECT_EQ(run.code, 2) << run.err;
    expectContains(run.err, std::string("\"") + arch + "\"");
    expectContains(run.err, "sm_80, sm_86");
    expectContains(run.err, "sm_90");
  }
}

}  // namespace
}  // namespace meshfuse
