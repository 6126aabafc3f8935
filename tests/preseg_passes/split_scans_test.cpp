// Scans along a cut dim: over shapes, meshes, blocks, ops and types as the interpreter says, and only the numbers of the blocks move.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <random>

#include "analysis/pass_context.h"
#include "inputs.h"
#include "localize/localize.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/scan_sort.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/rank_simulator.h"
#include "preseg_passes/sharded_program.h"
#include "preseg_passes/table.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

// The elements that the busiest rank receives in all redistributions of the planned program.
int64_t gatheredElements(const Fusion& planned) {
  PlanMemo plans;
  int64_t bytes = 0;
  for (const Expr* e : planned.exprs()) {
    if (isOneMeshReshard(e)) {
      bytes += costOf(plans, e).bytes / dataTypeSize(e->output()->dtype());
    }
  }
  return bytes;
}

// Scans of the planned program whose line is the block of a rank.
int64_t scansOfBlocks(const Fusion& planned) {
  return std::ranges::count_if(planned.exprs(), [](const Expr* e) {
    const Expr* in = e->kind() == ExprKind::Scan ? e->input(0)->definition() : nullptr;
    return in != nullptr && in->kind() == ExprKind::Reshape && e->attributes().dim > 0 &&
           shardState(e->tensorOutput()).dims[e->attributes().dim - 1].hasOwned();
  });
}

// As `meshfuse opt` runs passes on a program without its sizes.
TEST(SplitScans, UnknownSizesAreLeftToLaterPasses) {
  for (const bool isTopK : {false, true}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor({-1, 16});
    fusion.addInput(x);
    const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
    shard(x, mesh, {{1, "x"}});
    TensorView* y = isTopK ? topk(x, 2, 1).values : cumsum(x, 1);
    if (!isTopK) {
      shard(y, mesh, {{1, "x"}});
    }
    fusion.addOutput(y);
    runPass(fusion, "propagate-shardings");
    const std::string before = fusion.toString();
    runPass(fusion, "split-scans");
    runPass(fusion, "merge-top-k");
    EXPECT_EQ(fusion.toString(), before);
  }
}

TEST(SplitScans, RanksReceiveANumberForEachBlock) {
  for (const int64_t ranks : {2, 3, 4}) {
    for (const int64_t width : {24, 23, 13}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} columns", ranks, width));
      Fusion fusion;
      FusionGuard guard(&fusion);
      TensorView* x = input(fusion, {5, width});
      const DeviceMesh mesh = DeviceMesh::create({{"x", ranks}});
      shard(x, mesh, {{1, "x"}});
      TensorView* y = cumsum(x, 1);
      shard(y, mesh, {{1, "x"}});
      fusion.addOutput(y);
      const ShardedRun run = runSharded(fusion);
      EXPECT_EQ(run.communications, Steps{"all_gather(x)"});
      EXPECT_EQ(gatheredElements(*run.planned), 5 * (ranks - 1));
    }
  }
}

// Of a free result: the same for blocks of any length.
TEST(SplitScans, TheShardingDoesNotDependOnSizes) {
  for (const int64_t width : {3, 4, 5, 7, 8, 40}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = input(fusion, {6, width});
    shard(x, DeviceMesh::create({{"x", 4}}), {{1, "x"}});
    fusion.addOutput(cumsum(x, 1));
    const ShardedRun run = runSharded(fusion);
    EXPECT_EQ(shardState(run.planned->outputs()[0]->asTensor()).dimText(1), "S1(x)") << width;
  }
}

// The positions of a mask's elements, wanted whole: the mask moves as Bool, not the sums as Int.
TEST(SplitScans, NotWhereAllReadersNeedTheWholeLine) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* mask = input(fusion, {64, 1024}, DataType::Bool);
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  shard(mask, mesh, {{1, "x"}});
  TensorView* w = mul(sub(cumsum(mask, 1), 1), 2);
  shard(w, mesh);
  fusion.addOutput(w);
  const ShardedRun run = runSharded(fusion);
  EXPECT_EQ(costOf(*run.planned).bytes, 64 * 1024 * 3 / 4);
}

// A result of any type and op, of a line that ops before and after share.
TensorView* randomScan(TensorView* x, int64_t dim, int64_t choice) {
  const DataType type = x->dtype();
  if (type == DataType::Bool) {
    constexpr std::array kBits{ReduceOp::And, ReduceOp::Or, ReduceOp::Xor};
    return choice % 4 == 3 ? cumsum(x, dim) : scan(x, dim, kBits.at(choice % 4));
  }
  if (isHalfPrecision(type) || choice % 2 == 0) {
    return choice % 4 == 0 ? cumsum(x, dim) : cumprod(x, dim);
  }
  constexpr std::array kOps{ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod, ReduceOp::Xor, ReduceOp::And};
  return scan(x, dim, kOps.at(choice % (isFloatingPoint(type) ? 4 : 6)));
}

