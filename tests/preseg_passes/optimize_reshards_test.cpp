// What the optimization of redistributions saves: each rewrite moves fewer bytes than the program without it, and a transformer with
// and without it gives the same numbers.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>

#include "analysis/pass_context.h"
#include "interpret/bounds.h"
#include "ir/text.h"
#include "ops/contraction.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "preseg_passes/optimize_reshards.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"
#include "preseg_passes/sharded_program.h"
#include "preseg_passes/table.h"
#include "programs/transformer.h"

namespace meshfuse {
namespace {

// Small tensors stand for large ones.
constexpr PassSettings kFreeCalls{.callBytes = 0, .bucketBytes = 0};

struct OnAndOff {
  ShardedRun on;
  ShardedRun off;
  ReshardCost with;
  ReshardCost without;
};

// Both give what the interpreter gives.
OnAndOff runOnAndOff(const Fusion& fusion, PassSettings settings = kFreeCalls) {
  OnAndOff runs{runSharded(fusion, {}, settings), runSharded(fusion, {}, kPlainReshards), {}, {}};
  runs.with = costOf(*runs.on.planned);
  runs.without = costOf(*runs.off.planned);
  return runs;
}

class OptimizeReshards : public ::testing::Test {
 protected:
  TensorView* input(const std::vector<int64_t>& shape, const std::vector<DimAxis>& dims = {},
                    DataType type = DataType::Float) {
    TensorView* tv = makeContigConcreteTensor(fusion, shape, type);
    fusion.addInput(tv);
    shard(tv, mesh, dims);
    return tv;
  }
  TensorView* output(TensorView* tv, const std::vector<DimAxis>& dims = {}) {
    shard(tv, mesh, dims);
    fusion.addOutput(tv);
    return tv;
  }

