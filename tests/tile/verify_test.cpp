#include <gtest/gtest.h>

#include <algorithm>

#include "tile/builder.h"
#include "tile/programs.h"

namespace meshfuse::tile {
namespace {

using enum Level;
using enum DataType;

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& l : lines) {
    text += l + "\n";
  }
  return text;
}

void expectFinding(const Program& program, const std::string& phrase) {
  std::string text = joined(verify(program));
  EXPECT_NE(text.find(phrase), std::string::npos) << "expected: " << phrase << "\ngot:\n" << text;
}

// A good program to plant faults in: rows in registers, statistics stored once, or a loop over a row.
Program registers() { return layerNormProgram(Target::Gpu, BFloat16, 17, 200).program; }
Program rows() { return softmaxProgram(Target::Cpu, Float, 33, 130).program; }
Program parts() { return outerSumProgram(Target::Gpu, Half, 200, 136).program; }

Value& valueOf(Program& p, ValueKind kind) {
  return *std::find_if(p.values.begin(), p.values.end(), [&](const Value& v) { return v.kind == kind; });
}
Stmt& stmtOf(std::vector<Stmt>& body, StmtKind kind) {
  return *std::find_if(body.begin(), body.end(), [&](const Stmt& s) { return s.kind == kind; });
}
template <class F>
Program with(Program p, const F& change) {
  change(p);
  return p;
}

TEST(Verify, ExamplesAreClean) {
  for (const NamedExample& e : representativePrograms()) {
    EXPECT_EQ(joined(verify(e.example.program)), "") << e.name;
  }
}

TEST(Verify, Declarations) {
  expectFinding(with(registers(), [](Program& p) { p.tensors[0].name = "M"; }), "tensor M: the name is taken");
  expectFinding(with(registers(), [](Program& p) { p.sizes[0].name = "2M"; }), "size '2M' is no identifier");
  expectFinding(with(registers(), [](Program& p) { p.tensors[0].extents[0] = IntExpr::symbol("Q"); }),
                "Q is no size of the kernel");
  expectFinding(with(registers(), [](Program& p) { p.tensors[0].alignment = 24; }),
                "alignment 24, expected a power of two");
  expectFinding(with(registers(), [](Program& p) { p.tensors[0].zeroed = true; }), "only a workspace is zeroed");
  expectFinding(with(registers(), [](Program& p) { p.grid[0].count = IntExpr::symbol("n"); }),
                "n is no size of the kernel");
}

TEST(Verify, Digits) {
  auto digit = [](Program& p, size_t axis, size_t i) -> Digit& { return p.spaces[0].axes[axis].digits[i]; };
  expectFinding(with(registers(), [&](Program& p) { digit(p, 1, 1).size = 64; }), "64 lanes, a warp has 32");
  expectFinding(with(registers(), [&](Program& p) { digit(p, 0, 1).size = 64; }),
                "2048 threads, a block has at most 1024");
  expectFinding(with(registers(), [&](Program& p) { digit(p, 0, 1).size = 6; }), "size 6, expected a power of two");
  expectFinding(with(registers(), [&](Program& p) { digit(p, 0, 1).level = Cluster, digit(p, 0, 1).size = 32; }),
                "a cluster of 32 blocks");
  expectFinding(with(registers(), [&](Program& p) { digit(p, 0, 1).size = IntExpr::symbol("M"); }),
                "has the run-time size M");
  expectFinding(with(registers(), [&](Program& p) { std::swap(digit(p, 1, 1), digit(p, 1, 2)); }),
                "the vector digit is not innermost");
  expectFinding(with(registers(), [&](Program& p) { digit(p, 1, 0).stride = 8; }),
                "has stride 8, the digits within it extend over 256");
  expectFinding(with(registers(), [&](Program& p) { digit(p, 0, 1).level = Vector; }), "2 vector digits, at most one");
  expectFinding(with(registers(), [&](Program& p) { digit(p, 0, 0).symbol = "pq"; }),
                "part digit pq names no grid dim");
  expectFinding(with(registers(), [&](Program& p) { digit(p, 0, 1).symbol = "n_l"; }), "digit symbol n_l is taken");
  expectFinding(with(registers(), [&](Program& p) { p.target = Target::Cpu; }), "on a level a CPU does not have");
  expectFinding(with(registers(), [&](Program& p) { p.spaces[0].axes[1].bound = 5000; }),
                "its digits reach 256 positions of 5000");
}

