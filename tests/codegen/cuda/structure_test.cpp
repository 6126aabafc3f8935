// Programs that use one feature each, against the interpreter: what the example programs do not reach. Where there is
// NVRTC, it must take the texts too.
#include <gtest/gtest.h>

#include <set>

#include "codegen/cuda/c_text.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "simt/compare.h"
#include "tile/builder.h"

namespace meshfuse {
namespace {

using namespace tile;
using enum DataType;
using enum Level;
using simt::Comparison;
using simt::Verdict;

void expectRight(const std::vector<Comparison>& cases) {
  static const bool hasNvrtc = cudaCapabilities().nvrtc;
  std::set<std::string> compiled;
  std::vector<Verdict> verdicts = simt::compare(cases);
  for (size_t i = 0; i < cases.size(); i++) {
    std::string source = emitCuda(cases[i].example.program).text;
    if (hasNvrtc && compiled.insert(source).second) {
      EXPECT_NO_THROW((void)NvrtcCompiler::compilePtx(source, "compute_90a"));
    }
    EXPECT_TRUE(verdicts[i].right()) << cases[i].example.program.name << " " << i << ":\n"
                                     << verdicts[i].describe() << "\n"
                                     << kernelText(emitCuda(cases[i].example.program).text);
  }
}

// Y[m] = combiner over n of X[m, n], by the given digits of n; rows as parts.
Example rowReduce(DataType t, Combiner combiner, int64_t m, int64_t n, std::vector<Builder::DigitSpec> digits,
                  bool vectors = false) {
  Builder b("row_reduce", Target::Gpu);
  IntExpr rows = b.size("M", {.lower = 1});
  IntExpr columns = b.size("N", {.lower = 1, .divisor = vectors ? 8 : 1});
  int x = b.tensor({"X", t, Memory::Input, {rows, columns}, {columns, 1}, vectors ? 16 : dataTypeSize(t), false});
  int y = b.tensor({"Y", t, Memory::Output, {rows}, {1}, dataTypeSize(t), false});
  b.gridDim("pm", rows);
  int s = b.space("s", {{"m", rows, {{Part, 0, "pm"}}}, {"n", columns, std::move(digits)}});
  b.store(y, {{b.coord(s, 0)}}, b.reduceAxis(b.load(x, {{b.coord(s, 0)}, {b.coord(s, 1)}}, s), 1, combiner));
  return {b.take(), {m, n}, {}};
}

TEST(CudaStructure, ReducesByEveryCombinerAndType) {
  std::vector<Comparison> cases;
  for (Combiner c : {Combiner::Sum, Combiner::Prod, Combiner::Max, Combiner::Min}) {
    for (DataType t : {Float, Double, Half, BFloat16, Int, Int32}) {
      cases.push_back({rowReduce(t, c, 3, 77, {{Repeat, 2}, {Warp, 2}, {Lane, 32}}), 1000});
    }
  }
  for (Combiner c : {Combiner::And, Combiner::Or, Combiner::Xor}) {
    for (DataType t : {Int, Int32, Bool}) {
      cases.push_back({rowReduce(t, c, 3, 77, {{Repeat, 2}, {Warp, 2}, {Lane, 32}}), 0});
    }
  }
  cases.push_back(
      {rowReduce(Bool, Combiner::Max, 3, 1000, {{Repeat, 2}, {Warp, 4}, {Lane, 32}, {Vector, 4}}, true), 0});
  expectRight(cases);
}

TEST(CudaStructure, ReducesAcrossManyWarps) {
  std::vector<Comparison> cases;
  for (int64_t warps : {8, 16, 32}) {
    for (Combiner c : {Combiner::Sum, Combiner::Max}) {
      cases.push_back(
          {rowReduce(Float, c, 2, 5000, {{Repeat, 40 / warps}, {Warp, warps}, {Lane, 32}, {Vector, 4}}, true), 20000});
      cases.push_back({rowReduce(BFloat16, c, 2, 333, {{Repeat, 2}, {Warp, warps}, {Lane, 32}}), 2000});
    }
  }
  // Two rows of eight warps each, several results a thread.
  Builder b("rows_of_warps", Target::Gpu);
  IntExpr m = b.size("M", {.lower = 1});
  IntExpr n = b.size("N", {.lower = 1});
  int x = b.tensor({"X", Float, Memory::Input, {m, n}, {n, 1}, 4, false});
  int y = b.tensor({"Y", Float, Memory::Output, {m}, {1}, 4, false});
  b.gridDim("p", ceilDiv(m, 6));
  int s = b.space("s",
                  {{"m", m, {{Part, 0, "p"}, {Repeat, 3}, {Warp, 2}}}, {"n", n, {{Repeat, 2}, {Warp, 8}, {Lane, 32}}}});
  b.store(y, {{b.coord(s, 0)}}, b.reduceAxis(b.load(x, {{b.coord(s, 0)}, {b.coord(s, 1)}}, s), 1, Combiner::Sum));
  Program p = b.take();
  cases.push_back({{p, {13, 500}, {}}, 2000});
  cases.push_back({{p, {6, 1}, {}}, 10});
  expectRight(cases);
}

// Y[m] = combiner over n of X[m, n]; Z[m] and W[m]: by how much two reductions that exchange together, of X and of X * X, differ from each
// alone.
Example togetherAndAlone(DataType t, Combiner combiner, int64_t m, int64_t n, int64_t rowsBeside,
                         std::vector<Builder::DigitSpec> digits) {
  Builder b("together_and_alone", Target::Gpu);
  IntExpr rows = b.size("M", {.lower = 1});
  IntExpr columns = b.size("N", {.lower = 1});
  int x = b.tensor({"X", t, Memory::Input, {rows, columns}, {columns, 1}, dataTypeSize(t), false});
  std::vector<int64_t> outputs;
  for (const char* name : {"Y", "Z", "W"}) {
    outputs.push_back(b.tensor({name, t, Memory::Output, {rows}, {1}, dataTypeSize(t), false}));
  }
  b.gridDim("pm", ceilDiv(rows, rowsBeside));
  int s = b.space("s", {{"m", rows, {{Part, 0, "pm"}, {Warp, rowsBeside}}}, {"n", columns, std::move(digits)}});
  const std::vector<Index> row = {{b.coord(s, 0)}};
  ValueId v = b.load(x, {{b.coord(s, 0)}, {b.coord(s, 1)}}, s);
  ValueId square = b.point(PointOp::Mul, {v, v});
  ValueId first = b.reduceAxis(v, 1, combiner);
  ValueId second = b.reduceAxis(square, 1, combiner);
  b.store(outputs[0], row, first);
  const auto difference = [&](ValueId together, ValueId of) {  // that of one bit is larger than 1
    ValueId d = b.point(PointOp::Sub, {together, b.reduceAxis(of, 1, combiner)});
    return b.point(PointOp::Mul, {d, b.constant(t, 0x1p60, s)});
  };
  b.store(outputs[1], row, difference(first, v));
  b.store(outputs[2], row, difference(second, square));
  return {b.take(), {m, n}, {}};
}

// The halves of each warp go on with one of them each, and the bits are those of each alone. More than 16 warps have a warp's lanes for each.
TEST(CudaStructure, TwoReductionsExchangeTogether) {
  const auto isTogether = [](const Example& e) {
    return emitCuda(e.program).text.find("lane >= 16 ?") != std::string::npos;
  };
  std::vector<Comparison> cases;
  for (Combiner c : {Combiner::Sum, Combiner::Max}) {
    for (DataType t : {Float, Double}) {
      for (int64_t warps : {1, 2, 8, 16, 32}) {
        cases.push_back({togetherAndAlone(t, c, 3, 1000, 1, {{Repeat, 32 / warps}, {Warp, warps}, {Lane, 32}}), 1000});
        EXPECT_EQ(isTogether(cases.back().example), warps <= 16);
      }
    }
  }
  cases.push_back({togetherAndAlone(Float, Combiner::Sum, 5, 300, 2, {{Repeat, 3}, {Warp, 4}, {Lane, 32}}), 1000});
  EXPECT_TRUE(isTogether(cases.back().example)) << "two rows";
  cases.push_back({togetherAndAlone(Float, Combiner::Sum, 5, 300, 2, {{Repeat, 5}, {Warp, 4}, {Lane, 16}}), 1000});
  EXPECT_FALSE(isTogether(cases.back().example)) << "half of the lanes";
  expectRight(cases);
}

TEST(CudaStructure, ReducesAcrossClusters) {
  std::vector<Comparison> cases;
  for (int64_t blocks : {2, 4, 8}) {
    for (int64_t n : {5, 1000, 2048}) {
      cases.push_back(
          {rowReduce(Float, Combiner::Sum, 3, n, {{Repeat, 3}, {Cluster, blocks}, {Warp, 4}, {Lane, 32}}), 8000});
    }
    cases.push_back(
        {rowReduce(Double, Combiner::Max, 2, 600, {{Cluster, blocks}, {Repeat, 3}, {Lane, 32}, {Vector, 4}}), 0});
  }
  // Two reductions one after the other: the second one's memory must wait for the readers of the first.
  Builder b("cluster_softmax", Target::Gpu);
  IntExpr n = b.size("N", {.lower = 1});
  int x = b.tensor({"X", Float, Memory::Input, {n}, {1}, 4, false});
  int y = b.tensor({"Y", Float, Memory::Output, {n}, {1}, 4, false});
  b.gridDim("p", 1);
  int s = b.space("s", {{"n", n, {{Repeat, 2}, {Cluster, 4}, {Warp, 2}, {Lane, 32}}}});
  ValueId v = b.load(x, {{b.coord(s, 0)}}, s);
  for (int round = 0; round < 3; round++) {
    v = b.point(PointOp::Sub, {v, b.point(PointOp::Mul, {b.reduceAxis(v, 0, Combiner::Max), b.constant(Float, 0.25)})});
  }
  b.store(y, {{b.coord(s, 0)}}, v);
  cases.push_back({{b.take(), {333}, {}}, 100});
  expectRight(cases);
}

TEST(CudaStructure, ReducesOverLanesThatAreNotTheLastDigits) {
  Builder b("column_max", Target::Gpu);
  IntExpr m = b.size("M", {.lower = 1});
  IntExpr n = b.size("N", {.lower = 1});
  int x = b.tensor({"X", Float, Memory::Input, {m, n}, {n, 1}, 4, false});
  int y = b.tensor({"Y", Float, Memory::Output, {n}, {1}, 4, false});
  int z = b.tensor({"Z", Float, Memory::Output, {m}, {1}, 4, false});
  b.gridDim("p", 1);
  int s = b.space(
      "s", {{"m", m, {{Lane, 4}, {Repeat, 2}, {Warp, 2}, {Lane, 2}}}, {"n", n, {{Warp, 2}, {Repeat, 3}, {Lane, 4}}}});
  ValueId v = b.load(x, {{b.coord(s, 0)}, {b.coord(s, 1)}}, s);
  b.store(y, {{b.coord(s, 1)}}, b.reduceAxis(v, 0, Combiner::Max));
  b.store(z, {{b.coord(s, 0)}}, b.reduceAxis(v, 1, Combiner::Sum));
  Program p = b.take();
  expectRight({{{p, {32, 24}, {}}, 50}, {{p, {29, 23}, {}}, 50}, {{p, {1, 1}, {}}, 50}});
}

// Rows re-read in a loop: an online maximum and sum a thread, two carries that depend on each other.
TEST(CudaStructure, CarriesSeveralValues) {
  Builder b("online_softmax", Target::Gpu);
  IntExpr m = b.size("M", {.lower = 1});
  IntExpr n = b.size("N", {.lower = 1});
  int x = b.tensor({"X", Float, Memory::Input, {m, n}, {n, 1}, 4, false});
  int y = b.tensor({"Y", Float, Memory::Output, {m, n}, {n, 1}, 4, false});
  b.gridDim("pm", m);
  int s = b.space("s", {{"m", m, {{Part, 0, "pm"}}}, {"n", n, {{Serial, 0}, {Repeat, 2}, {Warp, 2}, {Lane, 32}}}});
  std::vector<Index> at{{b.coord(s, 0)}, {b.coord(s, 1)}};
  uint64_t threads = 0;
  uint64_t all = axisDigits(b.program().spaces[0], 1);
  std::vector<DigitRef> refs = digitsOf(b.program().spaces[0]);
  for (size_t i = 0; i < refs.size(); i++) {
    threads |= isThread(b.program().spaces[0].axes[1].digits[refs[i].digit].level) ? uint64_t{1} << i : 0;
  }
  ValueId low = b.constant(Float, -1e30, s, threads);
  ValueId zero = b.constant(Float, 0, s, threads);
  std::vector<ValueId> r = b.loop(s, 1, 0, {low, zero}, [&](std::span<const ValueId> c) {
    ValueId v = b.load(x, at, s);
    ValueId top = b.point(PointOp::Maximum, {c[0], b.reduce(v, all & ~threads, Combiner::Max)});
    ValueId add = b.reduce(b.point(PointOp::Exp, {b.point(PointOp::Sub, {v, top})}), all & ~threads, Combiner::Sum);
    ValueId scaled = b.point(PointOp::Mul, {c[1], b.point(PointOp::Exp, {b.point(PointOp::Sub, {c[0], top})})});
    return std::vector<ValueId>{top, b.point(PointOp::Add, {scaled, add})};
  });
  ValueId top = b.reduce(r[0], threads, Combiner::Max);
  ValueId sum = b.reduce(b.point(PointOp::Mul, {r[1], b.point(PointOp::Exp, {b.point(PointOp::Sub, {r[0], top})})}),
                         threads, Combiner::Sum);
  b.loop(s, 1, 0, {}, [&](std::span<const ValueId>) {
    ValueId e = b.point(PointOp::Exp, {b.point(PointOp::Sub, {b.load(x, at, s), top})});
    b.store(y, at, b.point(PointOp::Div, {e, sum}));
    return std::vector<ValueId>{};
  });
  Program p = b.take();
  expectRight({{{p, {3, 1000}, {}}, 4000}, {{p, {2, 17}, {}}, 4000}, {{p, {1, 384}, {}}, 4000}});
}

// A swap: each next value is the other's old one, and digits differ.
TEST(CudaStructure, AssignsCarriesTogether) {
  Builder b("swap", Target::Gpu);
  IntExpr n = b.size("N", {.lower = 1});
  int x = b.tensor({"X", Float, Memory::Input, {n}, {1}, 4, false});
  int y = b.tensor({"Y", Float, Memory::Output, {64}, {1}, 4, false});
  int z = b.tensor({"Z", Float, Memory::Output, {64}, {1}, 4, false});
  b.gridDim("p", 1);
  int s = b.space("s", {{"k", n, {{Serial, 0}}}, {"i", 64, {{Repeat, 2}, {Lane, 32}}}});
  uint64_t d = axisDigits(b.program().spaces[0], 1);
  std::vector<ValueId> r =
      b.loop(s, 0, 0, {b.constant(Float, 1, s, d), b.constant(Float, 2, s, d), b.constant(Float, 3, s)},
             [&](std::span<const ValueId> c) {
               ValueId v = b.load(x, {{b.coord(s, 0)}}, s);
               return std::vector<ValueId>{b.point(PointOp::Add, {c[1], c[2]}), c[0], v};
             });
  b.store(y, {{b.coord(s, 1)}}, r[0]);
  b.store(z, {{b.coord(s, 1)}}, b.point(PointOp::Mul, {r[1], r[2]}));
  Program p = b.take();
  expectRight({{{p, {1}, {}}, 4}, {{p, {6}, {}}, 10}});
}

// Written by rows of lanes, read with lanes along the other axis: through shared memory. Read as written: in registers.
TEST(CudaStructure, PlacesScratch) {
  for (bool same : {false, true}) {
    Builder b(same ? "scratch_private" : "scratch_shared", Target::Gpu);
    IntExpr m = b.size("M", {.lower = 1});
    int x = b.tensor({"X", Float, Memory::Input, {m, 32}, {32, 1}, 4, false});
    int e = b.tensor({"E", Float, Memory::Scratch, {32, 33}, {33, 1}, 4, false});
    int y = b.tensor({"Y", Float, Memory::Output, {32, m}, {m, 1}, 4, false});
    b.gridDim("pm", ceilDiv(m, 32));
    int s = b.space("s", {{"m", m, {{Part, 0, "pm"}, {Repeat, 8}, {Warp, 4}}}, {"n", 32, {{Lane, 32}}}});
    int t = b.space("t", {{"mt", m, {{Part, 0, "pm"}, {Lane, 32}}}, {"nt", 32, {{Repeat, 8}, {Warp, 4}}}});
    IntExpr first = IntExpr::symbol("pm", {0, INT64_MAX, 1}) * 32;
    b.store(e, {{b.coord(s, 0) - first}, {b.coord(s, 1)}}, b.load(x, {{b.coord(s, 0)}, {b.coord(s, 1)}}, s));
    int from = same ? s : t;
    b.store(y, {{b.coord(from, 1)}, {b.coord(from, 0)}},
            b.load(e, {{b.coord(from, 0) - first}, {b.coord(from, 1)}}, from));
    Program p = b.take();
    CudaSource source = emitCuda(p);
    EXPECT_EQ(source.sharedBytes, IntExpr(same ? 0 : 32 * 33 * 4 + 0)) << kernelText(source.text);
    EXPECT_EQ(source.text.find("barrier(") == std::string::npos, same);
    expectRight({{{p, {64}, {}}, 0}, {{p, {37}, {}}, 0}});
  }
}

TEST(CudaStructure, BranchesOnWhatTheWorkerKnows) {
  Builder b("branch", Target::Gpu);
  IntExpr n = b.size("N", {.lower = 1});
  int x = b.tensor({"X", Float, Memory::Input, {n}, {1}, 4, false});
  int y = b.tensor({"Y", Float, Memory::Output, {n}, {1}, 4, false});
  int z = b.tensor({"Z", Float, Memory::Output, {ceilDiv(n, 64)}, {1}, 4, false});
  IntExpr part = b.gridDim("p", ceilDiv(n, 64));
  int s = b.space("s", {{"i", n, {{Part, 0, "p"}, {Warp, 2}, {Lane, 32}}}});
  ValueId v = b.load(x, {{b.coord(s, 0)}}, s);
  ValueId sum = b.reduceAxis(v, 0, Combiner::Sum);
  b.when({{part, 2}}, [&] { b.store(y, {{b.coord(s, 0)}}, b.point(PointOp::Sub, {v, sum})); });
  b.when({{1, part}}, [&] {
    ValueId top = b.reduceAxis(v, 0, Combiner::Max);
    b.store(y, {{b.coord(s, 0)}}, b.point(PointOp::Sub, {v, top}));
  });
  b.store(z, {{part}}, b.reduceAxis(b.point(PointOp::Abs, {v}), 0, Combiner::Sum));
  Program p = b.take();
  expectRight({{{p, {300}, {}}, 100}, {{p, {31}, {}}, 100}});
}

// Each iteration follows the one before: a slot of shared memory that other warps still read is not written without a barrier.
TEST(CudaStructure, ReducesInLoops) {
  for (int64_t reductions = 1; reductions <= 3; reductions++) {
    Builder b("rows", Target::Gpu);
    IntExpr m = b.size("M", {.lower = 1});
    IntExpr n = b.size("N", {.lower = 1});
    int x = b.tensor({"X", Float, Memory::Input, {m, n}, {n, 1}, 4, false});
    int y = b.tensor({"Y", Float, Memory::Output, {m}, {1}, 4, false});
    b.gridDim("p", ceilDiv(m, 4));
    int s = b.space("s", {{"m", m, {{Part, 0, "p"}, {Serial, 4}}}, {"n", n, {{Warp, 4}, {Lane, 32}}}});
    b.loop(s, 0, 1, {}, [&](std::span<const ValueId>) {
      ValueId v = b.load(x, {{b.coord(s, 0)}, {b.coord(s, 1)}}, s);
      ValueId sum = b.reduceAxis(v, 1, Combiner::Sum);
      for (int64_t i = 1; i < reductions; i++) {
        sum = b.reduceAxis(b.point(PointOp::Sub, {v, sum}), 1, Combiner::Sum);
      }
      b.store(y, {{b.coord(s, 0)}}, sum);
      return std::vector<ValueId>{};
    });
    Program p = b.take();
    expectRight({{{p, {7, 100}, {}}, 1e5}, {{p, {4, 128}, {}}, 1e5}});
  }
}

// Masks, windows and fills, vectors that a bound or a window cuts through, narrow vectors, and broadcasts along them.
TEST(CudaStructure, GuardsAccesses) {
  std::vector<Comparison> cases;
  for (DataType t : {Float, Half, Bool, Int32}) {
    for (int64_t shift : {0, 2, 3}) {
      Builder b("guards", Target::Gpu);
      IntExpr m = b.size("M", {.lower = 1});
      IntExpr n = b.size("N", {.lower = 1, .divisor = 2});
      int size = dataTypeSize(t);
      int x = b.tensor({"X", t, Memory::Input, {m, n}, {n, 1}, 2 * size, false});
      int k = b.tensor({"K", Bool, Memory::Input, {n}, {1}, 4, false});
      int y = b.tensor({"Y", t, Memory::Output, {m, n}, {n, 1}, 16, false});
      b.gridDim("pm", ceilDiv(m, 3));
      int s = b.space(
          "s", {{"m", m, {{Part, 0, "pm"}, {Serial, 3}}}, {"n", n, {{Serial, 0}, {Warp, 1}, {Lane, 16}, {Vector, 4}}}});
      IntExpr i = b.coord(s, 0);
      IntExpr j = b.coord(s, 1);
      b.loop(s, 0, 1, {}, [&](std::span<const ValueId>) {
        b.loop(s, 1, 0, {}, [&](std::span<const ValueId>) {
          ValueId mask = b.load(k, {{j}}, s);
          ValueId window = b.load(x, {{i}, {j - shift}}, s, {.where = {{shift - 1, j}}, .fill = b.integer(t, 1)});
          b.store(y, {{i}, {j}}, window, {.where = {{j, n - 1}}, .mask = shift == 2 ? mask : kNone});
          return std::vector<ValueId>{};
        });
        return std::vector<ValueId>{};
      });
      Program p = b.take();
      cases.push_back({{p, {7, 130}, {}}, 0});
      cases.push_back({{p, {2, 2}, {}}, 0});
    }
  }
  expectRight(cases);
}

// A sum or difference of packed tiles that is rounded to their type needs no float, stored or in registers; one with an operand that is not
// packed does.
TEST(CudaStructure, SumsPackedTiles) {
  std::vector<Comparison> cases;
  for (DataType t : {Half, BFloat16}) {
    for (PointOp op : {PointOp::Add, PointOp::Sub}) {
      for (bool kept : {false, true}) {
        Builder b("packed_sum", Target::Gpu);
        IntExpr m = b.size("M", {.lower = 1});
        IntExpr n = b.size("N", {.lower = 1, .divisor = 2});
        int x = b.tensor({"X", t, Memory::Input, {m, n}, {n, 1}, 16, false});
        int bias = b.tensor({"B", t, Memory::Input, {n}, {1}, 16, false});
        int y = b.tensor({"Y", t, Memory::Output, {m, n}, {n, 1}, 16, false});
        b.gridDim("pm", ceilDiv(m, 2));
        int s = b.space("s", {{"m", m, {{Part, 0, "pm"}, {Repeat, 2}}}, {"n", n, {{Lane, 32}, {Vector, 4}}}});
        std::vector<Index> at{{b.coord(s, 0)}, {b.coord(s, 1)}};
        const auto wide = [&](ValueId v) { return b.cast(v, Float); };
        ValueId sum = b.cast(b.point(op, {wide(b.load(x, at, s)), wide(b.load(bias, {at[1]}, s))}), t);
        b.store(y, at, kept ? b.keep(sum) : sum);
        if (kept) {
          int row = b.tensor({"R", t, Memory::Input, {m}, {1}, 2, false});
          int z = b.tensor({"Z", t, Memory::Output, {m, n}, {n, 1}, 16, false});
          b.store(z, at, b.cast(b.point(op, {wide(sum), wide(b.load(row, {at[0]}, s))}), t));
        }
        Program p = b.take();
        std::string text(kernelText(emitCuda(p).text));
        size_t first = text.find("sumWords");
        EXPECT_NE(first, std::string::npos) << text;
        EXPECT_EQ(text.find("sumWords", first + 1), std::string::npos) << text;
        EXPECT_EQ(text.substr(text.find('(', first) + 1).starts_with("words"), !kept) << text;
        EXPECT_EQ(text.find("packWords") != std::string::npos, kept) << text;
        cases.push_back({{p, {5, 122}, {}}, 0});
        cases.push_back({{p, {1, 2}, {}}, 0});
      }
    }
  }
  expectRight(cases);
}

// An output that aliases an input is read before it is written, never through the read-only path.
TEST(CudaStructure, UpdatesInPlace) {
  Builder b("update", Target::Gpu);
  IntExpr n = b.size("N", {.lower = 1});
  int g = b.tensor({"G", Float, Memory::Input, {n}, {1}, 16, false});
  int w = b.tensor({"W", Float, Memory::InOut, {n}, {1}, 16, false});
  b.gridDim("p", ceilDiv(n, 128));
  int s = b.space("s", {{"i", n, {{Part, 0, "p"}, {Lane, 32}, {Vector, 4}}}});
  std::vector<Index> at{{b.coord(s, 0)}};
  b.store(w, at,
          b.point(PointOp::Sub, {b.load(w, at, s), b.point(PointOp::Mul, {b.load(g, at, s), b.constant(Float, 0.5)})}));
  Program p = b.take();
  std::string text = emitCuda(p).text;
  EXPECT_NE(text.find("loadVector<4, kShared>"), std::string::npos) << text;
  expectRight({{{p, {1000}, {}}, 1}, {{p, {3}, {}}, 1}});
}

// The index arithmetic of a reshape: divisions by run-time sizes.
TEST(CudaStructure, DividesIndices) {
  Builder b("reshape", Target::Gpu);
  IntExpr m = b.size("M", {.lower = 1});
  IntExpr n = b.size("N", {.lower = 1});
  int x = b.tensor({"X", Float, Memory::Input, {m, n}, {1, m}, 4, false});
  int y = b.tensor({"Y", Float, Memory::Output, {m * n}, {1}, 4, false});
  b.gridDim("p", ceilDiv(m * n, 128));
  int s = b.space("s", {{"i", m * n, {{Part, 0, "p"}, {Warp, 4}, {Lane, 32}}}});
  IntExpr i = b.coord(s, 0);
  b.store(y, {{i}}, b.load(x, {{floorDiv(i, n)}, {mod(i, n)}}, s));
  Program p = b.take();
  expectRight({{{p, {7, 40}, {}}, 0}, {{p, {1, 5}, {}}, 0}});
}

// Symbols of bounded size are int variables; unbounded ones are i64 and make a sum wide from there on.
TEST(CudaStructure, IndicesThatIntMayNotHoldAreWide) {
  const IntExpr a = IntExpr::symbol("a", {.lower = 0, .upper = 1023});
  const IntExpr b = IntExpr::symbol("b", {.lower = 0, .upper = 1 << 20});
  const IntExpr n = IntExpr::symbol("n", {.lower = 0});
  const auto textOf = [](const IntExpr& e) {
    cuda::Sections uses;
    return cuda::exprText(e, uses);
  };
  EXPECT_EQ(textOf(a * 4 + b * 1024), "a*4 + b*1024");
  EXPECT_EQ(textOf(a * 4 + b * 4096), "a*4 + (i64)b*4096");
  EXPECT_EQ(textOf(a * (1 << 20) + b * 1025), "a*1048576 + (i64)b*1025");
  EXPECT_EQ(textOf(a * b), "a*b");
  EXPECT_EQ(textOf(a * b * 4), "(i64)a*b*4");
  EXPECT_EQ(textOf(a * 4 + n), "a*4 + n");
  EXPECT_EQ(textOf(a * n + b * 4096), "(i64)a*n + (i64)b*4096");
  EXPECT_EQ(textOf(n * a), "(i64)a*n");
  EXPECT_EQ(textOf(a + 2147482624), "a + 2147482624");
  EXPECT_EQ(textOf(a + 2147482625), "a + 2147482625ll");
  EXPECT_EQ(textOf(floorDiv(b * 4096, 3) + a), "a + (((i64)b*4096) / 3)");
  const IntExpr i = IntExpr::symbol("i", {.lower = 0, .upper = 1 << 30});
  const IntExpr j = IntExpr::symbol("j", {.lower = 0, .upper = 1 << 30});
  EXPECT_EQ(textOf(i * j * (int64_t{1} << 34)),
            "(i64)i*j*17179869184ll");  // the most of i times the coefficient is 2^64
}

TEST(CudaStructure, RunsNothingForAnEmptyGrid) {
  Builder b("empty", Target::Gpu);
  IntExpr n = b.size("N", {.lower = 0});
  int x = b.tensor({"X", Float, Memory::Input, {n}, {1}, 4, false});
  int y = b.tensor({"Y", Float, Memory::Output, {n}, {1}, 4, false});
  b.gridDim("p", ceilDiv(n, 32));
  int s = b.space("s", {{"i", n, {{Part, 0, "p"}, {Lane, 32}}}});
  b.store(y, {{b.coord(s, 0)}}, b.load(x, {{b.coord(s, 0)}}, s));
  expectRight({{{b.take(), {0}, {}}, 0}});
}

}  // namespace
}  // namespace meshfuse
