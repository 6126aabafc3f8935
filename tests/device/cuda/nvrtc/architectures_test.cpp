// Kernels for several architectures: the hand-written programs, and one of each kind of schedule at sizes that programs have. Each compiles, and
// keeps its values in registers.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "architectures.h"
#include "codegen/cuda/emit.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "ops/activation.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"
#include "schedule/template.h"
#include "tile/programs.h"

namespace meshfuse {
namespace {

using Build = std::function<TensorView*(const std::vector<TensorView*>&)>;

class Architectures : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
      GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
    }
  }

  static DeviceInfo device() { return DeviceInfo::ofArchitecture(GetParam()).value(); }

  // The text of the one kernel of a fusion of inputs of these shapes.
  static CudaSource sourceOf(const std::vector<std::vector<int64_t>>& shapes, const Build& build, DataType type) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    std::vector<TensorView*> in;
    for (const std::vector<int64_t>& shape : shapes) {
      in.push_back(makeContigConcreteTensor(shape, type));
      fusion.addInput(in.back());
    }
    fusion.addOutput(build(in));
    const Verdict verdict = judge(wholeGroup(fusion), device(), allTemplates());
    EXPECT_NE(verdict.judgement, nullptr) << verdict.refusal;
    return emitCuda(std::get<KernelPlan>(verdict.judgement->write()).program);
  }

  static void expectInRegisters(const CudaSource& source) {
    const KernelResources r = NvrtcCompiler::resources(source.text, GetParam());
    EXPECT_GT(r.registers, 0);
    EXPECT_LE(r.registers * source.threads, device().gpu.registers);
    EXPECT_EQ(r.spilledBytes, 0) << source.threads << " threads of " << r.registers << " registers\n"
                                 << kernelText(source.text);
    EXPECT_EQ(r.stackBytes, 0);
    if (source.sharedBytes.isConst()) {
      EXPECT_LE(source.sharedBytes.constValue(), device().gpu.sharedBytesOfBlock);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Gpu, Architectures, testing::ValuesIn(kArchitectures),
                         [](const auto& p) { return std::string(p.param); });

// Clusters exist from sm_90 on.
TEST_P(Architectures, HandWrittenProgramsStayInRegisters) {
  for (const tile::NamedExample& e : tile::representativePrograms()) {
    if (e.example.program.target == tile::Target::Gpu) {
      SCOPED_TRACE(e.name);
      const CudaSource source = emitCuda(e.example.program);
      if (source.cluster == 1 || std::string(GetParam()) != "sm_80") {
        expectInRegisters(source);
      }
    }
  }
}

TEST_P(Architectures, SchedulesStayInRegisters) {
  struct Case {
    const char* name;
    std::vector<std::vector<int64_t>> shapes;
    Build build;
  };
  const Case cases[] = {
      {"add", {{1 << 24}, {1 << 24}}, [](const auto& in) { return add(in[0], in[1]); }},
      {"bias gelu", {{8192, 4096}, {4096}}, [](const auto& in) { return tanh_gelu(add(in[0], in[1])); }},
      {"permute",
       {{512, 1024}},
       [](const auto& in) {
         return neg(permute(in[0], {1, 0}));
       }},
      {"inner sum", {{8192, 4096}}, [](const auto& in) { return sum(in[0], {1}); }},
      {"long sum", {{1 << 26}}, [](const auto& in) { return sum(in[0], {0}); }},
      {"few long sums", {{4, 1 << 22}}, [](const auto& in) { return sum(in[0], {1}); }},
      {"outer sum", {{8192, 4096}}, [](const auto& in) { return sum(in[0], {0}); }},
      {"long outer sum", {{1 << 20, 64}}, [](const auto& in) { return sum(in[0], {0}); }},
      {"softmax", {{8192, 4096}}, [](const auto& in) { return softmax(in[0], 1); }},
      {"softmax of rows that fill a block", {{1024, 32768}}, [](const auto& in) { return softmax(in[0], 1); }},
      {"two inputs of such rows",
       {{1024, 30000}, {1024, 30000}},
       [](const auto& in) { return softmax(add(in[0], in[1]), 1); }},
      {"layer norm",
       {{8192, 4096}, {4096}, {4096}},
       [](const auto& in) { return layer_norm(in[0], {4096}, in[1], in[2], 1e-5).output; }},
      {"layer norm of a residual",
       {{2048, 16384}, {2048, 16384}, {16384}, {16384}},
       [](const auto& in) { return layer_norm(add(in[0], in[1]), {16384}, in[2], in[3], 1e-5).output; }},
  };
  for (const DataType type : {DataType::Float, DataType::BFloat16}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(name(type)) + " " + c.name);
      expectInRegisters(sourceOf(c.shapes, c.build, type));
    }
  }
}

int occurrences(const std::string& text, std::string_view what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    n++;
  }
  return n;
}

// The same sum of two tensors: one access of 32 bytes, or of 16.
TEST_P(Architectures, AccessesAreThoseOfTheGpu) {
  const CudaSource source = sourceOf(
      {{1 << 20}, {1 << 20}}, [](const auto& in) { return add(in[0], in[1]); }, DataType::Float);
  const std::string ptx = NvrtcCompiler::compilePtx(source.text, GetParam());
  const bool isWide = device().gpu.accessBytes == 32;
  EXPECT_EQ(occurrences(ptx, "ld.global"), 2) << ptx;
  EXPECT_EQ(occurrences(ptx, isWide ? ".v8.b32" : ".v4.u32"), 3) << ptx;
}

// A text with accesses of 32 bytes runs on GPUs that lack them.
TEST(WideAccesses, AreTwoOnEarlierGpus) {
  if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
  }
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({1 << 20});
  fusion.addInput(x);
  fusion.addOutput(neg(x));
  const Verdict verdict = judge(wholeGroup(fusion), DeviceInfo::ofArchitecture("sm_100").value(), allTemplates());
  const CudaSource source = emitCuda(std::get<KernelPlan>(verdict.judgement->write()).program);
  const std::string ptx = NvrtcCompiler::compilePtx(source.text, "sm_90a");
  EXPECT_EQ(occurrences(ptx, ".v8"), 0);
  EXPECT_EQ(occurrences(ptx, ".v4.u32"), 4) << ptx;
}

TEST(Resources, AreThoseOfTheLog) {
  if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
  }
  const std::string spills =
      "extern \"C\" __global__ void __launch_bounds__(1024) k(float* p, int n) {\n"
      "  float x[100];\n"
      "  #pragma unroll\n"
      "  for (int i = 0; i < 100; i++) x[i] = p[i * 1024 + threadIdx.x];\n"
      "  for (int k = 0; k < n; k++) {\n"
      "    #pragma unroll\n"
      "    for (int i = 0; i < 100; i++) x[i] = x[i] * x[(i + 37) % 100] + 1;\n"
      "  }\n"
      "  #pragma unroll\n"
      "  for (int i = 0; i < 100; i++) p[i * 1024 + threadIdx.x] = x[i];\n"
      "}\n";
  const KernelResources r = NvrtcCompiler::resources(spills, "sm_90a");
  EXPECT_EQ(r.registers, 64) << "65536 of 1024 threads";
  EXPECT_GT(r.spilledBytes, 0);
  EXPECT_GT(r.stackBytes, 0);
}

}  // namespace
}  // namespace meshfuse