  Fusion fusion;
  FusionGuard guard{&fusion};
  DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
};

// The gathered tensor is cast up on the way: it travels as it was.
TEST_F(OptimizeReshards, CastsUpFollowTheGather) {
  TensorView* x = input({8, 4}, {{0, "x"}}, DataType::Half);
  output(abs(castOp(DataType::Float, x)));
  const OnAndOff runs = runOnAndOff(fusion);
  EXPECT_EQ(runs.on.communications, Steps{"all_gather(x)"});
  EXPECT_EQ(runs.without.bytes, 3 * 2 * 4 * 4);
  EXPECT_EQ(runs.with.bytes, 3 * 2 * 4 * 2);
}

TEST_F(OptimizeReshards, SumsWithoutElementsStay) {
  TensorView* x = input({8, 0}, {{0, "x"}});
  output(exp(neg(sum(x, {0}))));
  EXPECT_EQ(runOnAndOff(fusion).on.communications, Steps{});
}

// A product of 16-bit numbers is rounded once: it is not summed in parts because what it reads could be in parts.
TEST_F(OptimizeReshards, ProductsOf16BitsAreNotSummedInParts) {
  for (DataType type : {DataType::Float, DataType::Half}) {
    Fusion products;
    FusionGuard inner(&products);
    auto in = [&](const std::vector<int64_t>& shape, const std::vector<DimAxis>& dims) {
      TensorView* tv = makeContigConcreteTensor(products, shape, type);
      products.addInput(tv);
      shard(tv, mesh, dims);
      return tv;
    };
    TensorView* x = in({1, 64}, {{1, "x"}});
    TensorView* w = in({4096, 64}, {{1, "x"}});
    TensorView* v = in({8, 4096}, {});
    TensorView* hidden = linear(x, w);
    products.addOutput(linear(permute(hidden, {0, 1}), v));
    const OnAndOff runs = runOnAndOff(products);
    const bool scattered = runs.on.communications != runs.off.communications;
    EXPECT_EQ(scattered, type == DataType::Float) << name(type);
  }
}

TEST_F(OptimizeReshards, WhatIsStretchedIsGatheredBefore) {
  TensorView* x = input({8}, {{0, "x"}});
  output(neg(expand(unsqueeze(x, 1), {8, 16})));
  const OnAndOff runs = runOnAndOff(fusion);
  EXPECT_EQ(runs.on.communications, Steps{"all_gather(x)"});
  EXPECT_EQ(runs.without.bytes, 3 * 2 * 16 * 4);
  EXPECT_EQ(runs.with.bytes, 3 * 2 * 4);
}

TEST_F(OptimizeReshards, SumsOfSumsAreCombinedOnce) {
  TensorView* x = input({8, 4}, {{1, "x"}});
  TensorView* y = input({8, 4}, {{1, "x"}});
  TensorView* u = input({6, 4}, {{1, "x"}});
  TensorView* v = input({6, 4}, {{1, "x"}});
  TensorView* r = input({8, 6});
  output(add(add(r, linear(x, u)), add(linear(y, v), linear(y, u))));
  const OnAndOff runs = runOnAndOff(fusion, PassSettings{});
  EXPECT_EQ(runs.on.communications, Steps{"all_reduce(x)"});
  EXPECT_EQ(runs.off.communications, (Steps{"all_reduce(x)", "all_reduce(x)", "all_reduce(x)"}));
  EXPECT_EQ(runs.with.bytes * 3, runs.without.bytes);
}

// Linear ops are applied to the contributions of a rank; the bias is added once, and scaled with its sum.
TEST_F(OptimizeReshards, SumsAreScaledBeforeTheyAreCombined) {
  TensorView* x = input({8, 4}, {{1, "x"}});
  TensorView* u = input({6, 4}, {{1, "x"}});
  TensorView* v = input({6, 4}, {{1, "x"}});
  TensorView* bias = input({6});
  TensorView* scaled = mul(linear(x, u, bias), 2.0);
  output(add(scaled, div(neg(linear(x, v)), 4.0)));
  const OnAndOff runs = runOnAndOff(fusion, PassSettings{.bucketBytes = 0});
  EXPECT_EQ(runs.on.communications, Steps{"all_reduce(x)"});
  EXPECT_EQ(runs.off.communications, (Steps{"all_reduce(x)", "all_reduce(x)"}));
  EXPECT_EQ(runs.with.bytes * 2, runs.without.bytes);
}

// A scaled update of a frozen weight, and a residual: the tree is more than its sums.
TEST_F(OptimizeReshards, OfATreeOfScaledSumsTheRestStays) {
  TensorView* r = input({8, 6});
  TensorView* x = input({8, 4}, {{1, "x"}});
  TensorView* w = input({6, 4}, {{1, "x"}});
  TensorView* down = input({2, 4}, {{1, "x"}});
  TensorView* low = input({8, 2 * 4}, {{1, "x"}});
  TensorView* up = input({6, 2 * 4}, {{1, "x"}});
  output(add(mul(add(r, linear(low, up)), 0.5), add(linear(x, w), mul(sum(linear(x, down), {1}, true), 3.0))));
  const OnAndOff runs = runOnAndOff(fusion, PassSettings{.bucketBytes = 0});
  EXPECT_EQ(runs.on.communications, (Steps{"all_reduce(x)", "all_reduce(x)"})) << "one for the tree, one for the mean";
  EXPECT_EQ(runs.off.communications, (Steps{"all_reduce(x)", "all_reduce(x)", "all_reduce(x)"}));
}

// Numbers of 16 bits that are added as wider ones travel as these: no more bytes, and not rounded between.
TEST_F(OptimizeReshards, NarrowSumsAreAddedAsWideOnes) {
  TensorView* x = input({8, 4}, {{1, "x"}}, DataType::BFloat16);
  TensorView* u = input({6, 4}, {{1, "x"}}, DataType::BFloat16);
  TensorView* v = input({6, 4}, {{1, "x"}}, DataType::BFloat16);
  output(add(castOp(DataType::Float, linear(x, u)), castOp(DataType::Float, linear(x, v))));
  const OnAndOff runs = runOnAndOff(fusion, PassSettings{.bucketBytes = 0});
  EXPECT_EQ(runs.on.communications, Steps{"all_reduce(x)"});
  EXPECT_EQ(runs.with.bytes, runs.without.bytes);
}

// A slice, or a sum over another dim, runs before the all-reduce, which then moves fewer elements.
TEST_F(OptimizeReshards, SumsAreCombinedAfterOpsThatShrinkThem) {
  TensorView* x = input({8, 4}, {{1, "x"}});
  TensorView* w = input({6, 4}, {{1, "x"}});
  TensorView* y = mul(linear(x, w), 0.5);
  output(tanh(slice(permute(y, {1, 0}), {0, 7}, {6, 8})));
  const OnAndOff runs = runOnAndOff(fusion);
  EXPECT_EQ(runs.on.communications, Steps{"all_reduce(x)"});
  EXPECT_EQ(runs.with.bytes * 8, runs.without.bytes);
}

TEST_F(OptimizeReshards, SumsOfSumsAreCombinedOnceTheyAreSmall) {
  TensorView* x = input({2, 4, 4}, {{2, "x"}});
  TensorView* w = input({6, 4}, {{1, "x"}});
  TensorView* y = reshape(linear(x, w), {8, 6});
  output(exp(sum(y, {0})));
  const OnAndOff runs = runOnAndOff(fusion);
  EXPECT_EQ(runs.on.communications, Steps{"all_reduce(x)"});
  EXPECT_EQ(runs.with.bytes * 8, runs.without.bytes);
}

// A tree whose sums come from tensors of other shapes.
TEST_F(OptimizeReshards, SumsOfOtherShapesAreAddedBeforeTheyAreCombined) {
  TensorView* x = input({8, 4}, {{1, "x"}});
  TensorView* u = input({6, 4}, {{1, "x"}});
  TensorView* v = input({8, 4}, {{1, "x"}});
  TensorView* y = permute(linear(x, u), {1, 0});  // [6, 8]
  TensorView* z = reshape(slice(linear(v, v), {0, 0}, {6, 8}), {6, 8});
  output(exp(add(y, mul(z, 2.0))));
  const OnAndOff runs = runOnAndOff(fusion, PassSettings{.bucketBytes = 0});
  EXPECT_EQ(runs.on.communications, Steps{"all_reduce(x)"});
  EXPECT_EQ(runs.off.communications, (Steps{"all_reduce(x)", "all_reduce(x)"}));
  EXPECT_LT(runs.with.bytes, runs.without.bytes);
}

// Not applied to contributions: quotients of integers (not linear), sums with two readers, sums that the user placed.
TEST_F(OptimizeReshards, SumsThatAreReadOtherwiseStayApart) {
  for (int variant = 0; variant < 3; variant++) {
    Fusion sums;
    FusionGuard inner(&sums);
    const auto in = [&](DataType type) {
      TensorView* tv = makeContigConcreteTensor(sums, {8, 4}, type);
      sums.addInput(tv);
      shard(tv, mesh, {{0, "x"}});
      return tv;
    };
    const DataType type = variant == 0 ? DataType::Int : DataType::Float;
    TensorView* a = sum(in(type), {0});
    TensorView* b = sum(in(type), {0});
    TensorView* scaled = variant == 0 ? div(a, 2) : mul(a, 2.0);
    if (variant == 1) {
      sums.addOutput(exp(scaled));
    } else if (variant == 2) {
      shard(scaled, mesh);
    }
    sums.addOutput(add(scaled, b));
    EXPECT_EQ(runSharded(sums, {}, {.bucketBytes = 0}).communications, (Steps{"all_reduce(x)", "all_reduce(x)"}))
        << variant;
  }
}

// A sum of numbers of 16 bits is rounded where the program says so.
TEST_F(OptimizeReshards, SumsOfNarrowNumbersStayApart) {
  TensorView* x = input({8, 4}, {{1, "x"}}, DataType::Half);
  TensorView* u = input({6, 4}, {{1, "x"}}, DataType::Half);
  TensorView* v = input({6, 4}, {{1, "x"}}, DataType::Half);
  output(add(linear(x, u), linear(x, v)));
  const OnAndOff runs = runOnAndOff(fusion);
  EXPECT_EQ(runs.with.bytes, runs.without.bytes);
}

// What the user placed is left where it is.
TEST_F(OptimizeReshards, PinnedTensorsStay) {
  TensorView* x = input({8, 12}, {{1, "x"}});
  TensorView* w = input({4, 12}, {{1, "x"}});
  TensorView* y = linear(x, w);
  shard(y, mesh);
  output(neg(y), {{0, "x"}});
  const OnAndOff runs = runOnAndOff(fusion);
  EXPECT_EQ(runs.on.communications, Steps{"all_reduce(x)"});
}

// An all-reduce whose readers cannot run in parts stays one.
TEST_F(OptimizeReshards, AnAllReduceWithoutLaterComputationStays) {
  TensorView* x = input({8, 12}, {{1, "x"}});
  TensorView* w = input({4, 12}, {{1, "x"}});
  TensorView* again = input({4, 4}, {{0, "x"}});
  output(linear(linear(x, w), again), {{1, "x"}});
  EXPECT_EQ(runOnAndOff(fusion).on.communications, Steps{"all_reduce(x)"});
}

// What is read on another mesh of the same ranks would have to be gathered for it.
TEST_F(OptimizeReshards, WhatAnotherMeshReadsWholeStaysWhole) {
  const DeviceMesh other = DeviceMesh::create({{"a", 2}, {"b", 2}});
  TensorView* x = input({8, 12}, {{1, "x"}});
  TensorView* w = input({4, 12}, {{1, "x"}});
  TensorView* y = neg(exp(linear(x, w)));
  TensorView* z = set(y);
  shard(z, other);
  fusion.addOutput(z);
  EXPECT_EQ(runSharded(fusion).communications, Steps{"all_reduce(x)"});
}

// One more collective has to save more than it costs: small tensors stay whole.
TEST_F(OptimizeReshards, ACallHasAPrice) {
  TensorView* x = input({8, 12}, {{1, "x"}});
  TensorView* w = input({4, 12}, {{1, "x"}});
  TensorView* again = input({4, 4}, {{0, "x"}});
  output(linear(layerNormOver(linear(x, w), 1, nullptr, nullptr, 1e-5).output, again), {{1, "x"}});
  EXPECT_EQ(runOnAndOff(fusion).on.communications, (Steps{"all_gather(x)", "reduce_scatter(x)"}));
  EXPECT_EQ(runOnAndOff(fusion, PassSettings{}).on.communications, Steps{"all_reduce(x)"});
}

// Small collectives that do not wait for each other are one call; the bytes received are the same.
TEST_F(OptimizeReshards, ProjectionsAreExchangedTogether) {
  for (int k = 0; k < 3; k++) {
    TensorView* t = neg(input({8, 12}, {{0, "x"}}));
    shard(t, mesh, {{0, "x"}});
    TensorView* heads = set(t);
    output(exp(heads), {{1, "x"}});
  }
  const OnAndOff runs = runOnAndOff(fusion, PassSettings{});
  EXPECT_EQ(runs.on.communications, Steps{"all_to_all(x)"});
  EXPECT_EQ(runs.off.communications, (Steps{"all_to_all(x)", "all_to_all(x)", "all_to_all(x)"}));
  EXPECT_EQ(runs.with.bytes, runs.without.bytes);
}

// Of a stack of layers: buckets are filled in the order in which gradients are ready, and what the next product waits for is not put
// into them.
TEST_F(OptimizeReshards, GradientsAreCombinedInBuckets) {
  constexpr int64_t kRows = 8, kFeatures = 4, kBytes = kFeatures * kFeatures * 4;
  TensorView* g = input({kRows, kFeatures}, {{0, "x"}});
  for (int layer = 0; layer < 6; layer++) {
    TensorView* x = input({kRows, kFeatures}, {{0, "x"}});
    TensorView* w = input({kFeatures, kFeatures});
    output(matmul(transpose(g), x));
    g = matmul(g, w);
  }
  output(g, {{0, "x"}});
  const auto calls = [&](int64_t bytes) {
    return runSharded(fusion, {}, {.bucketBytes = bytes}).communications.size();
  };
  EXPECT_EQ(calls(0), 6);
  EXPECT_EQ(calls(kBytes), 6);
  EXPECT_EQ(calls(2 * kBytes), 3);
  EXPECT_EQ(calls(4 * kBytes + 8), 2);
  EXPECT_EQ(calls(1 << 20), 1);
}

// The second all-reduce waits for the first; a third one need not wait for either, and goes with the one it does not delay.
TEST_F(OptimizeReshards, WhatOthersWaitForIsNotDelayed) {
  TensorView* x = input({8, 4}, {{0, "x"}});
  TensorView* y = input({8, 4}, {{0, "x"}});
  TensorView* a = exp(sum(x, {0}));
  TensorView* b = sum(mul(x, broadcast(a, {true, false})), {0});
  output(add(exp(b), sum(y, {0})));
  output(b);
  const ShardedRun run = runSharded(fusion);
  EXPECT_EQ(run.communications, (Steps{"all_reduce(x)", "all_reduce(x)"}));
}

Steps times(int64_t n, const Steps& steps) {
  Steps all;
  for (const std::string& step : steps) {
    all.insert(all.end(), n, step);
  }
  return all;
}

class TransformerReshards : public ::testing::Test {
 protected:
  OnAndOff run(const TransformerSizes& sizes) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    fusion.addOutput(transformer(fusion, mesh, sizes));
    OnAndOff runs = runOnAndOff(fusion);
    fmt::print(
        "{} layers{}: bytes received {} without, {} with; bytes computed and held {} without, {} with; "
        "collectives {} without, {} with\n",
        sizes.layers, sizes.parallel ? ", parallel halves" : "", runs.without.bytes, runs.with.bytes, runs.without.held,
        runs.with.held, runs.without.calls, runs.with.calls);
    return runs;
  }

