// Kernels of routines: their texts under the emulator, against loops, with planted faults; and what NVRTC makes of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "architectures.h"
#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "device/cuda/routines/routine_program.h"
#include "inputs.h"
#include "ir/fusion.h"
#include "ops/indexing.h"
#include "ops/scan_sort.h"
#include "ops/tensors.h"
#include "simt/emulator.h"

namespace meshfuse {
namespace {

using Views = std::vector<TensorView*>;
using Build = std::function<TensorView*(const Views&)>;

struct Operand {
  std::vector<int64_t> sizes;
  DataType type = DataType::Float;
};

RoutineProgram programOf(const std::vector<Operand>& operands, const Build& build) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  Views views;
  for (const Operand& o : operands) {
    views.push_back(input(fusion, o.sizes, o.type));
  }
  fusion.addOutput(build(views));
  const std::map<int64_t, Layout> rowMajor;
  return routineProgram(*fusion.outputs()[0]->definition(),
                        {.layouts = rowMajor, .valueOf = [](const IntExpr& e) { return e.constValue(); }});
}

RoutineProgram programOf(const Tensor& x, const Build& build) {
  return programOf({{{x.sizes().begin(), x.sizes().end()}, x.dtype()}}, build);
}

tile::TensorParam parameterOf(const char* name, tile::Memory memory, const Tensor& t) {
  return {.name = name,
          .dtype = t.dtype(),
          .memory = memory,
          .extents = {t.sizes().begin(), t.sizes().end()},
          .strides = {t.strides().begin(), t.strides().end()},
          .alignment = dataTypeSize(t.dtype())};
}

// A kernel that reads x and writes z; `replace` in its text becomes `by`.
struct Emulation {
  // The only kernel of a program.
  Emulation(const RoutineProgram& program, const Tensor& x, const std::vector<int64_t>& sizes, DataType type,
            const std::string& replace = "", const std::string& by = "")
      : Emulation(program, 0, x, tile::Memory::Output, Tensor::empty(sizes, type), replace, by) {
    EXPECT_EQ(program.launches.size(), 1);
  }
  Emulation(const RoutineProgram& program, int64_t launch, const Tensor& x, tile::Memory memory, Tensor z,
            const std::string& replace, const std::string& by)
      : x(x), z(std::move(z)), source(program.kernels[program.launches[launch].kernel]) {
    tensors.name = "routine";
    tensors.tensors = {parameterOf("x", tile::Memory::Input, x), parameterOf("z", memory, this->z)};
    source.blocks = program.launches[launch].blocks;
    if (!replace.empty()) {
      const size_t at = source.text.find(replace);
      EXPECT_NE(at, std::string::npos) << replace;
      source.text.replace(at, replace.size(), by);
    }
  }

  Tensor x;
  Tensor z;
  tile::Program tensors;
  CudaSource source;
  std::vector<std::string> faults = {};
};

void run(std::vector<std::unique_ptr<Emulation>>& all) {
  const std::vector<simt::Launch> launches = mapped(all, [](const std::unique_ptr<Emulation>& e) {
    return simt::Launch{.kernel = {&e->tensors, e->source},
                        .slots = {std::bit_cast<uint64_t>(e->x.data()), std::bit_cast<uint64_t>(e->z.data())},
                        .seed = 3};
  });
  const std::vector<simt::Result> results = simt::run(launches);
  for (size_t i = 0; i < results.size(); i++) {
    all[i]->faults = results[i].faults;
  }
}

template <class T>
std::vector<T> elementsOf(const Tensor& t) {
  const T* const data = static_cast<const T*>(t.data());
  return {data, data + t.numel()};
}

// Along `dim`, in the order of the elements, in Double.
template <class T>
std::vector<T> scanned(const Tensor& x, int64_t dim, ReduceOp op) {
  const std::vector<T> in = elementsOf<T>(x);
  std::vector<T> out(in.size());
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); d++) {
    inner *= x.size(d);
  }
  for (int64_t line = 0; line < x.numel() / x.size(dim); line++) {
    double total = floatingIdentity(op);
    for (int64_t j = 0; j < x.size(dim); j++) {
      const int64_t at = (line / inner * x.size(dim) + j) * inner + line % inner;
      const double v = in[at];
      total = op == ReduceOp::Sum ? total + v : op == ReduceOp::Prod ? total * v : std::max(total, v);
      out[at] = static_cast<T>(total);
    }
  }
  return out;
}

