// Scans in tile programs: their text, what the verifier finds, and the bits
// that the interpreter gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tile/builder.h"
#include "tile/interpreter.h"

namespace meshfuse::tile {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kExtent = 201;  // of a row: two tiles, the last one in part
constexpr int64_t kSegment = 4;
constexpr int64_t kLanes = 32;

// A row in tiles of 128 elements, with the total carried from one to the next.
Program scanProgram() {
  Builder b("scan", Target::Gpu);
  b.gridDim("p0", kRows);
  const TensorParam x = {.name = "x",
                         .dtype = DataType::Float,
                         .memory = Memory::Input,
                         .extents = {kRows, kExtent},
                         .strides = {kExtent, 1},
                         .alignment = 4};
  TensorParam y = x;
  y.name = "y";
  y.memory = Memory::Output;
  const int64_t in = b.tensor(x);
  const int64_t out = b.tensor(y);
  const int64_t s =
      b.space("s", {{"m", kRows, {{Level::Part, 0, "p0"}}},
                    {"k", kExtent, {{Level::Serial, 0}, {Level::Lane, kLanes}, {Level::Repeat, kSegment}}}});
  const std::vector<Index> at = {{b.coord(s, 0)}, {b.coord(s, 1)}};
  b.loop(s, 1, 0, {identity(b, ReduceOp::Sum, DataType::Double, s)}, [&](std::span<const ValueId> before) {
    const ValueId scan = b.scan(b.load(in, at, s), before[0], 1, ReduceOp::Sum);
    const ValueId total = b.scanTotal(scan);
    b.store(out, at, scan);
    return std::vector<ValueId>{total};
  });
  return b.take();
}

Value& scanIn(Program& p) { return *std::ranges::find(p.values, ValueKind::Scan, &Value::kind); }
Value& totalIn(Program& p) { return *std::ranges::find(p.values, ValueKind::ScanTotal, &Value::kind); }

TEST(TileScan, IsPrintedAndVerified) {
  const Program p = scanProgram();
  EXPECT_EQ(verify(p), std::vector<std::string>{}) << toString(p);
  EXPECT_NE(toString(p).find(" = scan sum "), std::string::npos) << toString(p);
  EXPECT_NE(toString(p).find(" along k"), std::string::npos) << toString(p);
}

TEST(TileScan, FindingsOfTheVerifier) {
  const auto expectFinding = [](const std::function<void(Program&)>& change, const std::string& phrase) {
    Program p = scanProgram();
    change(p);
    std::string text;
    for (const std::string& finding : verify(p)) {
      text += finding + "\n";
    }
    EXPECT_NE(text.find(phrase), std::string::npos) << phrase << "\n" << text;
  };
  expectFinding([](Program& p) { scanIn(p).param = 2; }, "its space has no axis 2");
  expectFinding([](Program& p) { scanIn(p).combiner = ReduceOp::Prod; }, "prod of Float as Float");
  expectFinding([](Program& p) { scanIn(p).combiner = ReduceOp::Max; },
                "the total before it is Double, expected Float");
  expectFinding([](Program& p) { scanIn(p).digits = 0; }, "spread over digits (), expected (k_l k_r)");
  expectFinding([](Program& p) { p.values[scanIn(p).operands[0]].digits = 0; }, "its operand lacks digits (k_l k_r)");
  expectFinding([](Program& p) { std::swap(p.spaces[0].axes[1].digits[1].level, p.spaces[0].axes[1].digits[2].level); },
                "lies within a segment");
  expectFinding(
      [](Program& p) {
        p.target = Target::Cpu;
        p.spaces[0].axes[1].digits[1].level = Level::Repeat;
      },
      "CPUs have no scans");
  expectFinding([](Program& p) { p.values[scanIn(p).operands[1]].digits = 2; },
                "the total before it runs along the axis");
  expectFinding(
      [](Program& p) {
        std::vector<Digit>& digits = p.spaces[0].axes[1].digits;
        digits[0].size = 4;
        digits[0].stride = 64;
        digits[1].size = 16;
        digits[1].level = Level::Cluster;
      },
      "a scan within a cluster is not supported");
  expectFinding([](Program& p) { totalIn(p).dtype = DataType::Float; }, "it is Float, expected Double");
  expectFinding([](Program& p) { totalIn(p).operands[0] = scanIn(p).operands[0]; },
                "its operand is no scan of its space");
  expectFinding([](Program& p) { p.spaces[0].axes[1].digits[2].level = Level::Warp; },
                "lies within the lanes of a line");
}

// The total of lane i and those before it of `totals`, after steps that double the distance.
double ofLanes(const std::vector<double>& totals, int64_t i, int64_t distance) {
  if (distance == 1) {
    return totals[i];
  }
  const double own = ofLanes(totals, i, distance / 2);
  return i < distance / 2 ? own : ofLanes(totals, i - distance / 2, distance / 2) + own;
}

// Magnitudes differ by up to 2^60, so that additions round.
TEST(TileScan, HasTheBitsOfSegmentsAndLanes) {
  std::vector<float> x(kRows * kExtent);
  for (int64_t k = 0; k < std::ssize(x); k++) {
    x[k] = static_cast<float>(std::ldexp(1 + k * 0.37, static_cast<int>(k * 7919 % 61) - 30));
  }
  std::vector<float> y(x.size());
  const Program p = scanProgram();
  const std::array<void*, 2> pointers = {x.data(), y.data()};
  interpret(p, packSlots(p, pointers, {}, {}));
  for (int64_t row = 0; row < kRows; row++) {
    double before = 0;  // the tile
    for (int64_t tile = 0; tile < kExtent; tile += kLanes * kSegment) {
      std::vector<double> totals(kLanes);
      for (int64_t k = tile; k < std::min(kExtent, tile + kLanes * kSegment); k++) {
        totals[(k - tile) / kSegment] += x[row * kExtent + k];
      }
      double own = 0;
      for (int64_t k = tile; k < std::min(kExtent, tile + kLanes * kSegment); k++) {
        own = k % kSegment == 0 ? x[row * kExtent + k] : own + x[row * kExtent + k];
        const int64_t lane = (k - tile) / kSegment;
        const double total = lane == 0 ? before : before + ofLanes(totals, lane - 1, kLanes);
        EXPECT_EQ(y[row * kExtent + k], static_cast<float>(total + own)) << row << ", " << k;
      }
      before += ofLanes(totals, kLanes - 1, kLanes);
    }
  }
}

}  // namespace
}  // namespace meshfuse::tile
