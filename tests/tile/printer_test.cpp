#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "tile/builder.h"
#include "tile/programs.h"

namespace meshfuse::tile {
namespace {

// MESHFUSE_UPDATE_GOLDEN=1 writes the files instead of comparing with them.
TEST(Printer, RepresentativePrograms) {
  const std::set<std::string> golden = {"add_gpu",        "bias_gelu_cpu",  "softmax_cpu",   "softmax_gpu",
                                        "layer_norm_cpu", "layer_norm_gpu", "inner_sum_gpu", "outer_sum_cpu",
                                        "outer_sum_gpu",  "transpose_cpu",  "transpose_gpu", "pad_cat_gpu",
                                        "gather_cpu",     "dropout_cpu"};
  size_t seen = 0;
  for (const NamedExample& e : representativePrograms()) {
    if (golden.count(e.name) == 0) {
      continue;
    }
    seen++;
    std::string path = std::string(MESHFUSE_SOURCE_DIR) + "/tests/tile/golden/" + e.name + ".tile";
    std::string text = toString(e.example.program);
    if (std::getenv("MESHFUSE_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path) << text;
      continue;
    }
    std::ifstream file(path);
    ASSERT_TRUE(file.good()) << path << " is missing";
    std::stringstream expected;
    expected << file.rdbuf();
    EXPECT_EQ(text, expected.str()) << e.name;
  }
  EXPECT_EQ(seen, golden.size());
}

TEST(Printer, SameProgramSameText) {
  std::vector<NamedExample> first = representativePrograms();
  std::vector<NamedExample> second = representativePrograms();
  for (size_t i = 0; i < first.size(); i++) {
    EXPECT_EQ(toString(first[i].example.program), toString(second[i].example.program));
  }
}

// The text is the key of the kernel cache: whatever changes the code must change it.
TEST(Printer, EveryFieldShows) {
  using Change = std::function<void(Program&)>;
  auto valueOf = [](Program& p, ValueKind kind) -> Value& {
    return *std::find_if(p.values.begin(), p.values.end(), [&](const Value& v) { return v.kind == kind; });
  };
  auto storeOf = [](Program& p) -> Stmt& {
    return *std::find_if(p.body.begin(), p.body.end(), [](const Stmt& s) { return s.kind == StmtKind::Store; });
  };
  std::vector<std::pair<std::string, Change>> changes = {
      {"name", [](Program& p) { p.name += "x"; }},
      {"target", [](Program& p) { p.target = Target::Cpu; }},
      {"size lower", [](Program& p) { p.sizes[0].facts.lower = 5; }},
      {"size upper", [](Program& p) { p.sizes[0].facts.upper = 500; }},
      {"size divisor", [](Program& p) { p.sizes[0].facts.divisor *= 2; }},
      {"scalar type", [](Program& p) { p.scalars[0].dtype = DataType::Double; }},
      {"tensor type", [](Program& p) { p.tensors[0].dtype = DataType::Double; }},
      {"memory", [](Program& p) { p.tensors[0].memory = Memory::InOut; }},
      {"extent", [](Program& p) { p.tensors[0].extents[0] = 3; }},
      {"stride", [](Program& p) { p.tensors[0].strides[1] = 3; }},
      {"alignment", [](Program& p) { p.tensors[0].alignment = 16; }},
      {"zeroed", [](Program& p) { p.tensors[0].zeroed = true; }},
      {"grid", [](Program& p) { p.grid[0].count = 3; }},
      {"bound", [](Program& p) { p.spaces[0].axes[1].bound = 3; }},
      {"level", [](Program& p) { p.spaces[0].axes[1].digits[1].level = Level::Repeat; }},
      {"digit size", [](Program& p) { p.spaces[0].axes[1].digits[1].size = 2; }},
      {"digit stride", [](Program& p) { p.spaces[0].axes[1].digits[1].stride = 2; }},
      {"digit symbol", [](Program& p) { p.spaces[0].axes[1].digits[1].symbol = "q"; }},
      {"value type", [&](Program& p) { valueOf(p, ValueKind::Point).dtype = DataType::Double; }},
      {"value digits", [&](Program& p) { valueOf(p, ValueKind::Point).digits ^= 1; }},
      {"op", [&](Program& p) { valueOf(p, ValueKind::Point).op = PointOp::Mul; }},
      {"combiner", [&](Program& p) { valueOf(p, ValueKind::Reduce).combiner = Combiner::Prod; }},
      {"reduce condition",
       [&](Program& p) {
         valueOf(p, ValueKind::Reduce).where.push_back({0, 1});
       }},
      {"operand",
       [&](Program& p) {
         std::swap(valueOf(p, ValueKind::Point).operands[0], valueOf(p, ValueKind::Point).operands[1]);
       }},
      {"constant",
       [&](Program& p) {
         p.values.push_back({.kind = ValueKind::Const, .dtype = DataType::Float, .constant = 3.5});
         valueOf(p, ValueKind::Point).operands[1] = static_cast<ValueId>(p.values.size()) - 1;
       }},
      {"index", [&](Program& p) { valueOf(p, ValueKind::Load).index[1].expr += 1; }},
      {"index tile", [&](Program& p) { valueOf(p, ValueKind::Load).index[1].tile = 0; }},
      {"where",
       [&](Program& p) {
         valueOf(p, ValueKind::Load).where.push_back({0, 1});
       }},
      {"mask", [&](Program& p) { valueOf(p, ValueKind::Load).mask = 0; }},
      {"fill", [&](Program& p) { valueOf(p, ValueKind::Load).fill = 0; }},
      {"cache", [&](Program& p) { valueOf(p, ValueKind::Load).cache = Cache::Once; }},
      {"store value", [&](Program& p) { storeOf(p).value = 0; }},
      {"store tensor", [&](Program& p) { storeOf(p).param = 0; }},
      {"store where",
       [&](Program& p) {
         storeOf(p).where.push_back({0, 1});
       }},
      {"store mask", [&](Program& p) { storeOf(p).mask = 0; }},
      {"store cache", [&](Program& p) { storeOf(p).cache = Cache::Once; }},
      {"keep",
       [](Program& p) {
         p.body.erase(
             std::find_if(p.body.begin(), p.body.end(), [](const Stmt& s) { return s.kind == StmtKind::Keep; }));
       }},
  };
  const Program program = layerNormProgram(Target::Gpu, DataType::BFloat16, 17, 200).program;
  std::set<std::string> texts = {toString(program)};
  for (const auto& [what, change] : changes) {
    Program changed = program;
    change(changed);
    EXPECT_TRUE(texts.insert(toString(changed)).second) << what << " does not show, or shows like another change";
  }
}

TEST(Builder, DigitsStridesAndSymbols) {
  Builder b("k", Target::Gpu);
  IntExpr n = b.size("N");
  b.gridDim("pn", ceilDiv(n, 1024));
  int s = b.space("s", {{"n",
                         n,
                         {{Level::Part, 0, "pn"},
                          {Level::Serial, 0},
                          {Level::Repeat, 2},
                          {Level::Warp, 4},
                          {Level::Repeat, 2},
                          {Level::Lane, 8}}}});
  const Axis& axis = b.program().spaces[0].axes[0];
  EXPECT_EQ(axis.digits[0].size, ceilDiv(n, 1024));
  EXPECT_EQ(axis.digits[1].size, ceilDiv(n, ceilDiv(n, 1024) * 128));  // what the bound needs beside the others
  EXPECT_EQ(axis.digits[1].stride, IntExpr(128));
  EXPECT_EQ(axis.digits[5].stride, IntExpr(1));
  EXPECT_EQ(axis.digits[1].symbol, "n_s");
  EXPECT_EQ(axis.digits[4].symbol, "n_r1");
  EXPECT_EQ(axisDigits(b.program().spaces[0], 0), 0b1111u);
  EXPECT_EQ(b.program().threads(), 128);
  EXPECT_EQ(b.program().cluster(), 1);
  ValueId row = b.indexValue(b.coord(s, 0), s);
  EXPECT_EQ(b.program().values[row].digits, 0b1111u);
}

TEST(Builder, RefusesMistakes) {
  Builder b("k", Target::Cpu);
  IntExpr n = b.size("N");
  int s = b.space("s", {{"n", n, {{Level::Serial, 0}, {Level::Vector, 8}}}});
  int t = b.space("t", {{"m", n, {{Level::Serial, 0}, {Level::Vector, 8}}}});
  ValueId one = b.constant(DataType::Float, 1);
  ValueId here = b.cast(b.indexValue(b.coord(s, 0), s), DataType::Float);
  ValueId there = b.cast(b.indexValue(b.coord(t, 0), t), DataType::Float);
  auto fails = [](const std::function<void()>& body, const std::string& phrase) {
    try {
      body();
      ADD_FAILURE() << "expected: " << phrase;
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find(phrase), std::string::npos) << e.what();
    }
  };
  fails([&] { b.point(PointOp::Add, {one}); }, "add takes 2 operands, got 1");
  fails([&] { b.point(PointOp::Add, {one, b.integer(DataType::Int, 1)}); }, "operand 1 is Int, expected Float");
  fails([&] { b.point(PointOp::Exp, {b.integer(DataType::Int, 1)}); }, "expected a type of the op's row");
  fails([&] { b.point(PointOp::Add, {here, there}); }, "operands lie in the spaces s and t; convert one");
  fails([&] { b.reduce(one, 1, Combiner::Sum); }, "reduce over digits 0x1, but the value has only 0x0");
  fails([&] { b.loop(s, 0, 1, {}, [](auto) { return std::vector<ValueId>{}; }); }, "n_v is on level v");
  fails([&] { b.loop(s, 0, 0, {one}, [&](auto) { return std::vector<ValueId>{here}; }); },
        "spread the initial constant");
  fails([&] { b.space("u", {{"k", n, {{Level::Part, 0, "pk"}}}}); }, "grid dim pk, which does not exist");
  EXPECT_EQ(b.cast(one, DataType::Float), one);
}

}  // namespace
}  // namespace meshfuse::tile
