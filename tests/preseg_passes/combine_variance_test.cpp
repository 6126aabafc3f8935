// Variances of parts combined in place of two all-reduces: over shapes, meshes, uneven parts and types as the interpreter says; as exact as
// before, and with the same infinities.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <cmath>
#include <numeric>
#include <random>

#include "analysis/pass_context.h"
#include "inputs.h"
#include "localize/localize.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/statistics.h"
#include "ops/tensors.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/rank_simulator.h"
#include "preseg_passes/sharded_program.h"
#include "preseg_passes/table.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

bool hasOnlyGathers(const ShardedRun& run) {
  return std::ranges::all_of(run.communications, [](const std::string& s) { return s.starts_with("all_gather"); });
}

// var and mean of x [rows, width]; the mesh axis x cuts the columns.
void varianceOfRows(Fusion& fusion, int64_t rows, int64_t width, int64_t ranks) {
  FusionGuard guard(&fusion);
  TensorView* x = input(fusion, {rows, width});
  shard(x, DeviceMesh::create({{"x", ranks}}), {{1, "x"}});
  const VarMeanResult r = variance_mean(x, {1}, 0);
  fusion.addOutput(r.var);
  fusion.addOutput(r.mean);
}

// What rank 0 has of the outputs.
std::vector<Tensor> runOnRanks(const Fusion& fusion, const Tensor& x, PassSettings settings) {
  const std::unique_ptr<Fusion> planned = concretize(fusion, SymbolValues{});
  PassContext context(*planned, settings);
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
  return simulateRanks(ofRank, mesh, parts)[0];
}

TEST(CombineVariance, RandomShapesMeshesAndTypes) {
  int gathered = 0;
  int uneven = 0;
  const std::vector<std::map<std::string, int64_t>> meshes{{{"x", 2}}, {{"x", 3}},           {{"x", 4}},
                                                           {{"x", 7}}, {{"x", 2}, {"y", 2}}, {{"x", 3}, {"y", 2}}};
  for (uint32_t seed = 0; seed < (kSanitized ? 40 : 160); seed++) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    Fusion fusion;
    FusionGuard guard(&fusion);
    const auto& sizes = meshes[pick(0, std::ssize(meshes) - 1)];
    std::vector<std::pair<std::string, int64_t>> axes(sizes.begin(), sizes.end());
    const DeviceMesh mesh = sizes.size() == 1 ? DeviceMesh::create({{"x", sizes.at("x")}})
                                              : DeviceMesh::create({{"y", sizes.at("y")}, {"x", sizes.at("x")}});
    std::vector<int64_t> shape;
    const int64_t rank = pick(2, 4);
    for (int64_t k = 0; k < rank; k++) {
      shape.push_back(pick(k == 0 ? 1 : 2, 9));
    }
    const auto cut = static_cast<int>(pick(0, rank - 1));
    shape[cut] = pick(2, 24);
    Axes reduced{cut};
    int other = -1;  // a dim that y owns
    for (int k = 0; k < rank; k++) {
      if (k != cut && pick(0, 2) == 0) {
        reduced.push_back(k);
      } else if (k != cut) {
        other = k;
      }
    }
    const std::vector<DataType> types{DataType::Float, DataType::Float, DataType::Double, DataType::Half,
                                      DataType::BFloat16};
    TensorView* x = input(fusion, shape, types[pick(0, 4)]);
    std::vector<DimAxis> owned{{cut, "x"}};
    if (sizes.size() == 2) {
      const int64_t way = pick(0, 2);
      if (way == 0 && shape[cut] % mesh.numDevices() == 0) {
        owned = {{cut, "y"}, {cut, "x"}};
      } else if (way == 1 && other >= 0) {
        owned.push_back({other, "y"});
      }
    }
    shard(x, mesh, owned);
    switch (pick(0, 3)) {
      case 0: {
        const VarMeanResult r = variance_mean(x, reduced, pick(0, 1), pick(0, 1) == 0);
        fusion.addOutput(r.var);
        fusion.addOutput(r.mean);
        break;
      }
      case 1: {
        const WelfordResult r = Welford(x, reduced);
        fusion.addOutput(r.avg);
        fusion.addOutput(r.var_sum);
        break;
      }
      case 2: {  // from something else than the mean
        TensorView* y = castOp(DataType::Double, x);
        TensorView* c = mul(div(sum(y, reduced, true), 3.0), 0.5);
        TensorView* d = sub(y, c);
        fusion.addOutput(sum(mul(d, d), reduced));
        break;
      }
      default: {
        fusion.addOutput(standard_deviation(tanh(x), reduced, 0));
        break;
      }
    }
    const ShardedRun run = runSharded(fusion, {-2, 3});
    gathered += hasOnlyGathers(run) && !run.communications.empty() ? 1 : 0;
    uneven += shape[cut] % sizes.at("x") != 0 && hasOnlyGathers(run) ? 1 : 0;
    if (HasFatalFailure() || ::testing::Test::HasFailure()) {
      FAIL() << fusion.toString();
    }
  }
  EXPECT_GE(gathered, kSanitized ? 20 : 80);
  EXPECT_GE(uneven, kSanitized ? 5 : 30);
}

