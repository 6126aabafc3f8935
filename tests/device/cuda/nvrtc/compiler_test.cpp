#include "device/cuda/nvrtc/compiler.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "codegen/cuda/emit.h"
#include "device/cuda/capabilities.h"
#
#include "simt/compare.h"
#include "tile/builder.h"
#include "tile/programs.h"

namespace meshfuse {
namespace {

using namespace tile;
using enum DataType;

class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
      GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
    }
  }
};

TEST_F(Nvrtc, NamesTheArchitecturesThereAre) {
  for (const char* arch : {"sm_80", "sm_90", "sm_90a"}) {
    EXPECT_NO_THROW(NvrtcCompiler::expectArchitecture(arch)) << arch;
  }
  for (const char* arch : {"sm_999", "sm_75", "sm_9x", "sm_90z", "sm_90f", "sm_80a", "compute_90", "sm_", ""}) {
    try {
      NvrtcCompiler::expectArchitecture(arch);
      ADD_FAILURE() << arch << " was taken";
    } catch (const UserError& e) {
      EXPECT_NE(std::string_view(e.what()).find("has sm_80, "), std::string_view::npos) << e.what();
    }
  }
}

int count(const std::string& text, std::string_view what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    n++;
  }
  return n;
}

std::string ptxOf(const Example& example) {
  return NvrtcCompiler::compilePtx(emitCuda(example.program).text, "sm_90a");
}

TEST_F(Nvrtc, CompilesEveryExampleAndTheTextIsTheEmulators) {
  NvrtcCompiler compiler;
  std::vector<simt::Comparison> cases;
  std::vector<Hash128> compiled;
  int64_t n = 0;
  for (const NamedExample& e : representativePrograms()) {
    if (e.example.program.target == Target::Gpu) {
      SCOPED_TRACE(e.name);
      CudaSource source = emitCuda(e.example.program);
      Cubin cubin = compiler.compileCubin(source.text, "sm_90a");
      EXPECT_EQ(cubin.bytes.substr(1, 3), "ELF");
      EXPECT_NE(cubin.bytes.find(source.entry), std::string::npos);
      EXPECT_EQ(cubin.log, "");
      compiled.push_back(cubin.text);
      cases.push_back({.example = e.example, .steps = 8192});
      n++;
    }
  }
  EXPECT_EQ(compiler.counters().compiled, n);
  EXPECT_GT(compiler.counters().milliseconds, 0);
  std::vector<simt::Verdict> verdicts = simt::compare(cases);
  for (size_t i = 0; i < cases.size(); i++) {
    EXPECT_EQ(verdicts[i].result.text, compiled[i]) << cases[i].example.program.name;
    EXPECT_TRUE(verdicts[i].right()) << cases[i].example.program.name << ": " << verdicts[i].describe();
  }
}

// One kernel a type: every op on it that the table allows, and a cast to every other type.
TEST_F(Nvrtc, TakesEveryOpAndCast) {
  for (const DataTypeInfo& type : kDataTypes) {
    SCOPED_TRACE(type.name);
    Builder b("ops", Target::Gpu);
    b.gridDim("part", 1);
    int s = b.space("s", {{"i", 128, {{Level::Part, 0, "part"}, {Level::Lane, 32}, {Level::Vector, 4}}}});
    std::vector<Index> at{{b.coord(s, 0)}};
    auto tensor = [&](DataType t, Memory memory) { return b.tensor({"t", t, memory, {128}, {1}, 16, false}); };
    std::vector<ValueId> x;
    for (int k = 0; k < 3; k++) {
      x.push_back(b.load(tensor(type.type, Memory::Input), at, s));
    }
    ValueId condition = b.load(tensor(Bool, Memory::Input), at, s);
    for (const PointOpInfo& op : kPointOps) {
      if (!accepts(op.types, type.type)) {
        continue;
      }
      std::vector<ValueId> operands(x.begin(), x.begin() + op.arity);
      operands[0] = op.op == PointOp::Where ? condition : operands[0];
      ValueId result = b.point(op.op, operands);
      b.store(tensor(op.givesBool ? Bool : type.type, Memory::Output), at, result);
      if (type.type == Float && !op.givesBool) {
        b.store(tensor(BFloat16, Memory::Output), at, b.cast(b.point(op.op, operands), BFloat16));  // the coarse one
      }
    }
    for (const DataTypeInfo& to : kDataTypes) {
      if (to.type != type.type) {
        b.store(tensor(to.type, Memory::Output), at, b.cast(x[0], to.type));
      }
    }
    // Single elements, by each kind of access.
    auto unaligned = [&](Memory memory) { return b.tensor({"u", type.type, memory, {128}, {1}, type.size, false}); };
    int inOut = unaligned(Memory::InOut);
    b.store(inOut, at, b.load(inOut, at, s));
    b.store(unaligned(Memory::Output), at, b.load(unaligned(Memory::Input), at, s, {.cache = Cache::Once}),
            {.cache = Cache::Once});
    b.store(unaligned(Memory::Output), at, b.load(unaligned(Memory::Input), at, s));
    EXPECT_NO_THROW((void)NvrtcCompiler::compilePtx(emitCuda(b.program()).text, "compute_90a"));
  }
}

