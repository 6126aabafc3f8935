// What the emitter writes, by pattern: LLVM's text differs from version to version.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <regex>

#include "base/error.h"
#include "device/cpu/orc/cpu_compiler.h"
#include "tile/builder.h"
#include "tile/programs.h"

namespace meshfuse {
namespace {

using tile::Builder;
using tile::Cache;
using tile::Level;
using tile::Memory;
using tile::Target;
using tile::ValueId;

int64_t count(const std::string& text, const std::string& pattern) {
  std::regex r(pattern);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), r), std::sregex_iterator());
}

CpuCompiler& wide() {
  static CpuTarget target{
      .cpu = "x86-64", .features = "+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl,+f16c,+fma", .vectorBytes = 64};
  static CpuCompiler compiler({.target = target});
  return compiler;
}

// Y[m, n] = X[m, n] + 1 in rows, with facts about N and a store hint.
tile::Program rows(SymbolFacts facts, Cache cache, DataType dtype = DataType::Float) {
  Builder b("rows", Target::Cpu);
  IntExpr m = b.size("M", {.lower = 1});
  IntExpr n = b.size("N", facts);
  int x = b.tensor({"X", dtype, Memory::Input, {m, n}, {n, 1}, 64});
  int y = b.tensor({"Y", dtype, Memory::Output, {m, n}, {n, 1}, 64});
  b.gridDim("pm", ceilDiv(m, 16));
  int s = b.space("s", {{"m", m, {{Level::Part, 0, "pm"}, {Level::Serial, 16}}},
                        {"n", n, {{Level::Serial, 0}, {Level::Repeat, 4}, {Level::Vector, 16}}}});
  std::vector<tile::Index> at{{b.coord(s, 0)}, {b.coord(s, 1)}};
  b.loop(s, 0, 1, {}, [&](std::span<const ValueId>) {
    b.loop(s, 1, 0, {}, [&](std::span<const ValueId>) {
      ValueId v = b.load(x, at, s);
      if (!isHalfPrecision(dtype)) {
        v = b.point(PointOp::Add, {v, b.constant(dtype, 1)});
      }
      b.store(y, at, v, {.cache = cache});
      return std::vector<ValueId>{};
    });
    return std::vector<ValueId>{};
  });
  return b.take();
}

TEST(CpuIr, FullPiecesAreNotMaskedAndTheTailIsOneBody) {
  std::string ir = wide().irText(rows({.lower = 1}, Cache::Keep));
  EXPECT_EQ(count(ir, "load <16 x float>, ptr"), 4);
  EXPECT_EQ(count(ir, "call <16 x float> @llvm.masked.load"), 4);
  EXPECT_EQ(count(ir, "call void @llvm.masked.store"), 4);
}

// Every step of a square block is an instruction that needs no constant: unpack within 16 bytes, then shuffle of 16 bytes.
TEST(CpuIr, BlocksAreTurnedByShufflesWithoutConstants) {
  const std::string ir = wide().irText(tile::transposeProgram(Target::Cpu, DataType::Float, 64, 64).program);
  const std::string unpack =
      "shufflevector <16 x float> %\\w+, <16 x float> %\\w+, <16 x i32> <i32 0, i32 16, i32 1, i32 17, i32 4,";
  const std::string collect =
      "shufflevector <16 x float> %\\w+, <16 x float> %\\w+, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9,";
  const int64_t all = count(ir, "shufflevector <16 x float>");
  EXPECT_GT(all, 0);
  EXPECT_EQ(count(ir, unpack) * 4, all);
  EXPECT_EQ(count(ir, collect) * 4, all);
}

// Calls for large angles are in a branch of their own. All vectors that are needed after a call are in memory before it, by stores of the
// branch: registers of the usual path hold all that it computes.
TEST(CpuIr, SinesUseNoMemoryUnlessTheyCall) {
  for (const PointOp op : {PointOp::Sin, PointOp::Cos}) {
    Builder b("sines", Target::Cpu);
    const int x = b.tensor({"X", DataType::Float, Memory::Input, {4096}, {1}, 64});
    const int y = b.tensor({"Y", DataType::Float, Memory::Output, {4096}, {1}, 64});
    const int s = b.space("s", {{"n", 4096, {{Level::Serial, 0}, {Level::Repeat, 4}, {Level::Vector, 16}}}});
    b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
      b.store(y, {{b.coord(s, 0)}}, b.point(op, {b.load(x, {{b.coord(s, 0)}}, s)}));
      return std::vector<ValueId>{};
    });
    const std::string code = wide().assemblyText(b.take());
    const size_t call = code.find("callq");
    ASSERT_NE(call, std::string::npos);
    EXPECT_LE(count(code.substr(0, call), "\\(%r[sb]p\\), (%zmm\\d+, )?%zmm"), 1) << code;  // the argument of the call
  }
}