// Sums of one line of Double: each is the last one of the segment before plus the sum of the segment so far.
std::vector<double> summedInSegments(const std::vector<double>& in) {
  std::vector<double> out;
  double before = 0;
  double own = 0;
  for (const double v : in) {
    if (out.size() % 16 == 0) {
      before = out.empty() ? 0 : out.back();
      own = 0;
    }
    own += v;
    out.push_back(before + own);
  }
  return out;
}

Build scanOf(int64_t dim, ReduceOp op) {
  return [=](const Views& in) { return scan(in[0], dim, op); };
}

Build descending() {
  return [](const Views& in) { return argsort(in[0], -1, true); };
}

using Emulations = std::vector<std::unique_ptr<Emulation>>;
const std::vector<std::string> kNone;

// Lines of one tile, of several, and of a part of one; alone, adjacent, and more than a block has.
TEST(RoutineTexts, ScansHaveTheBitsOfALoop) {
  struct Case {
    std::vector<int64_t> sizes;
    int64_t dim;
    ReduceOp op;
  };
  std::vector<Case> cases;
  Emulations all;
  for (const auto& [sizes, dim] : std::vector<std::pair<std::vector<int64_t>, int64_t>>{
           {{1, 1}, 1}, {{3, 16}, 1}, {{70, 17}, 1}, {{2, 9000}, 1}, {{600, 3}, 0}, {{300, 40}, 0}, {{3, 130, 5}, 1}}) {
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max}) {
      const Tensor x = random(sizes, 5);
      cases.push_back({sizes, dim, op});
      all.push_back(std::make_unique<Emulation>(programOf(x, scanOf(dim, op)), x, sizes, DataType::Float));
    }
  }
  run(all);
  for (size_t i = 0; i < all.size(); i++) {
    EXPECT_EQ(all[i]->faults, kNone);
    EXPECT_EQ(elementsOf<float>(all[i]->z), scanned<float>(all[i]->x, cases[i].dim, cases[i].op)) << i;
  }
}

// `values` at the begin of 96 elements, the others are `rest`.
Tensor lineOf(std::vector<double> values, double rest, DataType type = DataType::Double) {
  values.resize(96, rest);
  return Tensor::of(values, {96}, type);
}

std::vector<double> repeated(int64_t count, double value, const std::vector<double>& after) {
  std::vector<double> values(count, value);
  values.insert(values.end(), after.begin(), after.end());
  return values;
}

// Ones, but for some places
Tensor longLine(int64_t count, const std::map<int64_t, double>& places) {
  std::vector<double> values(count, 1);
  for (const auto& [at, value] : places) {
    values[at] = value;
  }
  return Tensor::of(values, {count}, DataType::Double);
}

