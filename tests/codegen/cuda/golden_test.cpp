// The text of representative kernels, whole, and what surrounds it. MESHFUSE_UPDATE_GOLDEN=1 writes the files anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "codegen/cuda/emit.h"
#include "tile/builder.h"
#include "tile/programs.h"

namespace meshfuse {
namespace {

using namespace tile;

const std::vector<std::string> kGolden = {"add_gpu",       "bias_gelu_gpu", "softmax_gpu", "layer_norm_gpu",
                                          "outer_sum_gpu", "transpose_gpu", "gather_gpu"};

std::string readFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(CudaText, IsTheGoldenOne) {
  for (const NamedExample& e : representativePrograms()) {
    if (std::find(kGolden.begin(), kGolden.end(), e.name) == kGolden.end()) {
      continue;
    }
    std::string text(kernelText(emitCuda(e.example.program).text));
    std::string path = std::string(MESHFUSE_SOURCE_DIR "/tests/codegen/cuda/golden/") + e.name + ".cu";
    if (std::getenv("MESHFUSE_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path) << text;
    }
    EXPECT_EQ(text, readFile(path)) << path;
  }
}

TEST(CudaText, IsTheSameTwice) {
  for (const NamedExample& e : representativePrograms()) {
    if (e.example.program.target == Target::Gpu) {
      EXPECT_EQ(emitCuda(e.example.program).text, emitCuda(e.example.program).text);
    }
  }
}

TEST(CudaText, IncludesNothingAndHoldsOnlyWhatItUses) {
  std::string text = emitCuda(addProgram(Target::Gpu, DataType::Float, 1024).program).text;
  EXPECT_EQ(text.find("#include"), std::string::npos);
  for (std::string_view absent : {"sharedStore", "shuffleXor", "bf16ToFloat", "philox", "barrier"}) {
    EXPECT_EQ(text.find(absent), std::string::npos) << absent;
  }
}

TEST(CudaText, DescribesItsArguments) {
  Example e = layerNormProgram(Target::Gpu, DataType::BFloat16, 17, 200);
  CudaSource s = emitCuda(e.program);
  ASSERT_EQ(s.slots.size(), 6u + 2u + 1u);
  EXPECT_EQ(s.slots[5].kind, CudaSlot::Kind::Tensor);
  EXPECT_EQ(s.slots[6].kind, CudaSlot::Kind::Size);
  EXPECT_EQ(s.slots[8].kind, CudaSlot::Kind::Scalar);
  EXPECT_EQ(s.entry, "layer_norm_bf16");
  EXPECT_EQ(s.threads, e.program.threads());
}

// Names from outside may be anything; those in the text are legal and apart.
TEST(CudaText, RenamesWhatTheLanguageKeeps) {
  Builder b("float", Target::Gpu);
  IntExpr n = b.size("int", {.lower = 1});
  int x = b.tensor({"loadOne", DataType::Float, Memory::Input, {n}, {1}, 4, false});
  int y = b.tensor({"a b", DataType::Float, Memory::Output, {n}, {1}, 4, false});
  b.gridDim("part", ceilDiv(n, 32));
  int s = b.space("s", {{"lane", n, {{Level::Part, 0, "part"}, {Level::Lane, 32}}}});
  b.store(y, {{b.coord(s, 0)}}, b.load(x, {{b.coord(s, 0)}}, s));
  CudaSource source = emitCuda(b.program());
  EXPECT_EQ(source.entry, "float_1");
  EXPECT_NE(source.text.find("const float* loadOne_1;"), std::string::npos) << kernelText(source.text);
  EXPECT_NE(source.text.find("float* a_b;"), std::string::npos);
  EXPECT_NE(source.text.find("i64 int_1;"), std::string::npos);
}

TEST(CudaText, RefusesProgramsForACpu) {
  EXPECT_THROW((void)emitCuda(addProgram(Target::Cpu, DataType::Float, 10).program), InternalError);
}

}  // namespace
}  // namespace meshfuse