  DeviceMesh mesh = DeviceMesh::create({{"dp", 2}, {"tp", 2}});
};

// Sequence parallelism: an all-gather and a reduce-scatter a half block, and a gather at the end, for the output is whole. The first
// half begins with what is whole.
TEST_F(TransformerReshards, SequenceParallelismAppearsByItself) {
  const OnAndOff runs = run({.layers = 4, .dropout = true});
  EXPECT_EQ(runs.off.communications, times(8, {"all_reduce(tp)"}));
  EXPECT_EQ(runs.on.communications, times(8, {"all_gather(tp)", "reduce_scatter(tp)"}));
  EXPECT_LE(runs.with.bytes, runs.without.bytes);
  EXPECT_LT(runs.with.held, runs.without.held);
}

TEST_F(TransformerReshards, HalvesThatAreAddedShareTheirCollectives) {
  const OnAndOff runs = run({.layers = 4, .parallel = true});
  EXPECT_EQ(runs.off.communications, times(8, {"all_reduce(tp)"}));
  EXPECT_EQ(runs.on.communications, times(4, {"all_gather(tp)", "reduce_scatter(tp)"}));
  EXPECT_EQ(runs.with.bytes * 2, runs.without.bytes);
}

// Weights cut over both axes: each is gathered over dp once, and the sums over tp are scattered.
TEST_F(TransformerReshards, WeightsCutOverDataParallelRanksAreGatheredOnce) {
  const OnAndOff runs = run({.layers = 2, .dataSharded = true});
  EXPECT_EQ(std::ranges::count(runs.on.communications, "all_gather(dp)"), 2 * 6);
  EXPECT_EQ(std::ranges::count(runs.on.communications, "all_reduce(tp)"), 0);
  EXPECT_LE(runs.with.bytes, runs.without.bytes);
}

// Sums of halves that are scaled are scaled first, and combined together.
TEST_F(TransformerReshards, HalvesThatAreScaledAndAddedShareTheirCollectives) {
  const OnAndOff runs = run({.layers = 4, .parallel = true, .scale = 0.5});
  EXPECT_EQ(runs.off.communications, times(8, {"all_reduce(tp)"}));
  EXPECT_EQ(runs.on.communications, times(4, {"all_gather(tp)", "reduce_scatter(tp)"}));
  EXPECT_EQ(runs.with.bytes * 2, runs.without.bytes);
}

// Weights travel as they are stored.
TEST_F(TransformerReshards, NarrowWeightsAreGatheredBeforeTheyAreCastUp) {
  const TransformerSizes sizes{.layers = 4, .narrowWeights = true, .dataSharded = true};
  const OnAndOff runs = run(sizes);
  // of each layer three weights and one of [features, features], two of four times the size, over dp
  const int64_t gathered = sizes.layers * 12 * sizes.features * sizes.features / 4;
  EXPECT_EQ(runs.without.bytes - runs.with.bytes, gathered * (4 - 2));
  EXPECT_EQ(std::ranges::count(runs.on.communications, "all_gather(dp)"), 4 * 6);
}

// Small weights that a layer needs at once are gathered at once.
TEST_F(TransformerReshards, SmallWeightsAreGatheredTogether) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  fusion.addOutput(transformer(fusion, mesh, {.layers = 4, .dataSharded = true}));
  const auto gathers = [&](PassSettings settings) {
    return std::ranges::count(runSharded(fusion, {}, settings).communications, "all_gather(dp)");
  };
  EXPECT_EQ(gathers({.callBytes = 0, .bucketBytes = 0}), 4 * 6);
  EXPECT_EQ(gathers({.callBytes = 0}), 4 * 3);
  EXPECT_EQ(gathers({.optimizeReshards = false}), 4 * 6);
}