// Totals that are subnormal or infinite where those of a segment, or those of the line before and after it, are not.
TEST(RoutineTexts, TotalsLeaveTheRangeWhereALoopLeavesIt) {
  struct Case {
    Tensor x;
    ReduceOp op;
  };
  const std::vector<Case> cases = {
      // in a segment
      {lineOf(repeated(16, 1e10, {1e-160, 1.5e-160, 1e100}), 1), ReduceOp::Prod},
      {lineOf(repeated(16, 1e10, {1e160, 1e160, 1e-300}), 1), ReduceOp::Prod},
      {lineOf(repeated(16, -1e307, {1e308, 1e308, -1e308}), 0), ReduceOp::Sum},
      // from the begin of the line only
      {lineOf(repeated(15, 1, {1e-300, 1e-20, 1e20}), 1), ReduceOp::Prod},
      {lineOf(repeated(15, 1, {1e300, 1e20, 1e-20}), 1), ReduceOp::Prod},
      {lineOf(repeated(15, 1, {1.7e308, 4e307, -4e307}), 0), ReduceOp::Sum},
      // from the tile before: its carry may not be combined with the first total of this one, but the result may be
      {longLine(4500, {{0, 1e301}, {4096, 1.1e-25}, {4097, 1.3e-25}, {4098, 1.7e-25}}), ReduceOp::Prod},
      // of Float
      {lineOf(repeated(32, 1e-30, std::vector<double>(32, 1e30)), 1.5, DataType::Float), ReduceOp::Prod},
      {lineOf(repeated(16, 1e19,
                       repeated(8, 1e-38,
                                {1e-16, 1e38, 1e38, 1e38, 1e38, 1e38, 1e38, 1e38, 1e-38, 1e-38, 1e-38, 1e-38, 1e-38,
                                 1e-38})),
              1, DataType::Float),
       ReduceOp::Prod}};
  Emulations all;
  struct Change {
    std::string from;
    std::string to = "true";
  };
  const std::vector<Change> changes = {{"", ""},
                                       {"stands && Combine::standsIn(total)"},
                                       {"Combine::standsIn(ofSegment)"},
                                       {"Combine::carries(carry)"},
                                       {"Combine::carries(before)"},
                                       {"certain & Combine::isCertain(carry)"},
                                       {"bool certain = Combine::isCertain(carry)", "bool certain = true"}};
  for (const auto& [from, to] : changes) {
    for (const Case& c : cases) {
      const std::vector<int64_t> sizes = {c.x.numel()};
      all.push_back(std::make_unique<Emulation>(programOf(c.x, scanOf(0, c.op)), c.x, sizes, c.x.dtype(), from, to));
    }
  }
  run(all);
  const auto isAsALoop = [&](size_t i) {
    const Case& c = cases[i % cases.size()];
    return c.x.dtype() == DataType::Float ? elementsOf<float>(all[i]->z) == scanned<float>(c.x, 0, c.op)
                                          : elementsOf<double>(all[i]->z) == scanned<double>(c.x, 0, c.op);
  };
  for (size_t i = 0; i < cases.size(); i++) {
    EXPECT_EQ(all[i]->faults, kNone);
    EXPECT_TRUE(isAsALoop(i)) << i;
  }
  for (size_t k = 1; k < changes.size(); k++) {
    int64_t wrong = 0;
    for (size_t i = 0; i < cases.size(); i++) {
      wrong += isAsALoop(k * cases.size() + i) ? 0 : 1;
    }
    EXPECT_GT(wrong, 0) << "without " << changes[k].from;
  }
}

TEST(RoutineTexts, SumsOfDoubleHaveTheBitsOfSegments) {
  std::vector<double> small(16, 0);  // each is lost beside 1, together they are not
  small[0] = 1;
  small.resize(32, 1.2e-16);
  std::vector<std::vector<double>> lines = {lineOf(small, 0).toVector()};
  for (const int64_t n : {1, 16, 17, 1000, 9000}) {
    lines.push_back(random({n}, 5, DataType::Double).toVector());
    lines.push_back(randomTensor({n}, DataType::Double, 5, 0, 1).toVector());
  }
  Emulations all;
  for (const std::vector<double>& line : lines) {
    const std::vector<int64_t> sizes = {std::ssize(line)};
    const Tensor x = Tensor::of(line, sizes, DataType::Double);
    all.push_back(std::make_unique<Emulation>(programOf(x, scanOf(0, ReduceOp::Sum)), x, sizes, DataType::Double));
  }
  run(all);
  for (size_t i = 0; i < all.size(); i++) {
    const std::vector<double> sums = elementsOf<double>(all[i]->z);
    EXPECT_EQ(all[i]->faults, kNone);
    EXPECT_EQ(sums, summedInSegments(lines[i])) << i;
    if (std::ranges::min(lines[i]) >= 0) {
      EXPECT_TRUE(std::ranges::is_sorted(sums)) << i;
    }
  }
}

