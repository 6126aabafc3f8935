// Fusions through the GPU schedulers and the emitter: under the emulator, and the same texts through NVRTC.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "device/cuda/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "simt/scheduled/fusions.h"

namespace meshfuse::simt {
namespace {

struct Family {
  std::string name;
  std::function<ScheduledBatch()> fusions;
};

class ScheduledKernel : public testing::TestWithParam<Family> {
 protected:
  // Run once for all tests of a family.
  const std::vector<ScheduledVerdict>& verdicts() {
    static std::map<std::string, std::vector<ScheduledVerdict>> ofFamily;
    auto [it, isNew] = ofFamily.try_emplace(GetParam().name);
    if (isNew) {
      it->second = runScheduled(GetParam().fusions().cases);
    }
    return it->second;
  }
};

INSTANTIATE_TEST_SUITE_P(Family, ScheduledKernel,
                         testing::Values(Family{"Pointwise", pointwiseFusions}, Family{"Transpose", transposeFusions},
                                         Family{"Reduction", reductionFusions}, Family{"Scan", scanFusions},
                                         Family{"Normalization", normalizationFusions}),
                         [](const auto& p) { return p.param.name; });

TEST_P(ScheduledKernel, IsRight) {
  for (const ScheduledVerdict& v : verdicts()) {
    EXPECT_TRUE(v.right()) << v.describe();
  }
}

// Schedules for a GPU with accesses of 32 bytes and other numbers of multiprocessors.
TEST_P(ScheduledKernel, IsRightOnAnotherGpu) {
  const std::vector<ScheduledVerdict> all =
      runScheduled(GetParam().fusions().cases, *DeviceInfo::ofArchitecture("sm_100"));
  for (const ScheduledVerdict& v : all) {
    EXPECT_TRUE(v.right()) << v.describe();
  }
  EXPECT_TRUE(std::ranges::any_of(all, [](const ScheduledVerdict& v) {
    return v.source.text.find("Vector<8, kReadOnly, 32>") != std::string::npos ||
           v.source.text.find("Vector<8, kOnce, 32>") != std::string::npos;
  }));
}

TEST_P(ScheduledKernel, CompilesForSm90aAsTheTextThatWasEmulated) {
  if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
  }
  NvrtcCompiler compiler;
  for (const ScheduledVerdict& v : verdicts()) {
    Cubin cubin = compiler.compileCubin(v.source.text, "sm_90a");
    EXPECT_EQ(cubin.text, v.result.text) << v.plan.program.name;
    EXPECT_EQ(cubin.bytes.substr(1, 3), "ELF");
    EXPECT_NE(cubin.bytes.find(v.source.entry), std::string::npos);
    EXPECT_EQ(cubin.log, "") << v.describe();
  }
  EXPECT_EQ(compiler.counters().compiled, std::ssize(verdicts()));
}

}  // namespace
}  // namespace meshfuse::simt
