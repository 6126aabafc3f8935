// meshfuse run --device: refusals, and programs on the simulated GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "meshfuse_config.h"
#include "sanitized.h"
#include "tools/tool.h"

namespace meshfuse {
namespace {

TEST(ToolDevice, RefusesWhatIsNoDevice) {
  for (const char* text : {"gpu", "cuda:x", "cuda:-1", "''"}) {
    const ToolRun r = tool(std::string("run {dir}/softmax.fir --size i0=4 --size i1=4 --device ") + text);
    EXPECT_EQ(r.code, 2) << r.err;
    EXPECT_NE(r.err.find("is no device; expected cpu, cuda:0 (the number of a GPU), or ext:0"), std::string::npos)
        << r.err;
  }
}

TEST(ToolDevice, SaysWhyThereIsNoGpu) {
  const ToolRun r =
      tool("run {dir}/softmax.fir --size i0=4 --size i1=4 --device cuda", "env MESHFUSE_CUDA_LIBRARIES=/nothing");
  EXPECT_EQ(r.code, 3) << r.err;
  expectContains(r.err, "[device] rank 0 has no GPU: /nothing/libcuda.so.1: ");
  const ToolRun named =
      tool("run {dir}/softmax.fir --size i0=4 --size i1=4 --device cuda:0", "env MESHFUSE_CUDA_LIBRARIES=/nothing");
  EXPECT_EQ(named.code, 3) << named.err;
  expectContains(named.err, "[cuda] no device can be used: /nothing/libcuda.so.1: ");
}

TEST(ToolDevice, CapabilitiesNameWhatIsMissing) {
  const ToolRun r = tool("capabilities", "env MESHFUSE_CUDA_LIBRARIES=/nothing");
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* row :
       {"\nGPUs                 no   /nothing/libcuda.so.1: ", "\nGPU kernels          no   /nothing/libnvrtc.so.",
        "\nGPU matrix products  no   /nothing/libcublasLt.so.",
        "\nGPU collectives      no   /nothing/libnccl.so.2: "}) {
    expectContains(r.out, row);
  }
  expectContains(r.out,
                 kHasLlvm ? "\nCPU kernels          yes  LLVM\n" : "\nCPU kernels          no   built without LLVM\n");
  expectContains(r.out,
                 kHasUcx ? "\nnetwork of hosts     yes  UCX\n" : "\nnetwork of hosts     no   built without UCX\n");
}

TEST(ToolDevice, CapabilitiesNameTheGpusAndTheirLibraries) {
  if (kSanitized) {
    GTEST_SKIP() << "the release build runs it";
  }
  const ToolRun r = tool(
      "capabilities", std::string("env SIMGPU_DEVICES=2 MESHFUSE_CUDA_LIBRARIES=") + MESHFUSE_BINARY_DIR + "/simgpu");
  EXPECT_EQ(r.code, 0) << r.err;
  expectContains(r.out, "\nGPUs                 yes  driver API 13.0, sm_90, sm_90\n");
  expectContains(r.out, "\nGPU kernels          yes  NVRTC 13.900 from ");
  expectContains(r.out, "\nGPU matrix products  yes  cuBLASLt 139900 from ");
  expectContains(r.out, "\nGPU collectives      yes  NCCL 29900 from ");
  expectContains(r.out, "libnccl.so.2, which registers the arenas of programs\n");
}

// The same steps on a GPU and for an architecture by name. The memory differs: what a product needs is known on the GPU only.
TEST(ToolDevice, ExplainsAProgramForAGpu) {
  const std::string steps =
      "steps of a rank, on its local tensors\n"
      "  library T3[8, 6, r{4}]: matmul\n"
      "      reads T0[8, 4], T1[4, 6] (224 bytes), writes T3[8, 6, r{4}] (192 bytes)\n"
      "  kernel reduction T5[r{4}, 3]: reduce\n";
  const ToolRun named =
      tool("explain {dir}/product_and_sum.fir --device sm_90a", "env MESHFUSE_CUDA_LIBRARIES=/nothing");
  EXPECT_EQ(named.code, 0) << named.err;
  expectContains(named.out, steps);
  if (kSanitized) {
    GTEST_SKIP() << "the release build explains it for the simulated GPU";
  }
  const ToolRun opened = tool("explain {dir}/product_and_sum.fir --device cuda",
                              std::string("env MESHFUSE_CUDA_LIBRARIES=") + MESHFUSE_BINARY_DIR + "/simgpu");
  EXPECT_EQ(opened.code, 0) << opened.err;
  const auto between = [](const std::string& text, const char* first, const char* last) {
    const size_t begin = text.find(first);
    return begin == std::string::npos ? text : text.substr(begin, text.find(last, begin) - begin);
  };
  EXPECT_EQ(between(opened.out, "tensors of the planned program", "\n  peak"),
            between(named.out, "tensors of the planned program", "\n  peak"));
  EXPECT_EQ(between(opened.out, "  sm_90a: 132", "\n"), between(named.out, "  sm_90a: 132", "; a matrix product"));
  expectContains(named.out, "planned with a workspace of 32 MiB, the most that it may need");
  expectContains(named.out, "an arena of 32.0 MiB");
  EXPECT_EQ(opened.out.find("planned with a workspace"), std::string::npos);
}

// NCCL's maximum of floating numbers is not that of meshfuse: a kernel makes it, in the same graph.
TEST(ToolDevice, ExplainsTheGraphsOfACall) {
  const std::string nothing = "env MESHFUSE_CUDA_LIBRARIES=/nothing";
  const ToolRun whole = tool("explain {dir}/sharded_sum.fir --device sm_90a", nothing);
  expectContains(whole.out,
                 "CUDA graphs of a call whose tensors have the addresses of the call before\n  graph of 2 steps: ");
  EXPECT_EQ(whole.out.find("no graph"), std::string::npos) << whole.out;
  const ToolRun combined = tool("explain {dir}/sum_and_maximum.fir --device sm_90a", nothing);
  expectContains(combined.out, "\n  graph of 4 steps: reduction T4[r{2}, 3] to pointwise T3[3]\n");
  const ToolRun alone = tool("explain {dir}/softmax.fir --size i0=4 --size i1=4 --device sm_90a", nothing);
  expectContains(alone.out, ": one step alone is launched as it is\n");
  EXPECT_EQ(tool("explain {dir}/sum_and_maximum.fir").out.find("graphs of a call"), std::string::npos);
}

TEST(ToolDevice, ExplainsNothingForAGpuThatCannotRunIt) {
  const std::string unknown = "explain {dir}/softmax.fir --size i0=4 --size i1=4 --device ";
  const ToolRun noArchitecture = tool(unknown + "sm_1");
  EXPECT_EQ(noArchitecture.code, 2) << noArchitecture.err;
  const ToolRun noDevice = tool(unknown + "gpu");
  EXPECT_EQ(noDevice.code, 2) << noDevice.err;
  expectContains(noDevice.err, "\"gpu\" is no device; expected cpu, cuda:0 (the number of a GPU), or ext:0");
  const ToolRun timeline = tool(unknown + "sm_90 --run --json");
  EXPECT_EQ(timeline.code, 2) << timeline.err;
  expectContains(timeline.err, "--run runs on the CPU, --device is sm_90");
}

// Kernels of CUDA 13 for a driver of CUDA 12, an NCCL without the functions that are called: the rows say so, and what a program does instead.
TEST(ToolDevice, CapabilitiesNameWhatIsTooOld) {
  if (kSanitized) {
    GTEST_SKIP() << "the release build runs it";
  }
  const std::string simulated = "MESHFUSE_CUDA_LIBRARIES=" MESHFUSE_BINARY_DIR "/simgpu";
  const std::string tooNew = "the driver has CUDA 12.4 and cannot load kernels that NVRTC 13.900";
  const std::string remedy = "install a driver with CUDA 13 or later, or NVRTC of CUDA 12 in its place";
  const ToolRun oldDriver = tool("capabilities", "env SIMGPU_DRIVER=12040 " + simulated);
  EXPECT_EQ(oldDriver.code, 0) << oldDriver.err;
  expectContains(oldDriver.out, "\nGPU kernels          no   " + tooNew);
  expectContains(oldDriver.out, remedy);
  const ToolRun refused =
      tool("run {dir}/softmax.fir --size i0=4 --size i1=4 --device cuda", "env SIMGPU_DRIVER=12040 " + simulated);
  EXPECT_EQ(refused.code, 3) << refused.err;
  expectContains(refused.err, tooNew);
  expectContains(refused.err, remedy);
  const std::string oldNccl = "env SIMGPU_DEVICES=4 SIMGPU_NCCL_VERSION=21800 " + simulated;
  expectContains(tool("capabilities", oldNccl).out,
                 "\nGPU collectives      no   NCCL 21800 is older than 2.19: they go through host memory\n");
  const ToolRun staged = tool("run {dir}/sum_and_maximum.fir --device cuda --verify", oldNccl);
  EXPECT_EQ(staged.code, 0) << staged.out << staged.err;
  expectContains(staged.out, "the outputs agree with the reference interpreter");
}

// A kernel is compiled for the host when it first runs: half a second each. Each rank has a GPU.
TEST(ToolDevice, RunsProgramsOnTheSimulatedGpu) {
  if (kSanitized) {
    GTEST_SKIP() << "the release build runs them";
  }
  const std::string simulated =
      std::string("env SIMGPU_DEVICES=4 MESHFUSE_CUDA_LIBRARIES=") + MESHFUSE_BINARY_DIR + "/simgpu";
  for (const char* program : {"softmax.fir --size i0=37 --size i1=130",
                              "column_and_row_sums.fir",
                              "updated_in_place.fir",
                              "sharded_sum.fir",
                              "rows_to_columns.fir",
                              "view_and_no_elements.fir",
                              "scaled_embedding.fir",
                              "product_and_sum.fir",
                              "two_meshes.fir",
                              "neighbours.fir",
                              "mlp_of_any_size.fir --mesh tp=2",
                              "plain_mlp.fir --size i0=8",
                              "named.fir --size i0=8",
                              "overlapped.fir",
                              "rows_of_experts.fir",
                              "rows_of_the_last_ranks.fir",
                              "rows_on_two_ranks.fir",
                              "sum_and_maximum.fir",
                              "uneven_rows.fir",
                              "joined_rows_of_any_size.fir --size i0=8",
                              "steps_of_all_kinds.fir"}) {
    const ToolRun r = tool(std::string("run {dir}/") + program + " --ranks 4 --verify --device cuda", simulated);
    EXPECT_EQ(r.code, 0) << program << "\n" << r.out << r.err;
    expectContains(r.out, "the outputs agree with the reference interpreter");
  }
}

TEST(ToolDevice, RanksTakeTheGpusOfTheirHost) {
  if (kSanitized) {
    GTEST_SKIP() << "the release build runs it";
  }
  if (!kHasPmix || std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no PMIx or no mpirun";
  }
  int jobs = 0;
  const auto run = [&](const std::string& environment, const std::string& arguments) {
    return tool("run {dir}/tensor_parallel_mlp.fir --size i0=8 --device cuda --verify " + arguments,
                "env MESHFUSE_CUDA_LIBRARIES=" MESHFUSE_BINARY_DIR "/simgpu SIMGPU_JOB=" + temporaryDirectory() +
                    "/job" + std::to_string(jobs++) + " " + environment);
  };
  const std::string twoProcesses = "mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2";
  for (const ToolRun& r : {run("SIMGPU_DEVICES=2 " + twoProcesses, "--mpi"),
                           run("MESHFUSE_DEVICE=cuda:0 " + twoProcesses, "--mpi"), run("", "--ranks 2")}) {
    EXPECT_EQ(r.code, 0) << r.out << r.err;
    expectContains(r.out, "the outputs agree with the reference interpreter");
    expectContains(r.out, "planned 512 bytes, counted by the transport 512 bytes");
  }
  const ToolRun tooMany = run(twoProcesses, "--mpi");
  EXPECT_EQ(tooMany.code, 2) << tooMany.err;
  expectContains(
      tooMany.err,
      "the ranks 0, 1 are on one host, which has 1 GPU for them; start fewer ranks there, or let ranks share");
}

TEST(ToolDevice, SaysWhatAProgramTakesIfMemoryRunsOut) {
  if (kSanitized) {
    GTEST_SKIP() << "the release build runs it";
  }
  const ToolRun r = tool("run {dir}/softmax.fir --size i0=1000 --size i1=1000 --device cuda",
                         "env SIMGPU_MEMORY=6000000 MESHFUSE_CUDA_LIBRARIES=" MESHFUSE_BINARY_DIR "/simgpu");
  EXPECT_EQ(r.code, 2) << r.out << r.err;
  expectContains(r.err, "[cuda] cuda:0 has no memory for 4000000 bytes: ");
  expectContains(r.err, " of 6000000 are free");
  expectContains(r.err, "the program takes 8000000 bytes: arguments, results and an arena of ");
  expectContains(r.err, "; its largest tensor is ");
}

}  // namespace
}  // namespace meshfuse