TEST(CombineVariance, OfAllElementsOfUnevenPartsOfTwoAxesAndInChains) {
  for (const int64_t width : {16, 10, 5}) {
    SCOPED_TRACE(width);
    {
      Fusion fusion;
      FusionGuard guard(&fusion);
      TensorView* x = input(fusion, {width});
      shard(x, DeviceMesh::create({{"x", 4}}), {{0, "x"}});
      fusion.addOutput(variance(x, {0}, 0, false));
      EXPECT_TRUE(hasOnlyGathers(runSharded(fusion, {-2, 3})));
    }
    {
      Fusion fusion;
      FusionGuard guard(&fusion);
      TensorView* x = input(fusion, {6, width});
      shard(x, DeviceMesh::create({{"x", 4}}), {{1, "x"}});
      const auto n = static_cast<double>(width);
      TensorView* d = sub(x, div(sum(x, {1}, true), n));
      TensorView* squares = mul(d, d);
      TensorView* e = sub(squares, div(sum(squares, {1}, true), n));
      fusion.addOutput(sum(mul(e, e), {1}));
      (void)runSharded(fusion, {-2, 3});
    }
  }
  // the outer axis cuts 15 and 11 unevenly, the inner one what they have evenly
  for (const int64_t width : {16, 15, 11}) {
    SCOPED_TRACE(width);
    for (const bool turned : {false, true}) {
      Fusion fusion;
      FusionGuard guard(&fusion);
      TensorView* x = input(fusion, {6, width});
      shard(x, DeviceMesh::create({{"y", 2}, {"x", 2}}), {{1, turned ? "x" : "y"}, {1, turned ? "y" : "x"}});
      fusion.addOutput(variance(x, {1}, 0, false));
      (void)runSharded(fusion, {-2, 3});
    }
  }
}

// Rows far from zero: that the means are rounded must count as a square only.
TEST(CombineVariance, AsExactAsTwoAllReduces) {
  for (const int64_t ranks : {2, 4}) {
    for (const int64_t width : {64, 50}) {
      Fusion fusion;
      varianceOfRows(fusion, 6, width, ranks);
      const Tensor x = randomTensor({6, width}, DataType::Float, 5, 10000, 10001);
      const std::vector<Tensor> on = runOnRanks(fusion, x, {});
      const std::vector<Tensor> off = runOnRanks(fusion, x, kPlainReshards);
      double worst = 0;
      double worstOff = 0;
      for (int64_t row = 0; row < 6; row++) {
        const std::vector<double> values = x.slice(0, row, row + 1).toVector();
        const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(width);
        double var = 0;
        for (const double v : values) {
          var += (v - mean) * (v - mean) / static_cast<double>(width);
        }
        worst = std::max(worst, std::abs(on[0].at({row}) - var) / var);
        worstOff = std::max(worstOff, std::abs(off[0].at({row}) - var) / var);
      }
      EXPECT_LE(worst, std::max(2 * worstOff, 2e-6)) << ranks << " ranks, " << width << " columns, before " << worstOff;
    }
  }
}