TEST(Verify, UnrolledElementsAndSharedMemory) {
  Builder b("k", Target::Gpu);
  IntExpr n = b.size("N");
  b.gridDim("p", 1);
  int x = b.tensor({"X", Float, Memory::Input, {n}, {1}});
  int s = b.space("s", {{"n", n, {{Part, 0, "p"}, {Repeat, 64}, {Warp, 32}, {Lane, 32}}}});
  int t = b.space("t", {{"m", n, {{Part, 0, "p"}, {Warp, 32}, {Repeat, 64}, {Lane, 32}}}});
  b.tensor({"S", Float, Memory::Scratch, {60000}, {1}});
  b.convert(b.load(x, {{b.coord(s, 0)}}, s), t);
  expectFinding(b.program(), "scratch takes 240000 bytes, a block has 232448");
  Program p = b.take();
  p.tensors.pop_back();
  expectFinding(p, "64 unrolled elements a thread, at most 32");
  expectFinding(p, "converting 262144 bytes through shared memory of 232448");
  p.tensors.push_back({"S", Float, Memory::Scratch, {IntExpr::symbol("N")}, {1}});
  expectFinding(p, "scratch S of a GPU block: dim 0 is not constant");
}

TEST(Verify, TypesAndDigitsOfValues) {
  auto point = [](Program& p) -> Value& { return valueOf(p, ValueKind::Point); };
  expectFinding(with(registers(), [&](Program& p) { point(p).dtype = Int; }), "gives Float, got Int");
  expectFinding(with(registers(), [&](Program& p) { point(p).op = PointOp::BitwiseAnd; }),
                "bitwise_and takes no Float");
  expectFinding(with(registers(), [&](Program& p) { point(p).digits = 2; }),
                "spread over digits (n_r), expected (m_w)");
  expectFinding(with(registers(), [&](Program& p) { valueOf(p, ValueKind::Load).dtype = Half; }),
                "it is Half, X is BFloat16");
  expectFinding(with(registers(), [&](Program& p) { valueOf(p, ValueKind::Load).digits = 1; }),
                "spread over digits (m_w), expected");
  expectFinding(with(registers(), [&](Program& p) { valueOf(p, ValueKind::Reduce).combiner = Combiner::Or; }),
                "or of Float");
  expectFinding(with(registers(), [&](Program& p) { valueOf(p, ValueKind::Load).index.pop_back(); }),
                "1 indices for 2 dims of X");
  expectFinding(with(registers(), [&](Program& p) { valueOf(p, ValueKind::Load).fill = 0; }),
                "its fill is no constant or scalar");
  expectFinding(with(registers(), [&](Program& p) { valueOf(p, ValueKind::Load).mask = 1; }), "its mask is no Bool");
  expectFinding(with(dropoutProgram(Target::Cpu, Float, 50).program,
                     [&](Program& p) { valueOf(p, ValueKind::Random).param = 4; }),
                "word 4 as Int, expected 0 to 3");
  expectFinding(with(registers(), [&](Program& p) { point(p).operands.push_back(0); }), "operands, expected 2");
  expectFinding(with(registers(), [&](Program& p) { point(p).space = 7; }), "space 7 does not exist");
  expectFinding(with(registers(), [&](Program& p) { valueOf(p, ValueKind::Load).digits = ~0ull; }), "its space has 4");
}

