// Matrix products by cuBLASLt on a GPU, or on the simulated one, compared with the reference interpreter.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/disk_cache.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/cublaslt/algorithms.h"
#include "device/cuda/cublaslt/library.h"
#include "device/cuda/cublaslt/product.h"
#include "device/cuda/driver/context.h"
#include "device/open.h"
#include "host/program.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

class GpuProducts : public testing::Test {
 protected:
  void SetUp() override {
    const CudaCapabilities c = cudaCapabilities();
    if (!c.driver || !c.nvrtc) {
      GTEST_SKIP() << "no GPU: " << c.driverNote << "; " << c.nvrtcNote;
    }
    if (!cublasLtLibrary().usable()) {
      GTEST_SKIP() << "no cuBLASLt: " << cublasLtLibrary().reason();
    }
  }

  using Build = std::function<TensorView*(const std::vector<TensorView*>&)>;

  // With the same strides and the same alignment to 64 bytes.
  static Tensor copyOnDevice(const Tensor& t) {
    const int64_t before = static_cast<int64_t>(std::bit_cast<uintptr_t>(t.data()) % 64);
    const Tensor bytes = Tensor::wrap(static_cast<char*>(t.data()) - before, {before + t.spannedBytes()}, {1},
                                      DataType::Bool, t.storage());
    const Tensor copy = bytes.to(DeviceId::cuda(0));
    return Tensor::wrap(static_cast<char*>(copy.data()) + before, {t.sizes().begin(), t.sizes().end()},
                        {t.strides().begin(), t.strides().end()}, t.dtype(), copy.storage(), DeviceId::cuda(0));
  }

  // The names of the steps of a program of these inputs, which has run twice on the device with the results of the interpreter.
  static std::vector<std::string> steps(const std::vector<Tensor>& inputs, const Build& build) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      std::vector<TensorView*> views;
      for (const Tensor& t : inputs) {
        views.push_back(stridedInput(*fusion, {t.sizes().begin(), t.sizes().end()}, t.dtype()));
      }
      fusion->addOutput(build(views));
    }
    const std::vector<Argument> onHost(inputs.begin(), inputs.end());
    const std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, onHost);
    std::vector<Argument> onDevice;
    for (const Tensor& t : inputs) {
      onDevice.emplace_back(copyOnDevice(t));
    }
    FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Always});
    for (int i = 0; i < 2; i++) {
      const Tensor got = cache.runFusionWithInputs(onDevice)[0];
      EXPECT_EQ(got.device(), DeviceId::cuda(0));
      EXPECT_EQ(compare(got.to(DeviceId::cpu()), expected[0]).value_or(""), "");
    }
    std::vector<std::string> names;
    for (const Step& s : cache.hostProgram()->steps) {
      names.push_back(s.kind == HostStepKind::Routine ? s.name.substr(0, s.name.find(' ')) : "kernel");
    }
    return names;
  }

  static void expectOne(const std::string& op, const std::vector<Tensor>& inputs, const Build& build) {
    EXPECT_EQ(steps(inputs, build), std::vector<std::string>{op});
  }
};

TensorView* product(const std::vector<TensorView*>& in) { return matmul(in[0], in[1]); }
TensorView* rows(const std::vector<TensorView*>& in) {
  return in.size() > 2 ? linear(in[0], in[1], in[2]) : linear(in[0], in[1]);
}

TEST_F(GpuProducts, OfAllTypes) {
  for (const DataType type : {DataType::Float, DataType::Double, DataType::Half, DataType::BFloat16}) {
    SCOPED_TRACE(name(type));
    expectOne("matmul", {random({12, 20}, 1, type), random({20, 9}, 2, type)}, product);
    expectOne("linear", {random({12, 20}, 1, type), random({9, 20}, 2, type)}, rows);
  }
  for (const DataType type : {DataType::Float, DataType::Half, DataType::BFloat16}) {
    SCOPED_TRACE(name(type));
    expectOne("linear", {random({5, 20}, 1, type), random({9, 20}, 2, type), random({9}, 3, type)}, rows);
  }
}