TEST(SplitScans, RandomShapesMeshesOpsAndTypes) {
  int64_t inBlocks = 0;
  int64_t uneven = 0;
  int64_t free = 0;
  constexpr std::array kTypes{DataType::Float, DataType::Double, DataType::Half,  DataType::BFloat16,
                              DataType::Int,   DataType::Int32,  DataType::Byte,  DataType::Bool,
                              DataType::Short, DataType::Char,   DataType::UInt16};
  for (uint32_t seed = 0; seed < (kSanitized ? 60 : 300); seed++) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    Fusion fusion;
    FusionGuard guard(&fusion);
    const int64_t ranks = pick(2, 4);
    const bool square = pick(0, 2) == 0;
    const DeviceMesh mesh = square ? DeviceMesh::create({{"y", 2}, {"x", 2}}) : DeviceMesh::create({{"x", ranks}});
    std::vector<int64_t> shape;
    for (int64_t k = pick(1, 4); k > 0; k--) {
      shape.push_back(pick(1, 6));
    }
    const int64_t dim = pick(0, std::ssize(shape) - 1);
    shape[dim] = pick(0, 9) == 0 ? pick(1, 4) : pick(5, 40);
    std::vector<DimAxis> owned{{static_cast<int>(dim), "x"}};
    const int64_t other = pick(0, std::ssize(shape) - 1);
    if (square && other == dim) {
      owned = pick(0, 1) == 0 ? std::vector<DimAxis>{{static_cast<int>(dim), "y"}, {static_cast<int>(dim), "x"}}
                              : std::vector<DimAxis>{{static_cast<int>(dim), "x"}, {static_cast<int>(dim), "y"}};
    } else if (square) {
      owned.push_back({static_cast<int>(other), "y"});
    }
    const auto parts = square && other == dim ? 4 : square ? 2 : ranks;
    if (owned.size() == 2 && owned[0].dim == owned[1].dim) {
      shape[dim] = (shape[dim] + 3) / 4 * 4;
    }
    TensorView* x = input(fusion, shape, kTypes.at(pick(0, std::ssize(kTypes) - 1)));
    shard(x, mesh, owned);
    TensorView* a = pick(0, 1) == 0 && x->dtype() != DataType::Bool ? neg(x) : x;
    TensorView* y = randomScan(a, dim, pick(0, 100));
    const int64_t way = pick(0, 3);
    if (way == 0) {
      shard(y, mesh, owned);
    } else if (way == 1) {
      shard(y, mesh);
    }
    TensorView* z = pick(0, 1) == 0 || y->dtype() == DataType::Bool ? y : add(y, y);
    fusion.addOutput(z);
    const ShardedRun run = runSharded(fusion, {-1, 1.5});
    if (HasFatalFailure() || ::testing::Test::HasFailure()) {
      FAIL() << fusion.toString() << run.planned->toString();
    }
    const int64_t split = scansOfBlocks(*run.planned);
    EXPECT_TRUE(way != 1 || split == 0) << run.planned->toString();
    if (split > 0) {
      int64_t lines = 1;
      for (int64_t k = 0; k < std::ssize(shape); k++) {
        const bool isCut = owned.size() == 2 && k != dim && k == owned[1].dim;
        lines *= k == dim ? 1 : isCut ? (shape[k] + 1) / 2 : shape[k];
      }
      EXPECT_EQ(gatheredElements(*run.planned), lines * (parts - 1)) << run.planned->toString();
    }
    inBlocks += split;
    uneven += split > 0 && shape[dim] % parts != 0 ? 1 : 0;
    free += split > 0 && way > 1 ? 1 : 0;
  }
  EXPECT_GE(inBlocks, kSanitized ? 20 : 150);
  EXPECT_GE(uneven, kSanitized ? 8 : 50);
  EXPECT_GE(free, kSanitized ? 8 : 60);
}