TEST(Verify, Scopes) {
  expectFinding(with(registers(), [](Program& p) { std::rotate(p.body.begin(), p.body.begin() + 1, p.body.end()); }),
                "is not defined here");
  // The maximum's partial values are yielded out of their loop.
  expectFinding(with(rows(),
                     [](Program& p) {
                       std::vector<Stmt>& body = stmtOf(p.body, StmtKind::For).body;
                       Stmt& inner = stmtOf(body, StmtKind::For);
                       body.push_back({.kind = StmtKind::Keep, .value = inner.carried[0].next});
                     }),
                "keep: value");
  expectFinding(with(rows(),
                     [](Program& p) {
                       Stmt loop = std::move(stmtOf(p.body, StmtKind::For));
                       p.body = std::move(loop.body);
                     }),
                "coordinate m has no value outside of loop m_s");
  expectFinding(
      with(registers(), [](Program& p) { valueOf(p, ValueKind::Load).index[1].expr += IntExpr::symbol("q"); }),
      "unknown symbol q");
  expectFinding(with(registers(), [](Program& p) { p.body.push_back(p.body[0]); }), "is defined twice");
  expectFinding(
      with(registers(),
           [](Program& p) { valueOf(p, ValueKind::Load).index[1].expr = IntExpr::symbol("n", {.divisor = 8}); }),
      "assumes more about coordinate n than its bound says");
  expectFinding(with(registers(), [](Program& p) { p.sizes[1].facts.divisor = 1; }),
                "assumes more about size N than its declaration says");
}

TEST(Verify, Loops) {
  auto inner = [](Program& p) -> Stmt& { return stmtOf(stmtOf(p.body, StmtKind::For).body, StmtKind::For); };
  expectFinding(with(rows(), [&](Program& p) { inner(p).axis = 0, inner(p).digit = 1; }),
                "loop m_s runs inside itself");
  expectFinding(with(rows(), [&](Program& p) { inner(p).digit = 1; }), "the digit is not serial");
  expectFinding(with(rows(), [&](Program& p) { inner(p).digit = 9; }), "which does not exist");
  expectFinding(with(rows(), [&](Program& p) { p.values[inner(p).carried[0].init].digits = 0; }),
                "carry 0 changes its digits");
  expectFinding(with(rows(), [&](Program& p) { p.values[inner(p).carried[0].init].dtype = Int; }),
                "carry 0 is Float and Int");
  expectFinding(with(rows(), [&](Program& p) { p.values[inner(p).carried[0].carry].kind = ValueKind::Const; }),
                "is held by values of other kinds");
}

TEST(Verify, MemoryAndWriters) {
  auto firstStore = [](Program& p) -> Stmt& { return stmtOf(p.body, StmtKind::Store); };
  expectFinding(with(registers(), [](Program& p) { p.tensors[3].memory = Memory::Input; }), "store Y: it is an input");
  expectFinding(with(registers(), [](Program& p) { p.tensors[0].memory = Memory::Output; }),
                "X is an output and is only written");
  expectFinding(with(registers(), [](Program& p) { p.tensors[3].dtype = Half; }),
                "the value is BFloat16, the tensor Half");
  expectFinding(with(registers(), [&](Program& p) { firstStore(p).value = stmtOf(p.body, StmtKind::Keep).value; }),
                "several elements go to one place");
  expectFinding(with(registers(), [&](Program& p) { firstStore(p).index[0].expr = 0; }),
                "all parts of grid dim pm write the same elements");
  expectFinding(with(rows(),
                     [](Program& p) {
                       std::vector<Stmt>& body = stmtOf(p.body, StmtKind::For).body;
                       std::vector<Stmt>& last = body.back().body;
                       stmtOf(last, StmtKind::Store).index[0].expr = IntExpr::symbol("pm");
                     }),
                "store Y: every step of loop m_s writes the same elements");
  expectFinding(with(parts(), [&](Program& p) { firstStore(p).index[0].expr = 0; }),
                "store P: all parts of grid dim pm");
}

TEST(Verify, InOutIsLoadedBeforeItIsStored) {
  const Program good = with(addProgram(Target::Cpu, Float, 50).program, [](Program& p) {
    valueOf(p, ValueKind::Load).param = 2;
    p.tensors[2].memory = Memory::InOut;
  });
  EXPECT_EQ(joined(verify(good)), "");
  expectFinding(with(good,
                     [](Program& p) {
                       std::vector<Stmt>& body = p.body[0].kind == StmtKind::For ? p.body[0].body : p.body;
                       std::rotate(body.begin(), body.end() - 1, body.end());
                     }),
                "it loads Z after a store to it");
}