// The bits of a sum of Double do not depend on the lines beside it, as these may be on other ranks.
TEST(RoutineTexts, SumsDoNotDependOnTheLinesBesideThem) {
  const Tensor x = random({700, 40}, 5, DataType::Double);
  Emulations all;
  for (const int64_t columns : {40, 1}) {
    const Tensor part = x.slice(1, 0, columns, 1).clone();
    all.push_back(std::make_unique<Emulation>(programOf(part, scanOf(0, ReduceOp::Sum)), part,
                                              std::vector<int64_t>{700, columns}, DataType::Double));
  }
  run(all);
  EXPECT_EQ(all[0]->faults, kNone);
  EXPECT_EQ(all[1]->faults, kNone);
  EXPECT_EQ(elementsOf<double>(all[0]->z.slice(1, 0, 1, 1).clone()), elementsOf<double>(all[1]->z));
}

TEST(RoutineTexts, OrdersHaveThePlacesOfAStableSort) {
  Emulations all;
  for (const int64_t n : {1, 2, 33, 1000}) {
    std::vector<double> values(3 * n);
    for (int64_t i = 0; i < 3 * n; i++) {
      values[i] = i % 11 == 3 ? kNan : static_cast<double>(i * 37 % 20 - 10);
    }
    for (const DataType type : {DataType::Float, DataType::Double}) {
      const Tensor x = Tensor::of(values, {3, n}, type);
      all.push_back(
          std::make_unique<Emulation>(programOf(x, descending()), x, std::vector<int64_t>{3, n}, DataType::Int));
    }
  }
  run(all);
  for (const auto& e : all) {
    const int64_t n = e->x.size(1);
    const std::vector<double> values = e->x.toVector();
    std::vector<int64_t> expected;
    for (int64_t line = 0; line < 3; line++) {
      std::vector<int64_t> places(n);
      std::iota(places.begin(), places.end(), 0);
      std::ranges::stable_sort(places, [&](int64_t a, int64_t b) {
        const double va = values[line * n + a];
        const double vb = values[line * n + b];
        return std::isnan(va) ? !std::isnan(vb) : va > vb;
      });
      expected.insert(expected.end(), places.begin(), places.end());
    }
    EXPECT_EQ(e->faults, kNone);
    EXPECT_EQ(elementsOf<int64_t>(e->z), expected) << n << " of " << name(e->x.dtype());
  }
}

TensorView* put(const Views& in) { return scatter(in[0], 0, in[1], in[2]); }
TensorView* accumulate(const Views& in) { return indexPutAccumulate(in[0], in[1], in[2]); }

// The last one of several writes to a position has the largest number, in any order of threads; a plain store would give the number of any.
TEST(RoutineTexts, TheLastWriteHasTheLargestNumber) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kWrites = 40;
  constexpr int64_t kColumns = 7;
  const Tensor index = randomTensor({kWrites, kColumns}, DataType::Int, 5, 0, kRows);
  const RoutineProgram program =
      programOf({{{kRows, kColumns}}, {{kWrites, kColumns}, DataType::Int}, {{kWrites, kColumns}}}, put);
  Emulations all;
  for (const char* by : {"latest(last", "storeOne<kKeep>(last"}) {
    all.push_back(std::make_unique<Emulation>(program, 1, index, tile::Memory::InOut,
                                              Tensor::zeros({kRows, kColumns}, DataType::Int32), "latest(last", by));
  }
  run(all);
  std::vector<int32_t> expected(kRows * kColumns, 0);
  for (int64_t i = 0; i < index.numel(); i++) {
    expected[elementsOf<int64_t>(index)[i] * kColumns + i % kColumns] = static_cast<int32_t>(i / kColumns + 1);
  }
  EXPECT_EQ(all[0]->faults, kNone);
  EXPECT_EQ(elementsOf<int32_t>(all[0]->z), expected);
  ASSERT_FALSE(all[1]->faults.empty());
  EXPECT_NE(all[1]->faults[0].find("two threads write"), std::string::npos) << all[1]->faults[0];
}

