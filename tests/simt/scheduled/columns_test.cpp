// Kernels that sum rows and columns: blocks sum columns over their rows in registers, and exchange these sums in two levels.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "device/cuda/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "simt/scheduled/fusions.h"

namespace meshfuse::simt {
namespace {

using Tensors = std::vector<TensorView*>;

// So few multiprocessors that some hundred rows occupy them.
DeviceInfo gpuOfFourProcessors() {
  DeviceInfo device = DeviceInfo::hopper();
  device.gpu.processors = 4;
  return device;
}

void addNormBackward(ScheduledBatch& b, int64_t m, int64_t n, DataType type = DataType::Float) {
  b.add(
      {{m, n}, {m, n}, {m, 1}, {m, 1}, {n}},
      [=](const Tensors& t) {
        const BackwardNormResult g = layer_norm_backward(t[0], t[1], {n}, t[2], t[3], t[4], t[4]);
        t[0]->fusion().addOutput(g.grad_weight);
        t[0]->fusion().addOutput(g.grad_bias);
        return g.grad_input;
      },
      type);
}

// Rows of one warp and of several, of vectors and of single elements, rows beyond the last, and as many groups as blocks in each or fewer.
ScheduledBatch columnFusions() {
  ScheduledBatch b;
  addNormBackward(b, 256, 129);
  addNormBackward(b, 300, 200);
  addNormBackward(b, 1025, 144);
  addNormBackward(b, 256, 4096);
  addNormBackward(b, 260, 1500, DataType::BFloat16);
  b.add({{300, 200}}, [](const Tensors& t) {
    t[0]->fusion().addOutput(max(t[0], {0}));
    t[0]->fusion().addOutput(sum(mul(t[0], t[0]), {0}));
    return sum(t[0], {1});
  });
  b.add({{512, 300}, {300}}, [](const Tensors& t) {
    t[0]->fusion().addOutput(add(t[1], sum(div(t[0], add(sum(abs(t[0]), {1}, true), 1.0)), {0})));
    return add(t[0], 1.0);
  });
  return b;
}

TEST(ScheduledColumns, AreRight) {
  for (const ScheduledVerdict& v : runScheduled(columnFusions().cases, gpuOfFourProcessors())) {
    EXPECT_TRUE(v.right()) << v.describe();
  }
}

TEST(ScheduledColumns, CompileForSm90a) {
  if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
  }
  NvrtcCompiler compiler;
  for (const ScheduledVerdict& v : runScheduled(columnFusions().cases, gpuOfFourProcessors())) {
    EXPECT_EQ(compiler.compileCubin(v.source.text, "sm_90a").log, "") << v.describe();
  }
}

// With 32 rows in each block.
TEST(ScheduledColumns, TouchFewSectorsWithoutConflicts) {
  ScheduledBatch b;
  for (const DataType type : {DataType::Float, DataType::BFloat16}) {
    addNormBackward(b, 256, 4096, type);
  }
  const auto counted = [](std::span<const Launch> launches) {
    std::vector<Launch> all(launches.begin(), launches.end());
    for (Launch& l : all) {
      l.countSectors = true;
    }
    return run(all);
  };
  for (const ScheduledVerdict& v : runScheduled(b.cases, gpuOfFourProcessors(), counted)) {
    int64_t sectors = 0;
    int64_t ideal = 0;
    for (const TensorTraffic& t : v.result.tensors) {
      sectors += t.sectors;
      ideal += t.idealSectors;
    }
    EXPECT_LE(static_cast<double>(sectors), 1.05 * static_cast<double>(ideal)) << v.describe();
    EXPECT_EQ(v.result.sharedConflicts, 0);
  }
}

// A block that takes itself for the last one before others have stored their sums, a counter that is not 0 after the launch, and threads
// that read the ticket too early.
TEST(ScheduledColumns, FaultsOfTheirExchangesAreNoticed) {
  ScheduledBatch b;
  addNormBackward(b, 300, 200);
  const std::string text = runScheduled(b.cases, gpuOfFourProcessors())[0].source.text;
  const size_t ofGroup = text.find("ticket(arrived");
  const size_t ofAll = text.find("ticket(ended");
  ASSERT_NE(ofGroup, std::string::npos) << text;
  ASSERT_NE(ofAll, std::string::npos) << text;
  std::vector<std::string> faulty;
  for (const size_t ticket : {ofGroup, ofAll}) {
    const size_t minus = text.find(" - 1,", ticket);
    faulty.push_back(std::string(text).replace(minus, 4, " - 3"));
    const size_t workers = text.find(", ", ticket) + 2;
    faulty.push_back(std::string(text).insert(workers, "1000 + "));  // the counter does not become 0 again
    const size_t barrier = text.find("barrier(", ticket);
    faulty.push_back(std::string(text).erase(barrier, text.find('\n', barrier) - barrier));
  }
  for (const std::string& fault : faulty) {
    const auto planted = [&](std::span<const Launch> launches) {
      std::vector<Launch> changed(launches.begin(), launches.end());
      changed[0].kernel.source.text = fault;
      return run(changed);
    };
    EXPECT_FALSE(runScheduled(b.cases, gpuOfFourProcessors(), planted)[0].right()) << fault;
  }
}

}  // namespace
}  // namespace meshfuse::simt
