// Top-k along a cut dim: over shapes, meshes, blocks and types as the interpreter says, with ties and NaN, and only candidates move.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <map>
#include <random>

#include "analysis/pass_context.h"
#include "inputs.h"
#include "interpret/interpret.h"
#include "localize/localize.h"
#include "ops/pointwise.h"
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

// Sorts of the planned program whose line is the block of a rank.
int64_t sortsOfBlocks(const Fusion& planned) {
  return std::ranges::count_if(planned.exprs(), [](const Expr* e) {
    const Expr* in = e->kind() == ExprKind::ArgSort ? e->input(0)->definition() : nullptr;
    return in != nullptr && in->kind() == ExprKind::Reshape && e->attributes().dim > 0 &&
           shardState(e->tensorOutput()).dims[e->attributes().dim - 1].hasOwned();
  });
}

int64_t bytesReceived(const Fusion& planned) { return costOf(planned).bytes; }

// All ranks' outputs, and the interpretation of the whole, have the same bits; NaN equals NaN.
// Returns whether blocks are merged.
bool expectSameOnRanks(const Fusion& fusion, const Tensor& x) {
  const std::unique_ptr<Fusion> planned = concretize(fusion, SymbolValues{});
  PassContext context(*planned);
  runPresegPasses(*planned, context);
  const TensorView* in = planned->inputs()[0]->asTensor();
  const DeviceMesh& mesh = in->getDeviceMesh();
  std::vector<std::unique_ptr<Fusion>> programs;
  std::vector<const Fusion*> ofRank;
  std::vector<std::vector<Tensor>> parts;
  for (int64_t rank = 0; rank < mesh.numDevices(); rank++) {
    programs.push_back(localize(*planned, rank));
    ofRank.push_back(programs.back().get());
    parts.push_back({localPart(x, in, rank)});
  }
  const std::vector<Argument> whole{x};
  const std::vector<Tensor> expected = interpret(fusion, whole);
  const std::vector<std::vector<Tensor>> got = simulateRanks(ofRank, mesh, parts);
  for (int64_t rank = 0; rank < mesh.numDevices(); rank++) {
    for (size_t k = 0; k < expected.size(); k++) {
      const Tensor part = localPart(expected[k], planned->outputs()[k]->asTensor(), rank);
      const std::vector<double> want = part.toVector();
      const std::vector<double> is = got[rank][k].toVector();
      EXPECT_EQ(is.size(), want.size());
      for (size_t i = 0; i < std::min(want.size(), is.size()); i++) {
        EXPECT_TRUE(is[i] == want[i] || (std::isnan(is[i]) && std::isnan(want[i])))
            << "rank " << rank << " output " << k << " element " << i << ": " << is[i] << ", not " << want[i];
      }
    }
  }
  return sortsOfBlocks(*planned) > 0;
}

// Few different values, so that equal ones are in several blocks, and the values that uneven blocks are filled with.
Tensor withTies(const std::vector<int64_t>& sizes, DataType type, uint64_t seed) {
  std::vector<double> values = randomTensor(sizes, DataType::Double, seed, 0, 4).toVector();
  for (size_t k = 0; k < values.size(); k++) {
    values[k] = std::floor(values[k]);
    if (isFloatingPoint(type)) {
      values[k] = k % 7 == 3 ? kNan : k % 5 == 1 ? -kInf : k % 11 == 4 ? kInf : k % 3 == 0 ? -0.0 : values[k];
    } else if (type == DataType::Bool) {
      values[k] = values[k] > 1 ? 1 : 0;
    }
  }
  return Tensor::of(values, sizes, type);
}

TEST(MergeTopK, TiesNanAndInfinitiesInTheOrderOfOneRank) {
  std::map<DataType, int64_t> merged;  // of 54 programs; of narrow elements the gather may be cheaper
  for (const DataType type :
       {DataType::Float, DataType::Half, DataType::Double, DataType::Int, DataType::Byte, DataType::Bool}) {
    for (const int64_t ranks : {2, 3, 4}) {
      for (const int64_t width : {96, 93, 49}) {
        for (const int64_t k : {1, 2, 5}) {
          for (const bool largest : {false, true}) {
            SCOPED_TRACE(fmt::format("{}: {} of {} on {} ranks, {}", name(type), k, width, ranks, largest));
            Fusion fusion;
            FusionGuard guard(&fusion);
            TensorView* x = input(fusion, {3, width}, type);
            shard(x, DeviceMesh::create({{"x", ranks}}), {{1, "x"}});
            const TopKResult top = topk(x, k, 1, largest);
            fusion.addOutput(top.values);
            fusion.addOutput(top.indices);
            merged[type] += expectSameOnRanks(fusion, withTies({3, width}, type, 3)) ? 1 : 0;
            if (HasFatalFailure() || ::testing::Test::HasFailure()) {
              FAIL() << fusion.toString();
            }
          }
        }
      }
    }
  }
  for (const auto& [type, count] : merged) {
    EXPECT_GE(count, dataTypeSize(type) >= 4 ? 54 : 12) << name(type);
  }
}