TEST(RoutineTexts, EachBarrierIsNeeded) {
  const Tensor x = random({2, 9000}, 5);
  const RoutineProgram scans = programOf(x, scanOf(1, ReduceOp::Sum));
  const Tensor line = random({200}, 5);
  const RoutineProgram sorts = programOf(line, descending());
  const std::vector<std::string> ofScan = {"barrier(3);", "barrier(6);", "barrier(12);", "barrier(16);"};
  const std::vector<std::string> ofSort = {"barrier(2);", "barrier(7);"};
  Emulations all;
  for (const std::string& b : ofScan) {
    all.push_back(std::make_unique<Emulation>(scans, x, std::vector<int64_t>{2, 9000}, DataType::Float, b));
  }
  for (const std::string& b : ofSort) {
    all.push_back(std::make_unique<Emulation>(sorts, line, std::vector<int64_t>{200}, DataType::Int, b));
  }
  run(all);
  for (size_t i = 0; i < all.size(); i++) {
    ASSERT_FALSE(all[i]->faults.empty()) << i;
    // a race, or a read before the write
    EXPECT_NE(all[i]->faults[0].find("shared "), std::string::npos) << i << ": " << all[i]->faults[0];
  }
}

TEST(RoutinePrograms, WithoutElementsLaunchNothing) {
  EXPECT_TRUE(programOf({{{0, 3}}}, scanOf(0, ReduceOp::Sum)).launches.empty());
  EXPECT_TRUE(programOf({{{3, 0}}}, descending()).launches.empty());
  EXPECT_TRUE(programOf({{{3, 4}}}, [](const Views& in) { return topk(in[0], 0, 1).indices; }).launches.empty());
  EXPECT_TRUE(programOf({{{4, 0}}, {{5, 0}, DataType::Int}, {{5, 0}}}, put).launches.empty());
  EXPECT_TRUE(programOf({{{4, 0}}, {{5}, DataType::Int}, {{5, 0}}}, accumulate).launches.empty());
}

// The number of a write has 32 bits.
TEST(RoutinePrograms, RefuseAScatterOfTooManyElementsByName) {
  const int64_t most = (int64_t{1} << 32) - 2;
  EXPECT_EQ(programOf({{{4}}, {{most}, DataType::Int}, {{most}}}, put).launches.size(), 3);
  try {
    (void)programOf({{{4}}, {{most + 1}, DataType::Int}, {{most + 1}}}, put);
    ADD_FAILURE() << "is not refused";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("[cuda] scatter of 4294967295 elements along one dim has no kernel on a GPU"),
              std::string::npos)
        << e.what();
  }
}

TEST(RoutinePrograms, RefuseMoreLinesThanAGridHasBlocksByName) {
  const int64_t most = (int64_t{1} << 31) - 1;
  EXPECT_EQ(programOf({{{most, 2}}}, descending()).launches[0].blocks, most);
  try {
    (void)programOf({{{most + 1, 2}}}, descending());
    ADD_FAILURE() << "is not refused";
  } catch (const UserError& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("[cuda] argsort T1[2147483648, 2] needs")) << e.what();
  }
}

TEST(RoutinePrograms, OfAnEmptyIndexDivideByNothing) {
  for (const std::vector<int64_t>& index : std::vector<std::vector<int64_t>>{{0}, {3, 0}, {0, 3}}) {
    std::vector<int64_t> values = index;
    values.push_back(5);
    for (const CudaSource& kernel : programOf({{{4, 5}}, {index, DataType::Int}, {values}}, accumulate).kernels) {
      EXPECT_EQ(kernel.text.find("/ 0"), std::string::npos) << kernelText(kernel.text);
      EXPECT_EQ(kernel.text.find("% 0"), std::string::npos) << kernelText(kernel.text);
    }
  }
}