TEST_F(TransformerReshards, NarrowTypesToo) {
  const OnAndOff runs = run({.layers = 2, .dtype = DataType::BFloat16});
  EXPECT_EQ(runs.on.communications, times(4, {"all_gather(tp)", "reduce_scatter(tp)"}));
  EXPECT_LE(runs.with.bytes, runs.without.bytes);
}

// -- programs whose redistributions stand elsewhere ---------------------------------------------------------------------

// A transformer up to its redistributions, which are not planned yet.
class Displaced : public ::testing::Test {
 protected:
  void optimized(const TransformerSizes& sizes) {
    FusionGuard guard(&fusion);
    fusion.addOutput(transformer(fusion, mesh, sizes));
    PassContext context(fusion, kFreeCalls);
    for (const PassRow<Fusion, PassContext>& row : presegPasses()) {
      row.run(fusion, context);
      if (row.name == "optimize-reshards") {
        return;
      }
    }
  }

  // The pass finds back what it was.
  void expectMovedBack(int64_t displaced, const ReshardCost& best) {
    const ReshardCost worse = costOf(fusion);
    EXPECT_GT(displaced, 0);
    EXPECT_GT(worse.bytes, best.bytes);
    PassContext context(fusion, kFreeCalls);
    EXPECT_TRUE(optimizeReshards(fusion, context));
    const ReshardCost again = costOf(fusion);
    fmt::print("{} redistributions displaced: bytes received {}, {} once they are moved back\n", displaced, worse.bytes,
               again.bytes);
    EXPECT_EQ(again.bytes, best.bytes) << fusion.toString();
    EXPECT_EQ(again.calls, best.calls);
    EXPECT_EQ(verify(fusion), std::vector<std::string>{});
  }