// Blocks are filled in the wide type, but move in the narrow one: the last block has fewer than k elements, or none.
TEST(MergeTopK, OfWiderCasts) {
  using enum DataType;
  int64_t merged = 0;
  for (const auto& [narrow, wide] : std::vector<std::pair<DataType, DataType>>{{Int32, Int},
                                                                               {Short, Int},
                                                                               {Char, Int},
                                                                               {Byte, Int},
                                                                               {UInt16, Int},
                                                                               {Bool, Int},
                                                                               {Char, UInt16},
                                                                               {Short, Int32},
                                                                               {Half, Float},
                                                                               {Float, Double}}) {
    for (const int64_t ranks : {4, 8}) {
      for (const int64_t width : {9, 13, 57}) {
        for (const bool largest : {false, true}) {
          SCOPED_TRACE(fmt::format("{} as {}, {} on {} ranks, {}", name(narrow), name(wide), width, ranks, largest));
          Fusion fusion;
          FusionGuard guard(&fusion);
          TensorView* x = input(fusion, {6, width}, narrow);
          shard(x, DeviceMesh::create({{"x", ranks}}), {{1, "x"}});
          const TopKResult top = topk(castOp(wide, x), 2, 1, largest);
          fusion.addOutput(width == 57 ? top.indices : top.values);
          for (const double sign : {-1, 1}) {
            std::vector<double> values = withTies({6, width}, narrow, 3).toVector();
            for (double& v : values) {
              v *= isUnsigned(narrow) || narrow == Bool ? 1 : sign;
            }
            merged += expectSameOnRanks(fusion, Tensor::of(values, {6, width}, narrow)) ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GE(merged, 40);
}

TEST(MergeTopK, RandomShapesAndMeshes) {
  int64_t merged = 0;
  int64_t uneven = 0;
  for (uint32_t seed = 0; seed < (kSanitized ? 40 : 200); seed++) {
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
    for (int64_t k = pick(1, 3); k > 0; k--) {
      shape.push_back(pick(1, 5));
    }
    const auto dim = static_cast<int>(pick(0, std::ssize(shape) - 1));
    shape[dim] = pick(4, 80);
    std::vector<DimAxis> owned{{dim, "x"}};
    const auto other = static_cast<int>(pick(0, std::ssize(shape) - 1));
    if (square && other == dim) {
      owned =
          pick(0, 1) == 0 ? std::vector<DimAxis>{{dim, "y"}, {dim, "x"}} : std::vector<DimAxis>{{dim, "x"}, {dim, "y"}};
      shape[dim] = (shape[dim] + 3) / 4 * 4;
    } else if (square) {
      owned.push_back({other, "y"});
    }
    const int64_t parts = square && other == dim ? 4 : square ? 2 : ranks;
    constexpr std::array kTypes{DataType::Float, DataType::Double, DataType::BFloat16, DataType::Int, DataType::Int32};
    TensorView* x = input(fusion, shape, kTypes.at(pick(0, 4)));
    shard(x, mesh, owned);
    const TopKResult top =
        topk(pick(0, 2) == 0 ? neg(x) : x, pick(1, std::min<int64_t>(shape[dim], 8)), dim, pick(0, 1) == 0);
    const int64_t way = pick(0, 3);
    if (way == 0) {
      shard(top.values, mesh, {{dim, "x"}});
    } else if (way == 1) {
      shard(top.indices, mesh);
    }
    fusion.addOutput(pick(0, 1) == 0 ? top.values : add(top.values, top.values));
    if (pick(0, 1) == 0) {
      fusion.addOutput(top.indices);
    }
    const ShardedRun run = runSharded(fusion, {-20, 20});
    if (HasFatalFailure() || ::testing::Test::HasFailure()) {
      FAIL() << fusion.toString() << run.planned->toString();
    }
    merged += sortsOfBlocks(*run.planned);
    uneven += sortsOfBlocks(*run.planned) > 0 && shape[dim] % parts != 0 ? 1 : 0;
  }
  EXPECT_GE(merged, kSanitized ? 15 : 80);
  EXPECT_GE(uneven, kSanitized ? 5 : 30);
}

class MergeTopKOnFour : public ::testing::Test {
 protected:
  MergeTopKOnFour() : guard(&fusion) { shard(x, mesh, {{1, "x"}}); }

  Fusion fusion;
  FusionGuard guard;
  DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  TensorView* x = input(fusion, {6, 64});
};

// 3 * 4 * 4 bytes a line for the elements and 2 * 4 * 8 * 3 / 4 for the positions, of 3 * 16 * 4.
TEST_F(MergeTopKOnFour, RanksReceiveCandidatesAndPositions) {
  const TopKResult top = topk(x, 4, 1);
  fusion.addOutput(top.values);
  fusion.addOutput(top.indices);
  const ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, (Steps{"all_gather(x)", "all_reduce(x)"}));
  EXPECT_EQ(bytesReceived(*run.planned), 6 * (3 * 4 * 4 + 2 * 4 * 8 * 3 / 4));
}

TEST_F(MergeTopKOnFour, ElementsAloneTakeOneGather) {
  fusion.addOutput(topk(x, 4, 1).values);
  const ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{"all_gather(x)"});
  EXPECT_EQ(bytesReceived(*run.planned), 6 * 3 * 4 * 4);
}

// Without the pass an all-to-all moves 3 of 4 parts of 64 lines: of 16 lines, the elements of other ranks.
TEST_F(MergeTopKOnFour, ToAResultThatIsCutInLines) {
  TensorView* a = input(fusion, {64, 64});
  shard(a, mesh, {{1, "x"}});
  TensorView* values = topk(a, 8, 1).values;
  shard(values, mesh, {{0, "x"}});
  fusion.addOutput(values);
  EXPECT_LE(bytesReceived(*runSharded(fusion).planned), 3072);
}

// The argsort and the take each have a cast of their own.
TEST_F(MergeTopKOnFour, ElementsOfACastTakeOneGather) {
  TensorView* a = input(fusion, {6, 64}, DataType::Half);
  shard(a, mesh, {{1, "x"}});
  fusion.addOutput(topk(castOp(DataType::Float, a), 4, 1).values);
  const ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, Steps{"all_gather(x)"});
  EXPECT_EQ(bytesReceived(*run.planned), 6 * 3 * 4 * 2);
}

// 12 of each block of 16 and their positions would take 6 * (3 * 12 * 4 + 2 * 12 * 8 * 3 / 4) bytes, all elements 6 * 3 * 16 * 4.
TEST_F(MergeTopKOnFour, NotWhereTheDimHasFewElementsMore) {
  const TopKResult top = topk(x, 12, 1);
  fusion.addOutput(top.values);
  fusion.addOutput(top.indices);
  EXPECT_EQ(sortsOfBlocks(*runSharded(fusion).planned), 0);
}

// The second takes blocks of the whole result of the first; the axis y replicates both.
TEST(MergeTopK, OfATopKAndOnAGridThatReplicates) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = input(fusion, {6, 61});
  shard(x, DeviceMesh::create({{"y", 2}, {"x", 2}}), {{1, "x"}});
  const TopKResult first = topk(x, 7, 1);
  const TopKResult second = topk(first.values, 2, 1, false);
  for (TensorView* out : {first.indices, second.values, second.indices}) {
    fusion.addOutput(out);
  }
  EXPECT_TRUE(expectSameOnRanks(fusion, withTies({6, 61}, DataType::Float, 5)));
}

TEST_F(MergeTopKOnFour, NotOfCyclicBlocksAndNotOfASort) {
  TensorView* a = input(fusion, {6, 64});
  shardCyclic(a, mesh, 1, "x");
  fusion.addOutput(topk(a, 2, 1).values);
  fusion.addOutput(sort(x, 1).values);
  EXPECT_EQ(sortsOfBlocks(*runSharded(fusion).planned), 0);
}

}  // namespace
}  // namespace meshfuse