// The machine's maximum keeps a NaN in its second operand, so with a number that is written in the program nothing else is needed.
TEST(CpuIr, AMaximumWithAWrittenNumberIsOneInstruction) {
  const auto maximum = [](bool ofTwoTensors) {
    Builder b("maximum", Target::Cpu);
    const IntExpr n = b.size("N", {.lower = 1, .divisor = 16});
    const int x = b.tensor({"X", DataType::Float, Memory::Input, {n}, {1}, 64});
    const int y = b.tensor({"Y", DataType::Float, Memory::Output, {n}, {1}, 64});
    const int s = b.space("s", {{"n", n, {{Level::Serial, 0}, {Level::Vector, 16}}}});
    b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
      const ValueId v = b.load(x, {{b.coord(s, 0)}}, s);
      const ValueId other = ofTwoTensors ? b.point(PointOp::Neg, {v}) : b.constant(DataType::Float, 0);
      b.store(y, {{b.coord(s, 0)}}, b.point(PointOp::Maximum, {v, other}));
      return std::vector<ValueId>{};
    });
    return wide().irText(b.take());
  };
  EXPECT_EQ(count(maximum(false), "call <16 x float> @llvm.x86.avx512.mask.fixupimm"), 0);
  EXPECT_EQ(count(maximum(true), "call <16 x float> @llvm.x86.avx512.mask.fixupimm"), 1);
}

TEST(CpuIr, AProvenDivisibleSizeHasNoTail) {
  std::string ir = wide().irText(rows({.lower = 1, .divisor = 64}, Cache::Keep));
  EXPECT_EQ(count(ir, "masked"), 0);
  EXPECT_EQ(count(ir, "load <16 x float>, ptr"), 4);
}

// Y[n] = exp(X[n]) in blocks of 1,024, two pieces a step.
std::string blocks(const std::function<IntExpr(Builder&)>& size) {
  Builder b("blocks", Target::Cpu);
  IntExpr n = size(b);
  int x = b.tensor({"X", DataType::Float, Memory::Input, {n}, {1}, 64});
  int y = b.tensor({"Y", DataType::Float, Memory::Output, {n}, {1}, 64});
  int s = b.space("s", {{"n", n, {{Level::Serial, 0}, {Level::Serial, 32}, {Level::Repeat, 2}, {Level::Vector, 16}}}});
  b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
    b.loop(s, 0, 1, {}, [&](std::span<const ValueId>) {
      b.store(y, {{b.coord(s, 0)}}, b.point(PointOp::Exp, {b.load(x, {{b.coord(s, 0)}}, s)}));
      return std::vector<ValueId>{};
    });
    return std::vector<ValueId>{};
  });
  return wide().irText(b.take());
}

TEST(CpuIr, BlocksShareOneBodyAndOneTail) {
  constexpr const char* kExp = "call .*mask.scalef.ps.512\\(";
  const std::string ir = blocks([](Builder& b) { return b.size("N", {.lower = 1}); });
  EXPECT_EQ(count(ir, kExp), 4) << ir;
  EXPECT_EQ(count(ir, "call <16 x float> @llvm.masked.load"), 2) << ir;
  EXPECT_EQ(count(blocks([](Builder&) { return IntExpr(9600); }), kExp), 2);
}

TEST(CpuIr, PiecesOutsideAKnownBoundAreNotEmitted) {
  constexpr const char* kExp = "call .*mask.scalef.ps.512\\(";
  const std::string full = blocks([](Builder&) { return IntExpr(9616); });
  EXPECT_EQ(count(full, kExp), 3) << full;
  EXPECT_EQ(count(full, "masked"), 0) << full;
  const std::string part = blocks([](Builder&) { return IntExpr(9608); });
  EXPECT_EQ(count(part, kExp), 3) << part;
  EXPECT_EQ(count(part, "call <16 x float> @llvm.masked.load"), 1) << part;
}