TEST_F(GpuProducts, OfVectorsAndSmallMatrices) {
  for (const auto& [a, b] :
       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{{{7}, {7}},
                                                                          {{7}, {7, 3}},
                                                                          {{4, 7}, {7}},
                                                                          {{1, 7}, {7, 1}},
                                                                          {{4, 1}, {1, 3}},
                                                                          {{1, 1}, {1, 1}},
                                                                          {{64, 300}, {300, 40}}}) {
    expectOne("matmul", {random(a, 1), random(b, 2)}, product);
  }
  expectOne("linear", {random({3, 5, 8}, 1), random({8}, 2)}, rows);
  expectOne("linear", {random({2, 3, 5, 8}, 1), random({6, 8}, 2), random({6}, 3)}, rows);
}

// Batches that one call takes, and batches that need several.
TEST_F(GpuProducts, OfBatches) {
  for (const auto& [a, b] :
       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{{{6, 4, 7}, {6, 7, 3}},
                                                                          {{6, 4, 7}, {7, 3}},
                                                                          {{4, 7}, {6, 7, 3}},
                                                                          {{1, 4, 7}, {6, 7, 3}},
                                                                          {{2, 3, 4, 7}, {2, 3, 7, 5}},
                                                                          {{2, 3, 4, 7}, {3, 7, 5}},
                                                                          {{2, 1, 4, 7}, {1, 3, 7, 5}},
                                                                          {{2, 1, 2, 4, 8}, {3, 1, 8, 5}},
                                                                          {{3, 1, 4, 7}, {3, 1, 7, 5}}}) {
    expectOne("matmul", {random(a, 1), random(b, 2)}, product);
    expectOne("matmul", {random(a, 1, DataType::Half), random(b, 2, DataType::Half)}, product);
  }
}

// Columns in memory, rows that are further apart than they are long, and a batch dim between the two of a matrix.
TEST_F(GpuProducts, OfStridedOperands) {
  const Tensor x = random({24, 40}, 1);
  expectOne("matmul", {x.asStrided({40, 24}, {1, 40}), random({24, 5}, 2)}, product);
  expectOne("matmul", {x, random({5, 40}, 2).asStrided({40, 5}, {1, 40})}, product);
  expectOne("matmul", {x.asStrided({8, 16}, {40, 1}, 3), x.asStrided({16, 9}, {40, 1}, 7)}, product);
  expectOne("linear", {x.asStrided({6, 8}, {80, 1}), x.asStrided({24, 8}, {40, 1}, 1)}, rows);
  expectOne("matmul", {x.asStrided({4, 24, 10}, {10, 40, 1}), x.asStrided({4, 10, 24}, {10, 1, 40})}, product);
  expectOne("matmul",
            {x.asStrided({2, 4, 6, 10}, {20, 80, 320, 1}, 0).asStrided({2, 3, 4, 10}, {20, 320, 80, 1}),
             random({2, 3, 10, 5}, 2)},
            product);
}

// Each address a program may pass: the algorithm is chosen for its alignment.
TEST_F(GpuProducts, OfOperandsOfAnyAlignment) {
  for (const int64_t offset : {0, 1, 2, 3, 4, 8, 16, 31}) {
    for (const DataType type : {DataType::Half, DataType::Float}) {
      const Tensor x = random({1000}, 1, type);
      const Tensor w = random({1000}, 2, type);
      expectOne("linear",
                {x.asStrided({8, 16}, {16, 1}, offset), w.asStrided({12, 16}, {16, 1}, 2 * offset),
                 w.asStrided({12}, {1}, 500 + offset)},
                rows);
    }
  }
}