// Two buffers of items in turn, each as large as its largest pass; kept items only.
TEST(RoutinePrograms, SortsTakeTheWorkspaceOfTheirRuns) {
  const auto workspaceOf = [](std::vector<int64_t> sizes, DataType type, int64_t k) {
    return programOf({{std::move(sizes), type}}, [k](const Views& in) { return topk(in[0], k, 1).indices; })
        .workspaceBytes;
  };
  EXPECT_EQ(workspaceOf({3, 4096}, DataType::Float, 4096), 0);
  EXPECT_EQ(workspaceOf({3, 8192}, DataType::Float, 8192), 3 * 8192 * 8);
  EXPECT_EQ(workspaceOf({3, 8192}, DataType::Float, 10), 3 * 2 * 10 * 8 + 32) << "padded to 64 bytes";
  EXPECT_EQ(workspaceOf({3, 8192}, DataType::Double, 8192), 2 * 3 * 8192 * 16);
}

class RoutineArchitectures : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gpu, RoutineArchitectures, testing::ValuesIn(kArchitectures),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(RoutineArchitectures, KernelsStayInRegisters) {
  if (const CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
  }
  for (const DataType type : {DataType::Float, DataType::Double}) {
    const Operand x = {{64, 9000}, type};
    for (const RoutineProgram& program :
         {programOf({x}, scanOf(0, ReduceOp::Sum)), programOf({x}, scanOf(1, ReduceOp::Prod)),
          programOf({x}, scanOf(1, ReduceOp::Min)), programOf({x}, descending()),
          programOf({x}, [](const Views& in) { return topk(in[0], 40, 1).indices; }),
          programOf({x, {{300, 9000}, DataType::Int}, {{300, 9000}, type}}, put),
          programOf({x, {{9000}, DataType::Int32}, {{9000, 9000}, type}}, accumulate)}) {
      for (const CudaSource& kernel : program.kernels) {
        const KernelResources r = NvrtcCompiler::resources(kernel.text, GetParam());
        EXPECT_LE(r.registers * kernel.threads, 65536) << program.name;
        EXPECT_EQ(r.spilledBytes, 0) << program.name << "\n" << kernelText(kernel.text);
        EXPECT_EQ(r.stackBytes, 0) << program.name << "\n" << kernelText(kernel.text);
        EXPECT_LE(kernel.sharedBytes.constValue(), 48 << 10) << "needs no permission of the driver";
      }
    }
  }
}

TEST(RoutinePrograms, OfEveryTypeCompile) {
  if (const CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
  }
  NvrtcCompiler compiler;
  const std::vector<int64_t> sizes = {2, 40};
  for (const DataType type :
       {DataType::Float, DataType::Double, DataType::Half, DataType::BFloat16, DataType::Int, DataType::Int32,
        DataType::Short, DataType::Char, DataType::UInt16, DataType::Byte, DataType::Bool}) {
    const Operand x = {sizes, type};
    std::vector<RoutineProgram> programs = {programOf({x, {sizes, DataType::Int}, x}, put)};
    if (type != DataType::Bool) {
      programs.push_back(programOf({x, {{30}, DataType::Int}, {{30, 40}, type}}, accumulate));
    }
    if (!isHalfPrecision(type)) {
      programs.push_back(programOf({x}, descending()));
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Xor}) {
        if (accepts(op, type)) {
          programs.push_back(programOf({x}, scanOf(1, op)));
        }
      }
    }
    for (const RoutineProgram& program : programs) {
      for (const CudaSource& kernel : program.kernels) {
        EXPECT_NO_THROW((void)compiler.compileCubin(kernel.text, "sm_90a")) << program.name;
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