  std::vector<Expr*> reshards() const {
    std::vector<Expr*> all;
    for (Expr* e : fusion.exprs()) {
      if (isOneMeshReshard(e) && isMovable(e->tensorOutput())) {
        all.push_back(e);
      }
    }
    return all;
  }
  static ShardState whole(const TensorView* tv) { return ShardState::replicated(tv->getDeviceMesh(), tv->shape()); }

  Fusion fusion;
  DeviceMesh mesh = DeviceMesh::create({{"dp", 2}, {"tp", 2}});
};

TEST_F(Displaced, DetoursAreComposed) {
  optimized({.layers = 4});
  const ReshardCost best = costOf(fusion);
  int64_t detours = 0;
  for (Expr* e : reshards()) {
    TensorView* from = e->input(0)->asTensor();
    TensorView* to = e->tensorOutput();
    if (!from->isPartial()) {
      continue;
    }
    TensorView* middle = combine(from, whole(to));
    TensorView* part = redistributed(middle, shardState(to));
    fusion.removeExpr(e);
    takePlace(to, part);
    detours++;
  }
  expectMovedBack(detours, best);
}

TEST_F(Displaced, GathersBeforeCastsDownAreSunk) {
  optimized({.layers = 4, .dtype = DataType::BFloat16});
  const ReshardCost best = costOf(fusion);
  int64_t moved = 0;
  for (Expr* e : reshards()) {
    TensorView* to = e->tensorOutput();
    const Expr* cast = e->input(0)->definition();
    if (cast == nullptr || cast->kind() != ExprKind::Cast) {
      continue;
    }
    TensorView* wide = cast->input(0)->asTensor();
    TensorView* wideWhole = redistributed(wide, shardState(to));
    TensorView* narrow = plainOp(ExprKind::Cast, {wideWhole}, to, to->dtype(), shardState(to));
    fusion.removeExpr(e);
    takePlace(to, narrow);
    moved++;
  }
  expectMovedBack(moved, best);
}

}  // namespace
}  // namespace meshfuse