// The arena aligns to 64 bytes, the library wants its workspace at a multiple of 256.
TEST_F(GpuProducts, WithAWorkspaceAnywhere) {
  for (const int64_t rowsOfX : {68, 69, 70, 71}) {  // of 64 bytes, in front of the workspace
    const std::vector<std::string> names =
        steps({random({rowsOfX, 16}, 1), random({4, 16}, 2)},
              [](const std::vector<TensorView*>& in) { return exp(linear(exp(in[0]), in[1])); });
    EXPECT_EQ(names, (std::vector<std::string>{"kernel", "linear", "kernel"}));
  }
}

// What the library does not take is a kernel.
TEST_F(GpuProducts, OrElseAKernel) {
  const auto isCall = [](const std::vector<std::string>& names) {
    return std::ranges::any_of(names, [](const std::string& n) { return n != "kernel"; });
  };
  const Tensor x = random({400}, 1);
  EXPECT_FALSE(isCall(steps({x.asStrided({4, 8}, {16, 2}), random({8, 5}, 2)}, product))) << "no unit stride";
  EXPECT_FALSE(isCall(steps({random({4, 8}, 1, DataType::Int), random({8, 5}, 2, DataType::Int)}, product)));
  EXPECT_FALSE(isCall(steps(
      {random({4, 8}, 1, DataType::Double), random({5, 8}, 2, DataType::Double), random({5}, 3, DataType::Double)},
      rows)))
      << "a bias of Double";
  EXPECT_FALSE(isCall(steps({random({4, 0}, 1), random({0, 5}, 2)}, product))) << "no elements";
}

std::string joinedNames(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) {
    text += (text.empty() ? "" : " ") + n;
  }
  return text;
}

// The library's relu makes 0 of NaN, its gelu is less exact than the bounds of the reference.
TEST_F(GpuProducts, ActivationsAreKernels) {
  for (const DataType type : {DataType::Float, DataType::Half, DataType::BFloat16}) {
    SCOPED_TRACE(name(type));
    Tensor x = random({12, 20}, 1, type);
    x.set(std::vector<int64_t>{3, 5}, NAN);
    for (TensorView* (*const activation)(TensorView*) : {relu, tanh_gelu, gelu}) {
      EXPECT_EQ(joinedNames(steps({x, random({9, 20}, 2, type), random({9}, 3, type)},
                                  [&](const auto& in) { return maybeCastOp(type, activation(rows(in))); })),
                "linear kernel");
    }
  }
}

// The algorithm of a product is a part of its plan.
TEST_F(GpuProducts, ChooseAnAlgorithmOncePerPlan) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* a = stridedInput(*fusion, {13, 20}, DataType::Float);
    TensorView* b = stridedInput(*fusion, {20, 9}, DataType::Float);
    fusion->addOutput(matmul(a, b));
  }
  const std::vector<Argument> inputs = {copyOnDevice(random({13, 20}, 1)), copyOnDevice(random({20, 9}, 2))};
  const auto algorithms = [] {
    const std::string report = openDevice(DeviceId::cuda(0))->compilerReport();
    return report.substr(report.find("cuBLASLt chose"));
  };
  FusionExecutorCache cache(std::move(fusion));
  const std::string before = algorithms();
  static_cast<void>(cache.runFusionWithInputs(inputs));
  const std::string first = algorithms();
  EXPECT_NE(first, before);
  for (int i = 0; i < 3; i++) {
    static_cast<void>(cache.runFusionWithInputs(inputs));
  }
  EXPECT_EQ(algorithms(), first);
}

// Whose algorithms serve one shape each, and need workspace.
bool isSimulated() { return std::getenv("MESHFUSE_CUDA_LIBRARIES") != nullptr; }