// The loop over k is no part of n: full pieces are without masks only if the loop over n has a tail.
TEST(CpuIr, LoopsOverAnotherAxisAreInTheTailToo) {
  Builder b("columns", Target::Cpu);
  IntExpr k = b.size("K", {.lower = 1});
  IntExpr n = b.size("N", {.lower = 1});
  int x = b.tensor({"X", DataType::Float, Memory::Input, {k, n}, {n, 1}, 64});
  int y = b.tensor({"Y", DataType::Float, Memory::Output, {k, n}, {n, 1}, 64});
  int s = b.space(
      "s", {{"k", k, {{Level::Serial, 0}}}, {"n", n, {{Level::Serial, 0}, {Level::Repeat, 4}, {Level::Vector, 16}}}});
  b.loop(s, 1, 0, {}, [&](std::span<const ValueId>) {
    b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
      b.store(y, {{b.coord(s, 0)}, {b.coord(s, 1)}}, b.load(x, {{b.coord(s, 0)}, {b.coord(s, 1)}}, s));
      return std::vector<ValueId>{};
    });
    return std::vector<ValueId>{};
  });
  const std::string ir = wide().irText(b.take());
  EXPECT_EQ(count(ir, "load <16 x float>, ptr"), 4) << ir;
  EXPECT_EQ(count(ir, "call <16 x float> @llvm.masked.load"), 4) << ir;
}

TEST(CpuIr, PiecesFollowTheMachine) {
  CpuCompiler narrow({.target = CpuTarget{.cpu = "x86-64", .features = "+avx,+avx2,+fma", .vectorBytes = 32}});
  std::string ir = narrow.irText(rows({.lower = 1, .divisor = 64}, Cache::Keep));
  EXPECT_EQ(count(ir, "load <8 x float>, ptr"), 8);
}

TEST(CpuIr, AddressesOfARowAreOutsideItsLoop) {
  std::string ir = wide().irText(rows({.lower = 1, .divisor = 64}, Cache::Keep));
  size_t inner = ir.find("\nloop1:");
  ASSERT_NE(inner, std::string::npos) << ir;
  EXPECT_LE(count(ir, "= mul "), 3) << "per call, per part and per row, once for both tensors\n" << ir;
  EXPECT_EQ(count(ir.substr(inner), "= mul "), 0) << ir;
}

TEST(CpuIr, StreamingStoresNeedAlignmentAndReachTheMachineCode) {
  SymbolFacts aligned{.lower = 1, .divisor = 64};
  EXPECT_EQ(count(wide().irText(rows(aligned, Cache::Once)), "!nontemporal"), 4);
  EXPECT_EQ(count(wide().irText(rows({.lower = 1}, Cache::Once)), "!nontemporal"), 0);
  EXPECT_EQ(count(wide().irText(rows(aligned, Cache::Keep)), "!nontemporal"), 0);
  for (DataType d : {DataType::Float, DataType::Double, DataType::Half, DataType::BFloat16}) {
    std::string code = wide().assemblyText(rows(aligned, Cache::Once, d));
    EXPECT_GE(count(code, "vmovnt"), 4) << name(d);
    EXPECT_EQ(count(code, "sfence"), 1) << name(d);
  }
}

TEST(CpuIr, ConditionsOfARowAreNoMasks) {
  Builder b("rows", Target::Cpu);
  IntExpr m = b.size("M", {.lower = 1});
  IntExpr n = b.size("N", {.lower = 1, .divisor = 64});
  int x = b.tensor({"X", DataType::Float, Memory::Input, {m, n}, {n, 1}, 64});
  int y = b.tensor({"Y", DataType::Float, Memory::Output, {m, n}, {n, 1}, 64});
  int s = b.space(
      "s", {{"m", m, {{Level::Serial, 0}}}, {"n", n, {{Level::Serial, 0}, {Level::Repeat, 4}, {Level::Vector, 16}}}});
  b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
    b.loop(s, 1, 0, {}, [&](std::span<const ValueId>) {
      // a row of padding before the first, one of zeros skipped in the result
      ValueId v = b.load(x, {{b.coord(s, 0) - 1}, {b.coord(s, 1)}}, s, {.where = {{0, b.coord(s, 0)}}});
      b.store(y, {{b.coord(s, 0)}, {b.coord(s, 1)}}, v, {.where = {{b.coord(s, 0), m - 1}}});
      return std::vector<ValueId>{};
    });
    return std::vector<ValueId>{};
  });
  std::string ir = wide().irText(b.take());
  EXPECT_EQ(count(ir, "masked"), 0);
  EXPECT_EQ(count(ir, "select i1 %[0-9]+, ptr"), 4);
}