// Rows that repeat one number: their mean is rounded, yet the variance is at least 0 and its root is no NaN.
TEST(CombineVariance, NeverLessThanNothing) {
  for (const int64_t width : {24, 23, 10, 5}) {
    Fusion fusion;
    varianceOfRows(fusion, 64, width, 4);
    Tensor x = randomTensor({64, 1}, DataType::Float, 5, -1000, 1000).expand({64, width}).clone();
    const std::vector<Tensor> on = runOnRanks(fusion, x, {});
    for (int64_t row = 0; row < 64; row++) {
      const double value = x.at({row, 0});
      EXPECT_GE(on[0].at({row}), 0) << value;
      EXPECT_LE(on[0].at({row}), value * value * 1e-12) << value;
    }
  }
}

// Sums beyond all numbers, infinities and NaN, also where the last part has no elements.
TEST(CombineVariance, TheSameInfinities) {
  for (const int64_t width : {8, 10, 5}) {
    Fusion fusion;
    varianceOfRows(fusion, 8, width, 4);
    Tensor x = randomTensor({8, width}, DataType::Float, 5);
    for (int64_t k = 0; k < width; k++) {
      x.set(std::vector<int64_t>{0, k}, 3e38);                       // each part's sum
      x.set(std::vector<int64_t>{1, k}, 1.5e38);                     // that of the whole
      x.set(std::vector<int64_t>{2, k}, k % 2 == 0 ? 3e38 : -3e38);  // squares
    }
    for (int64_t k = 0; k < width; k++) {
      x.set(std::vector<int64_t>{6, k}, k < (width + 1) / 2 ? 3e38 : -3e38);  // each part's sum, of both signs
      x.set(std::vector<int64_t>{7, k}, -1.1e38);                             // and the rounding's square
    }
    x.set(std::vector<int64_t>{3, width - 1}, kInf);
    x.set(std::vector<int64_t>{4, 0}, std::nan(""));
    const std::vector<Tensor> on = runOnRanks(fusion, x, {});
    const std::vector<Tensor> off = runOnRanks(fusion, x, kPlainReshards);
    for (size_t output = 0; output < 2; output++) {
      for (int64_t row = 0; row < 8; row++) {
        SCOPED_TRACE(fmt::format("{} columns, output {}, row {}", width, output, row));
        const double a = on[output].at({row});
        const double b = off[output].at({row});
        EXPECT_EQ(std::isnan(a), std::isnan(b)) << a << " " << b;
        EXPECT_EQ(std::isinf(a), std::isinf(b)) << a << " " << b;
      }
    }
  }
}

// Which is cheaper: a call is worth 64 KiB, and the gathers share one up to 16 KiB.
TEST(CombineVariance, OnlyWhereItCostsLess) {
  const auto steps = [](int64_t rows, int64_t ranks, PassSettings settings, const PlannerSettings& planner = {}) {
    Fusion fusion;
    fusion.setPlanner(planner);
    varianceOfRows(fusion, rows, 16, ranks);
    return runSharded(fusion, {}, settings).communications;
  };
  const Steps gather{"all_gather(x)"};
  const Steps reduces{"all_reduce(x)", "all_reduce(x)"};
  EXPECT_EQ(steps(341, 4, {}), gather);
  EXPECT_EQ(steps(342, 4, {}), reduces);  // they would be three calls
  EXPECT_EQ(steps(170, 8, {}), gather);
  EXPECT_EQ(steps(171, 8, {}), reduces);
  EXPECT_EQ(steps(6, 4, {.bucketBytes = 0}), reduces);
  EXPECT_EQ(steps(6, 4, kPlainReshards), reduces);
  // 3 * 4 * 3 * 8 = 288 bytes and a call against 2 * 4 * 8 * 2 * 3 / 4 = 96 and two
  EXPECT_EQ(steps(8, 4, {.callBytes = 193}), gather);
  EXPECT_EQ(steps(8, 4, {.callBytes = 192}), reduces);
  EXPECT_EQ(steps(8, 4, {}, {.alpha = {{"x", 49}}}), gather);  // elements
  EXPECT_EQ(steps(8, 4, {}, {.alpha = {{"x", 48}}}), reduces);
  EXPECT_EQ(steps(8, 4, {}, {.alpha = {{"x", 97}}, .beta = {{"x", 2}}}), gather);
  EXPECT_EQ(steps(8, 4, {}, {.alpha = {{"x", 96}}, .beta = {{"x", 2}}}), reduces);
  EXPECT_EQ(steps(8, 4, {}, {.forbid = {"all_gather"}}), reduces);
}