class GpuAlgorithms : public GpuProducts {
 protected:
  void SetUp() override {
    GpuProducts::SetUp();
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Makes a product of [m, 300] and [300, 40], with what is on disk.
  struct Made {
    AlgorithmCounters counters;
    int64_t workspaceBytes = 0;
    Hash128 key;
  };
  Made make(int64_t m, const DeviceInfo& device) const {
    Fusion fusion;
    FusionGuard guard(&fusion);
    const TensorView* c = matmul(makeContigConcreteTensor({m, 300}), makeContigConcreteTensor({300, 40}));
    const CudaContext context(0);
    const CurrentContext current(context);
    DiskCache cache(folder_);
    const CublasLtHandle handle(device, &cache);
    const CublasLtProduct product(handle, *c->definition(), {});
    return {handle.algorithms().counters(), product.workspaceBytes(), handle.algorithms().keyOf(product.problem())};
  }
  static DeviceInfo device() {
    DeviceInfo info = DeviceInfo::hopper();
    info.mostWorkspaceBytes = 1 << 20;
    return info;
  }
  static bool isFromDisk(const Made& made) {
    EXPECT_EQ(made.counters.chosen + made.counters.fromDisk, 1);
    return made.counters.fromDisk == 1;
  }

  const std::string folder_ =
      (std::filesystem::path(testing::TempDir()) / ("algorithms_" + std::to_string(getpid()))).string();
};

TEST_F(GpuAlgorithms, AreOnDiskForTheirProductAndDevice) {
  const Made first = make(64, device());
  EXPECT_FALSE(isFromDisk(first));
  EXPECT_GE(first.workspaceBytes, isSimulated() ? 1 : 0);
  const Made again = make(64, device());
  EXPECT_TRUE(isFromDisk(again));
  EXPECT_EQ(again.workspaceBytes, first.workspaceBytes);
  EXPECT_FALSE(isFromDisk(make(65, device()))) << "another shape";
  DeviceInfo other = device();
  other.gpu.processors = 114;
  EXPECT_FALSE(isFromDisk(make(64, other))) << "fewer multiprocessors";
  other = device();
  other.architecture = "sm_80";
  EXPECT_FALSE(isFromDisk(make(64, other)));
  other = device();
  other.mostWorkspaceBytes = 100;
  EXPECT_FALSE(isFromDisk(make(64, other))) << "less workspace";
  EXPECT_TRUE(isFromDisk(make(64, device())));
}

TEST_F(GpuAlgorithms, ThatAreBadAreChosenAgain) {
  const Made right = make(64, device());
  const Made wide = make(65, device());
  DiskCache cache(folder_);
  const std::string ofWide = cache.load(wide.key).value();
  const std::string ofRight = cache.load(right.key).value();
  std::string moreWorkspace = ofRight;
  moreWorkspace[moreWorkspace.size() - 8]++;
  std::vector<std::string> bad = {std::string(), "short", ofRight + "x", moreWorkspace,
                                  std::string(ofRight.size(), '\0')};
  if (isSimulated()) {
    bad.push_back(ofWide);  // a real library may choose the same for both, or take it for both
  }
  for (const std::string& bytes : bad) {
    cache.store(right.key, bytes);
    const Made made = make(64, device());
    EXPECT_FALSE(isFromDisk(made)) << bytes.size();
    EXPECT_EQ(made.workspaceBytes, right.workspaceBytes);
    EXPECT_TRUE(isFromDisk(make(64, device()))) << "it is on disk again";
  }
}

// Between kernels, whose results it reads and which read its result, with memory that is used again.
TEST_F(GpuProducts, BetweenKernels) {
  const std::vector<std::string> names =
      steps({random({16, 32}, 1), random({64, 32}, 2), random({64}, 3), random({8, 64}, 4)},
            [](const std::vector<TensorView*>& in) {
              TensorView* h = tanh_gelu(linear(softmax(in[0], 1), in[1], in[2]));
              return exp(linear(h, in[3]));
            });
  EXPECT_EQ(names, (std::vector<std::string>{"kernel", "linear", "kernel", "linear", "kernel"}));
}

}  // namespace
}  // namespace meshfuse