// Numbers that spread to all later elements, and no others: NaN is no difference of infinities.
TEST(SplitScans, InfinitiesAndNan) {
  for (const int64_t width : {16, 13, 9}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = input(fusion, {6, width});
    const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
    shard(x, mesh, {{1, "x"}});
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min}) {
      fusion.addOutput(scan(x, 1, op));
    }
    Tensor t = randomTensor({6, width}, DataType::Float, 3, 1, 2);
    t.set(std::vector<int64_t>{1, 5}, kInf);
    t.set(std::vector<int64_t>{2, 5}, -kInf);
    t.set(std::vector<int64_t>{3, 2}, kInf);
    t.set(std::vector<int64_t>{3, 7}, -kInf);
    t.set(std::vector<int64_t>{4, 6}, kNan);
    t.set(std::vector<int64_t>{5, 1}, kInf);
    t.set(std::vector<int64_t>{5, 6}, 0);
    const std::unique_ptr<Fusion> planned = concretize(fusion, SymbolValues{});
    PassContext context(*planned);
    runPresegPasses(*planned, context);
    EXPECT_EQ(scansOfBlocks(*planned), 4);
    std::vector<std::unique_ptr<Fusion>> programs;
    std::vector<const Fusion*> ofRank;
    std::vector<std::vector<Tensor>> inputs;
    for (int64_t rank = 0; rank < 4; rank++) {
      programs.push_back(localize(*planned, rank));
      ofRank.push_back(programs.back().get());
      inputs.push_back({localPart(t, planned->inputs()[0]->asTensor(), rank)});
    }
    const std::vector<std::vector<Tensor>> got = simulateRanks(ofRank, mesh, inputs);
    for (int64_t row = 0; row < 6; row++) {
      double sum = 0;
      double prod = 1;
      double most = -kInf;
      double least = kInf;
      for (int64_t k = 0; k < width; k++) {
        const double v = t.at({row, k});
        sum += v;
        prod *= v;
        most = std::isnan(v) || std::isnan(most) ? kNan : std::max(most, v);
        least = std::isnan(v) || std::isnan(least) ? kNan : std::min(least, v);
        const int64_t length = (width + 3) / 4;
        const std::array expected{sum, prod, most, least};
        for (size_t out = 0; out < expected.size(); out++) {
          const double is = got[k / length][out].at({row, k % length});
          SCOPED_TRACE(fmt::format("width {}, output {}, row {}, element {}", width, out, row, k));
          EXPECT_EQ(std::isnan(is), std::isnan(expected[out])) << is;
          EXPECT_TRUE(std::isnan(is) || is == expected[out] || std::abs(is - expected[out]) <= 1e-5 * std::abs(is))
              << is << " " << expected[out];
        }
      }
    }
  }
}

class SplitScansNot : public ::testing::Test {
 protected:
  SplitScansNot() : guard(&fusion) { shard(x, mesh, {{1, "x"}}); }

  Fusion fusion;
  FusionGuard guard;
  DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  TensorView* x = input(fusion, {6, 16});
};

TEST_F(SplitScansNot, UnlessAllIsAsItMustBe) {
  fusion.addOutput(cumsum(x, 1));
  const ShardedRun run = runSharded(fusion);
  EXPECT_EQ(scansOfBlocks(*run.planned), 1);
  EXPECT_EQ(shardState(run.planned->outputs()[0]->asTensor()).toString().substr(0, 7), "R S1(x)");
}

// To gather the operand and the result takes the same bytes, and the numbers of the blocks would be more.
TEST_F(SplitScansNot, WhereTheReaderIsWhole) {
  TensorView* y = exp(cumsum(x, 1));
  shard(y, mesh);
  fusion.addOutput(y);
  EXPECT_EQ(scansOfBlocks(*runSharded(fusion).planned), 0);
}

TEST_F(SplitScansNot, WhereBlocksAreCyclic) {
  TensorView* y = cumsum(x, 1);
  shardCyclic(y, mesh, 1, "x");
  fusion.addOutput(y);
  EXPECT_EQ(scansOfBlocks(*runSharded(fusion).planned), 0);
}

TEST_F(SplitScansNot, WhereThereAreAsManyBlocksAsElements) {
  TensorView* a = input(fusion, {6, 4});
  shard(a, mesh, {{1, "x"}});
  fusion.addOutput(cumsum(a, 1));
  // 8 bytes for a block of 8 elements of a byte; one more element
  for (const int64_t width : {32, 36}) {
    TensorView* narrow = input(fusion, {2, width}, DataType::Byte);
    shard(narrow, mesh, {{1, "x"}});
    fusion.addOutput(cumsum(narrow, 1));
  }
  EXPECT_EQ(scansOfBlocks(*runSharded(fusion).planned), 1);
}

// The operand moves to the blocks of the result, which takes fewer bytes than to gather it.
TEST_F(SplitScansNot, WhereTheOperandIsCutInAnotherWayButMovesFirst) {
  TensorView* a = input(fusion, {6, 32});
  shardCyclic(a, mesh, 1, "x");
  TensorView* y = cumsum(a, 1);
  shard(y, mesh, {{1, "x"}});
  fusion.addOutput(y);
  const ShardedRun run = runSharded(fusion);
  EXPECT_EQ(scansOfBlocks(*run.planned), 1);
  EXPECT_EQ(run.communications, (Steps{"all_gather(x)", "all_to_all(x)"}));
}

}  // namespace
}  // namespace meshfuse
