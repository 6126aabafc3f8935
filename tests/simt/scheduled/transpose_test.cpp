// Transposes under the emulator: shared memory without bank conflicts, global memory in whole sectors, no spilled registers.
#include <gtest/gtest.h>

#include <cstring>

#include "architectures.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "ops/shape_ops.h"
#include "simt/scheduled/cubin_frame.h"
#include "simt/scheduled/fusions.h"

namespace meshfuse::simt {
namespace {

using Tensors = std::vector<TensorView*>;

std::vector<ScheduledVerdict> counted(
    const std::vector<ScheduledCase>& cases, const std::function<void(std::string&)>& change = [](std::string&) {}) {
  return runScheduled(cases, DeviceInfo::hopper(), [&](std::span<const Launch> launches) {
    std::vector<Launch> all(launches.begin(), launches.end());
    for (Launch& l : all) {
      l.countSectors = true;
      change(l.kernel.source.text);
    }
    return run(all);
  });
}

ScheduledBatch matrices() {
  ScheduledBatch b;
  for (DataType type : {DataType::Double, DataType::Float, DataType::BFloat16, DataType::Char, DataType::Byte}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{128, 64}, {192, 256}, {65, 127}}) {
      b.add(
          {shape},
          [](const Tensors& t) {
            return permute(t[0], {1, 0});
          },
          type);
    }
  }
  return b;
}

TEST(ScheduledTranspose, HasNoConflictsInSharedMemory) {
  for (const ScheduledVerdict& v : counted(matrices().cases)) {
    EXPECT_TRUE(v.right()) << v.describe();
    EXPECT_EQ(v.plan.kind, "transpose");
    EXPECT_EQ(v.result.sharedConflicts, 0) << v.describe();
  }
}

// Rows without padding: the conflicts that the count must see.
TEST(ScheduledTranspose, WouldHaveConflictsWithoutPadding) {
  ScheduledBatch b;
  b.add({{64, 64}}, [](const Tensors& t) { return permute(t[0], {1, 0}); });
  const std::vector<ScheduledVerdict> verdicts = counted(b.cases, [](std::string& text) {
    const size_t kernel = text.find("//@ kernel");
    for (const auto& [padded, plain] :
         {std::pair{"n_l*260", "n_l*256"}, {"n_r*2080", "n_r*2048"}, {"nt_w*260", "nt_w*256"}}) {
      const size_t at = text.find(padded, kernel);
      ASSERT_NE(at, std::string::npos) << padded << text.substr(kernel);
      text.replace(at, std::strlen(padded), plain);
    }
  });
  EXPECT_TRUE(verdicts[0].right()) << verdicts[0].describe();
  EXPECT_GT(verdicts[0].result.sharedConflicts, 0);
}

TEST(ScheduledTranspose, TouchesFewSectors) {
  ScheduledBatch b;
  for (DataType type : {DataType::Float, DataType::BFloat16}) {
    b.add(
        {{128, 256}},
        [](const Tensors& t) {
          return permute(t[0], {1, 0});
        },
        type);
    b.add(
        {{4, 32, 128}},
        [](const Tensors& t) {
          return permute(t[0], {2, 0, 1});
        },
        type);
  }
  for (const ScheduledVerdict& v : counted(b.cases)) {
    for (const TensorTraffic& t : v.result.tensors) {
      EXPECT_EQ(t.sectors, t.idealSectors) << v.describe();
      EXPECT_EQ(t.requests * 512, t.readBytes + t.writtenBytes) << "an access is not 16 bytes wide\n" << v.describe();
    }
  }
}

TEST(ScheduledTranspose, SpillsNoRegisters) {
  if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
  }
  NvrtcCompiler compiler;
  const std::string spills =
      "extern \"C\" __global__ void k(int* p, int n) { volatile int a[64]; for (int i = 0; i < n; i++) a[i % 64] = "
      "p[i]; *p = a[n]; }";
  EXPECT_GE(frameBytes(compiler.compileCubin(spills, "sm_90a").bytes), 256);
  const ScheduledBatch batch = transposeFusions();
  const auto nothing = [](std::span<const Launch> launches) { return std::vector<Result>(launches.size()); };
  for (const ScheduledVerdict& v : runScheduled(batch.cases, DeviceInfo::hopper(), nothing)) {
    for (const char* arch : kArchitectures) {
      const Cubin cubin = compiler.compileCubin(v.source.text, arch);
      EXPECT_EQ(frameBytes(cubin.bytes), 0) << arch << "\n" << v.source.text;
      EXPECT_EQ(cubin.log, "");
    }
  }
}

}  // namespace
}  // namespace meshfuse::simt