TEST(Verify, UniformConditionsAndLastArrivers) {
  auto last = [](Program& p) -> Stmt& { return stmtOf(p.body, StmtKind::LastArriver); };
  expectFinding(with(parts(),
                     [&](Program& p) {
                       last(p).where = {{IntExpr::symbol("n"), 3}}, last(p).kind = StmtKind::If;
                     }),
                "the condition of an if: coordinate n is of another space");
  expectFinding(with(parts(),
                     [&](Program& p) {
                       last(p).where = {{IntExpr::symbol("n_l"), 3}}, last(p).kind = StmtKind::If;
                     }),
                "digit n_l is of another space");
  expectFinding(with(parts(), [&](Program& p) { last(p).param = 2; }), "counter P is no zeroed workspace of Int32");
  expectFinding(with(parts(), [](Program& p) { p.tensors[2].zeroed = true; }),
                "store P: only last arrivers use a zeroed workspace");
  expectFinding(with(parts(), [&](Program& p) { last(p).index[0].expr = IntExpr::symbol("m"); }),
                "names m, which is no grid dim");
  expectFinding(with(parts(), [&](Program& p) { last(p).index.clear(); }),
                "depends on pn, which is the part that arrived last");
  expectFinding(with(parts(),
                     [&](Program& p) {
                       Stmt keep{.kind = StmtKind::Keep, .value = stmtOf(p.body, StmtKind::Store).value};
                       last(p).body.push_back(keep);
                     }),
                "belongs to the part that arrived last; compute it inside");
  expectFinding(with(parts(),
                     [&](Program& p) {
                       Stmt inner = std::move(last(p));
                       last(p) = {.kind = StmtKind::If};
                       p.body.back().body.push_back(std::move(inner));
                     }),
                "each worker arrives once");
}

TEST(Verify, PrefetchesAreOfOneLine) {
  expectFinding(with(rows(),
                     [&](Program& p) {
                       const int64_t load = &valueOf(p, ValueKind::Load) - p.values.data();
                       Stmt s{.kind = StmtKind::Prefetch, .param = 0, .index = p.values[load].index, .space = 0};
                       s.index.back() = {0, load};
                       p.body.push_back(s);
                     }),
                "differs between the elements of a step");
}

TEST(Verify, Converts) {
  auto transpose = [] { return transposeProgram(Target::Gpu, Float, 100, 70).program; };
  auto to = [](Program& p, size_t axis, size_t i) -> Digit& { return p.spaces[1].axes[axis].digits[i]; };
  expectFinding(with(transpose(), [](Program& p) { p.spaces[1].axes[0].bound = 3; }), "have the bounds M and 3");
  expectFinding(with(transpose(), [&](Program& p) { to(p, 0, 0).stride = 16, to(p, 0, 1).size = 16; }),
                "the tiles extend over 32 and 16");
  expectFinding(with(transpose(), [&](Program& p) { to(p, 0, 0).symbol = "pn"; }),
                "parts and loops place axes m and mt differently");
  expectFinding(with(transpose(), [](Program& p) { p.values[1].dtype = Half; }), "it changes Float to Half");
  expectFinding(with(transpose(), [](Program& p) { p.values[1].digits = 1; }), "spread over digits (mt_l), expected");
}

TEST(Verify, Shifts) {
  const auto shifted = [](const IntExpr& by) {
    return with(shiftProgram(Float, 8, 64).program, [&](Program& p) { p.values.back().index[0].expr = by; });
  };
  EXPECT_EQ(verify(shifted(16)), std::vector<std::string>{});
  expectFinding(shifted(17), "it shifts 16 lanes by 17, which is not known to be between 0 and that");
  expectFinding(shifted(-1), "it shifts 16 lanes by -1");
  expectFinding(with(shiftProgram(Float, 8, 64).program, [](Program& p) { p.values.back().dtype = Half; }),
                "it changes Float to Half");
  expectFinding(with(shiftProgram(Float, 8, 64).program, [](Program& p) { p.values.back().operands.pop_back(); }),
                "1 operands, expected 2");
}

}  // namespace
}  // namespace meshfuse::tile