TEST_F(Nvrtc, MovesSixteenBytesAtOnceWhereTheyAreProven) {
  for (DataType t : {Float, BFloat16, Half, Double}) {
    SCOPED_TRACE(name(t));
    std::string ptx = ptxOf(addProgram(Target::Gpu, t, 1 << 14));
    std::string_view four = ".v4.u32";
    // two inputs of four repeats; results are stored past the caches, because each element is used once
    EXPECT_EQ(count(ptx, std::string("ld.global.nc") + std::string(four)), 8) << ptx;
    EXPECT_EQ(count(ptx, std::string("st.global.cs") + std::string(four)), 4) << ptx;
    EXPECT_EQ(count(ptx, "ld.global"), 8);
    EXPECT_EQ(count(ptx, "st.global"), 4);
  }
}

TEST_F(Nvrtc, MovesSingleElementsWhereNothingIsKnown) {
  std::string ptx = ptxOf(biasGeluProgram(Target::Gpu, Float, 3, 1027));
  // The bias alone has aligned rows: a whole vector for each of two repeats, or its elements where the bound cuts
  // through. The last one of these is outside then: the compiler sees it in the first repeat.
  EXPECT_EQ(count(ptx, ".v4."), 2) << ptx;
  EXPECT_EQ(count(ptx, "ld.global.nc.f32"), 8 + 8 - 1) << ptx;
  EXPECT_EQ(count(ptx, "st.global.f32"), 8);
}

TEST_F(Nvrtc, NormalizationReadsItsInputOnceAndWide) {
  std::string ptx = ptxOf(softmaxProgram(Target::Gpu, BFloat16, 64, 4096));
  EXPECT_EQ(count(ptx, "ld.global.nc.v4.u32"), 4) << ptx;
  EXPECT_EQ(count(ptx, "ld.global"), 4);
  EXPECT_EQ(count(ptx, "st.global"), 4);
  EXPECT_EQ(count(ptx, "st.global.wb.v4.u32"), 4);
  EXPECT_EQ(count(ptx, "bar.sync"), 2);  // one for each reduction across warps
}

TEST_F(Nvrtc, KeepsCompiledKernelsOnDisk) {
  std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("nvrtc_cache_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  std::string text = emitCuda(addProgram(Target::Gpu, Float, 100).program).text;
  {
    DiskCache cache(folder);
    NvrtcCompiler first(&cache);
    NvrtcCompiler second(&cache);
    Cubin a = first.compileCubin(text, "sm_90a");
    Cubin b = second.compileCubin(text, "sm_90a");
    EXPECT_FALSE(a.fromDisk);
    EXPECT_TRUE(b.fromDisk);
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(second.counters().compiled, 0);
    EXPECT_EQ(second.counters().fromDisk, 1);
    EXPECT_FALSE(second.compileCubin(text, "sm_80").fromDisk);          // another architecture
    EXPECT_FALSE(second.compileCubin(text + "\n", "sm_90a").fromDisk);  // another text
  }
  std::filesystem::remove_all(folder);
}

TEST_F(Nvrtc, SaysWhatItRefuses) {
  NvrtcCompiler compiler;
  try {
    (void)compiler.compileCubin("extern \"C\" __global__ void k() {\n  undeclared();\n}\n", "sm_90a");
    FAIL() << "compiled";
  } catch (const InternalError& error) {
    std::string what = error.what();
    EXPECT_NE(what.find("undeclared"), std::string::npos);
    EXPECT_NE(what.find("sm_90a"), std::string::npos);
    EXPECT_NE(what.find("   2   undeclared();"), std::string::npos) << what;
  }
}

TEST(CudaCapabilities, GiveAReasonForWhatIsMissing) {
  CudaCapabilities c = cudaCapabilities();
  EXPECT_NE(c.nvrtcNote, "");
  EXPECT_NE(c.driverNote, "");
  EXPECT_EQ(c.driver, !c.devices.empty());
}

}  // namespace
}  // namespace meshfuse