class CombineVarianceNot : public ::testing::Test {
 protected:
  CombineVarianceNot() : guard(&fusion) { shard(x, mesh, {{1, "x"}}); }
  int allReduces() {
    int count = 0;
    for (const std::string& step : runSharded(fusion).communications) {
      count += step.starts_with("all_reduce") ? 1 : 0;
    }
    return count;
  }

  Fusion fusion;
  FusionGuard guard;
  DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  TensorView* x = input(fusion, {6, 16});
};

TEST_F(CombineVarianceNot, UnlessAllIsAsItMustBe) {
  TensorView* d = sub(x, div(sum(x, {1}, true), 16.0));
  fusion.addOutput(sum(mul(d, d), {1}));
  EXPECT_EQ(allReduces(), 0);
}

TEST_F(CombineVarianceNot, WhereTwoSetsOfSquaresReadTheSum) {
  TensorView* mean = div(sum(x, {1}, true), 16.0);
  TensorView* near = sub(x, mean);
  TensorView* far = sub(x, mul(mean, 2.0));
  fusion.addOutput(sum(mul(near, near), {1}));
  fusion.addOutput(sum(mul(far, far), {1}));
  EXPECT_EQ(allReduces(), 2);
}

TEST_F(CombineVarianceNot, WhereOtherDimsAreSummed) {
  TensorView* d = sub(x, div(sum(x, {1}, true), 16.0));
  fusion.addOutput(sum(mul(d, d), {0, 1}));
  EXPECT_EQ(allReduces(), 2);
}

TEST_F(CombineVarianceNot, WhereTheDistancesAreOfAnotherTensor) {
  TensorView* d = sub(exp(x), div(sum(x, {1}, true), 16.0));
  fusion.addOutput(sum(mul(d, d), {1}));
  EXPECT_EQ(allReduces(), 2);
}

TEST_F(CombineVarianceNot, WhereTheCenterIsNoMultipleOfTheSum) {
  TensorView* d = sub(x, exp(div(sum(x, {1}, true), 16.0)));
  fusion.addOutput(sum(mul(d, d), {1}));
  EXPECT_EQ(allReduces(), 2);
}

TEST_F(CombineVarianceNot, WhereTheUserPlacedTheDistances) {
  TensorView* d = sub(x, div(sum(x, {1}, true), 16.0));
  shard(d, mesh, {{1, "x"}});
  fusion.addOutput(sum(mul(d, d), {1}));
  EXPECT_EQ(allReduces(), 2);
}

TEST_F(CombineVarianceNot, WhereOneOfThemIsToBeCut) {
  TensorView* all = input(fusion, {8, 16});
  shard(all, mesh, {{1, "x"}});
  TensorView* d = sub(all, div(sum(all, {1}, true), 16.0));
  TensorView* squares = set(sum(mul(d, d), {1}));
  shard(squares, mesh, {{0, "x"}});
  fusion.addOutput(squares);
  EXPECT_EQ(allReduces(), 1);  // and a reduce-scatter
}

}  // namespace
}  // namespace meshfuse