// Masked softmax takes exp of -inf in half of its lanes: were they scaled into the subnormal numbers, it would be three times as slow.
TEST(CpuIr, ExponentialsThatUnderflowAreZeroBeforeTheyAreScaled) {
  for (PointOp op : {PointOp::Exp, PointOp::Exp2}) {
    Builder b("exponentials", Target::Cpu);
    IntExpr n = b.size("N", {.lower = 1, .divisor = 64});
    int x = b.tensor({"X", DataType::Float, Memory::Input, {n}, {1}, 64});
    int y = b.tensor({"Y", DataType::Float, Memory::Output, {n}, {1}, 64});
    int s = b.space("s", {{"n", n, {{Level::Serial, 0}, {Level::Repeat, 4}, {Level::Vector, 16}}}});
    b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
      b.store(y, {{b.coord(s, 0)}}, b.point(op, {b.load(x, {{b.coord(s, 0)}}, s)}));
      return std::vector<ValueId>{};
    });
    const std::string ir = wide().irText(b.take());
    EXPECT_EQ(count(ir, "call .*mask.scalef.ps.512\\("), 4) << ir;
    EXPECT_EQ(count(ir, "select <16 x i1> %[0-9]+, <16 x float> %[0-9]+, <16 x float> zeroinitializer"), 4) << ir;
  }
}

// Y = make(X), cast, four pieces at a time, without a tail.
std::string fourPieces(CpuCompiler& compiler, DataType output, const std::function<ValueId(Builder&, ValueId)>& make) {
  Builder b("pieces", Target::Cpu);
  const IntExpr n = b.size("N", {.lower = 1, .divisor = 64});
  const int x = b.tensor({"X", DataType::Float, Memory::Input, {n}, {1}, 64});
  const int y = b.tensor({"Y", output, Memory::Output, {n}, {1}, 64});
  const int s = b.space("s", {{"n", n, {{Level::Serial, 0}, {Level::Repeat, 4}, {Level::Vector, 16}}}});
  b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
    b.store(y, {{b.coord(s, 0)}}, b.cast(make(b, b.load(x, {{b.coord(s, 0)}}, s)), output));
    return std::vector<ValueId>{};
  });
  return compiler.irText(b.take());
}

// The text without the block of this name, which another one branches to.
std::string withoutBlock(const std::string& ir, const std::string& name) {
  const size_t begin = ir.find("\n" + name + ":");
  return begin == std::string::npos ? ir : ir.substr(0, begin) + ir.substr(ir.find("\n\n", begin));
}

TEST(CpuIr, SigmoidsThatAreRoundedTo16BitsAreNotScaled) {
  constexpr const char* kScale = "call .*mask.scalef.ps.512\\(";
  constexpr const char* kRoots = "call .*permvar.si.512\\(";
  constexpr const char* kBranch = "br i1 .*label %underflow,";
  const auto sigmoid = [](Builder& b, ValueId x) { return b.point(PointOp::Sigmoid, {x}); };
  const std::string coarse = fourPieces(wide(), DataType::BFloat16, sigmoid);
  EXPECT_EQ(count(coarse, kRoots), 4) << coarse;
  EXPECT_EQ(count(coarse, kBranch), 1) << coarse;
  EXPECT_EQ(count(withoutBlock(coarse, "underflow"), kScale), 0) << coarse;
  const std::string fine = fourPieces(wide(), DataType::Float, sigmoid);
  EXPECT_EQ(count(fine, kRoots), 0) << fine;
  EXPECT_EQ(count(fine, kBranch), 0) << fine;
  EXPECT_EQ(count(fine, kScale), 4) << fine;
}

TEST(CpuIr, CastsOfSeveralVectorsToBFloat16ShareABranch) {
  CpuTarget target{.cpu = "x86-64",
                   .features = "+avx2,+avx512bf16,+avx512bw,+avx512dq,+avx512f,+avx512vl,+f16c,+fma",
                   .vectorBytes = 64};
  CpuCompiler compiler({.target = target});
  constexpr const char* kCast = "call .*cvtneps2bf16.512\\(";
  const std::string ir = fourPieces(compiler, DataType::BFloat16, [](Builder&, ValueId x) { return x; });
  EXPECT_EQ(count(ir, "br i1 .*label %subnormal,"), 1) << ir;
  EXPECT_EQ(count(withoutBlock(ir, "subnormal"), kCast), 4) << ir;
  EXPECT_EQ(count(ir, kCast), 8) << ir;
}

TEST(CpuIr, EmittingTwiceGivesTheSameText) {
  for (const tile::NamedExample& e : tile::representativePrograms()) {
    if (e.example.program.target == Target::Cpu) {
      EXPECT_EQ(wide().irText(e.example.program), wide().irText(e.example.program)) << e.name;
    }
  }
}

TEST(CpuIr, RefusesProgramsForAGpu) {
  EXPECT_THROW((void)wide().irText(tile::addProgram(Target::Gpu, DataType::Float, 100).program), InternalError);
}

}  // namespace
}  // namespace meshfuse
