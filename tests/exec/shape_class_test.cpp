// One plan for the shapes of a class: results, and what leaves the class.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/ranges.h"
#include "exec/explain.h"
#include "exec/shape_class.h"
#include "host/program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "preseg_passes/concretize.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

using Shapes = std::vector<std::vector<int64_t>>;  // of the inputs

std::vector<Argument> inputsOf(const Shapes& shapes) {
  uint64_t seed = 1;
  return mapped<Argument>(shapes,
                          [&](const std::vector<int64_t>& s) { return randomTensor(s, DataType::Float, seed++); });
}

TensorView* input(Fusion& fusion, int64_t dims) {
  TensorView* tv = makeContigTensor(dims);
  fusion.addInput(tv);
  return tv;
}

// Calls with each list of shapes in turn, compared with the interpreter; the number of compiled plans.
int64_t plansOf(const BuildFusion& build, const std::vector<Shapes>& calls) {
  CheckedCache checked(build);
  for (const Shapes& shapes : calls) {
    EXPECT_EQ(checked.call(inputsOf(shapes)), "") << shapes[0][0] << " x " << shapes[0].back();
  }
  return checked.cache().plansCompiled();
}

// Three kernels; the softmax is kept in the arena.
void threeKernels(Fusion& f) {
  TensorView* x = softmax(input(f, 2), 1);
  TensorView* columns = sum(x, {0});
  f.addOutput(sum(mul(x, broadcast(columns, {true, false})), {1}));
  f.addOutput(neg(columns));
}

class ShapeClassTest : public testing::Test {
 protected:
  void SetUp() override {
    if (defaultDevice() != DeviceId::cpu()) {
      GTEST_SKIP() << "kernels of other devices take constant sizes";
    }
  }
};

// An older one is planned again: a fusion with very many classes remembers few.
TEST_F(ShapeClassTest, TheLastRefusedClassesAreRemembered) {
  Fusion fusion;
  {
    const FusionGuard guard(&fusion);
    fusion.addOutput(neg(input(fusion, 2)));
  }
  ShapeHistory history(fusion, 0, 1);
  for (const int64_t rows : {2, 3}) {
    history.note({{"i0", rows}});
  }
  const auto classOf = [&](int64_t columns) {
    const std::vector<Argument> inputs = inputsOf({{5, columns}});
    return history.classOf(inputs, history.sizesOf(inputs), {});
  };
  constexpr auto kMost = static_cast<int64_t>(ShapeHistory::kMostRefused);
  for (int64_t columns = 2; columns < 3 + kMost; columns++) {
    history.refuse(classOf(columns), "no plan");
  }
  EXPECT_FALSE(classOf(2).isConstant());
  for (const int64_t columns : {int64_t{3}, kMost + 2}) {
    EXPECT_EQ(classOf(columns).whyConstant, "no plan");
  }
}

// The leading dims of x are one dim of the product.
TEST_F(ShapeClassTest, AProductOfFourSizesThatVary) {
  std::vector<Shapes> calls;
  for (const int64_t n : {3, 4, 5, 6}) {
    calls.push_back({{n, n + 1, n + 2, n + 3}, {n + 4, n + 3}});
  }
  const BuildFusion build = [](Fusion& f) {
    TensorView* x = input(f, 4);
    f.addOutput(linear(x, input(f, 2)));
  };
  EXPECT_EQ(plansOf(build, calls), 2);
}

// Permutes that only products read are views: [batch, sequence, heads, features], as in attention.
TEST_F(ShapeClassTest, ProductsOfPermutedOperands) {
  std::vector<Shapes> calls;
  for (const int64_t n : {3, 5, 9, 21}) {
    calls.push_back({{n, n + 1, n + 2, n + 4}, {n, n + 5, n + 2, n + 4}});
  }
  const BuildFusion build = [](Fusion& f) {
    TensorView* queries = permute(input(f, 4), {0, 2, 1, 3});
    f.addOutput(matmul(queries, permute(input(f, 4), {0, 2, 3, 1})));
  };
  CheckedCache checked(build);
  for (const Shapes& shapes : calls) {
    EXPECT_EQ(checked.call(inputsOf(shapes)), "");
    EXPECT_EQ(checked.cache().profile(inputsOf(shapes)).steps.size(), 1u);
  }
  EXPECT_EQ(checked.cache().plansCompiled(), 2);
}

TEST_F(ShapeClassTest, RowCountsShareTwoPlansBesideTheFirst) {
  std::vector<Shapes> calls;
  for (int64_t rows = 2; rows < 100; rows += 3) {
    calls.push_back({{rows, 40}});
  }
  EXPECT_EQ(plansOf(threeKernels, calls), 3) << "the first, multiples of 16, all other numbers";
}

TEST_F(ShapeClassTest, ShapesOfSeveralSizes) {
  std::vector<Shapes> calls;
  for (int64_t n = 0; n < 20; n++) {
    calls.push_back({{5 + 7 * n % 50, 100 + 33 * n % 90}});
  }
  EXPECT_LE(plansOf(threeKernels, calls), 6);
}

TEST_F(ShapeClassTest, NoneAndOneAreConstants) {
  EXPECT_EQ(plansOf(threeKernels, {{{3, 5}}, {{4, 5}}, {{1, 5}}, {{0, 5}}, {{7, 5}}, {{1, 5}}, {{9, 5}}}), 4);
}

TEST_F(ShapeClassTest, EqualSizesAreOneSymbol) {
  const auto build = [](Fusion& f) { f.addOutput(add(input(f, 2), input(f, 2))); };
  EXPECT_EQ(plansOf(build, {{{3, 5}, {3, 5}}, {{4, 7}, {4, 7}}, {{6, 9}, {6, 9}}, {{11, 11}, {11, 11}}}), 3);
}

// Two layers with attention over sentences of one length, and six heads: views, matrix products, a softmax, norms.
TEST_F(ShapeClassTest, TransformerLayersOfAnyBatch) {
  const auto build = [](Fusion& f) {
    constexpr int64_t kHeads = 6;
    constexpr int64_t kFeatures = 48;
    TensorView* x = input(f, 3);
    const auto weight = [&](int64_t rows, int64_t columns) {
      TensorView* w = makeContigConcreteTensor({rows, columns});
      f.addInput(w);
      return w;
    };
    for (int64_t layer = 0; layer < 2; layer++) {
      const auto heads = [&](TensorView* t) {
        TensorView* parts = reshape(t, {x->shape()[0], x->shape()[1], kHeads, kFeatures / kHeads});
        return permute(parts, {0, 2, 1, 3});
      };
      TensorView* q = heads(linear(x, weight(kFeatures, kFeatures)));
      TensorView* k = heads(linear(x, weight(kFeatures, kFeatures)));
      TensorView* v = heads(linear(x, weight(kFeatures, kFeatures)));
      TensorView* a = matmul(softmax(mul(matmul(q, transpose(k, 2, 3)), 0.35), 3), v);
      TensorView* together = reshape(permute(a, {0, 2, 1, 3}), {x->shape()[0], x->shape()[1], kFeatures});
      x = add(x, linear(together, weight(kFeatures, kFeatures)));
      TensorView* wide = tanh_gelu(linear(x, weight(4 * kFeatures, kFeatures)));
      x = add(x, linear(wide, weight(kFeatures, 4 * kFeatures)));
    }
    f.addOutput(softmax(x, 2));
  };
  std::vector<Shapes> calls;
  for (const int64_t batch : {3, 4, 5, 7, 12, 16, 9}) {
    calls.push_back({{batch, 10, 48}});
    for (int64_t layer = 0; layer < 2; layer++) {
      calls.back().insert(calls.back().end(), {{48, 48}, {48, 48}, {48, 48}, {48, 48}, {192, 48}, {48, 192}});
    }
  }
  EXPECT_EQ(plansOf(build, calls), 3);
}

TEST_F(ShapeClassTest, ThePlanSaysItsClass) {
  CheckedCache checked(threeKernels);
  const auto linesFor = [&](const std::vector<int64_t>& shape) {
    EXPECT_EQ(checked.call(inputsOf({shape})), "");
    return checked.cache().explain().sizes;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(linesFor({6, 40}), (Lines{"i0 is 6", "i1 is 40"}));
  EXPECT_EQ(linesFor({9, 40}), (Lines{"i0 is any number from 2 on", "i1 is 40"}));
  EXPECT_EQ(linesFor({32, 40}), (Lines{"i0 is a multiple of 16 from 16 on", "i1 is 40"}));
  EXPECT_EQ(linesFor({7, 40}), (Lines{"i0 is any number from 2 on", "i1 is 40"}));
  EXPECT_EQ(checked.cache().hostProgram()->sizes().tensors[0].sizes, (std::vector<int64_t>{7, 40}));
  EXPECT_EQ(checked.cache().missReason(), "");
  (void)checked.cache().runFusionWithInputs(inputsOf({{1, 40}}));
  EXPECT_EQ(checked.cache().missReason(), "input 0 has sizes [1, 40] instead of [7, 40]");
  EXPECT_EQ(linesFor({1, 40}), (Lines{"i0 is 1", "i1 is 40"}));
}

// A user's error is the same for a plan of many shapes.
TEST_F(ShapeClassTest, SizesThatDoNotFitAreAUserError) {
  CheckedCache sum([](Fusion& f) { f.addOutput(add(input(f, 1), input(f, 1))); });
  for (const int64_t n : {20, 30, 40}) {
    EXPECT_EQ(sum.call(inputsOf({{n}, {n}})), "");
  }
  EXPECT_THROW((void)sum.cache().runFusionWithInputs(inputsOf({{20}, {30}})), UserError);
  EXPECT_EQ(sum.call(inputsOf({{50}, {50}})), "");
}

std::string errorOfCall(FusionExecutorCache& cache, const Shapes& shapes) {
  return errorOf([&] { (void)cache.runFusionWithInputs(inputsOf(shapes)); });
}

// Without verification, and when only one of two sizes has varied: the program for the class of the refused call does not exist yet.
TEST_F(ShapeClassTest, ShapesThatTheFusionRefusesAreRefusedBeforeTheirClassIsCompiled) {
  const auto twoInputs = [](const std::function<TensorView*(TensorView*, TensorView*)>& op, int64_t dims) {
    return [=](Fusion& f) {
      TensorView* a = input(f, dims);
      f.addOutput(op(a, input(f, dims)));
    };
  };
  struct Case {
    BuildFusion build;
    Shapes good, bad;
  };
  const std::vector<Case> cases = {
      {twoInputs([](TensorView* a, TensorView* b) { return add(a, b); }, 1), {{20}, {20}}, {{20}, {30}}},
      {twoInputs([](TensorView* a, TensorView* b) { return add(a, b); }, 1), {{20}, {20}}, {{20}, {5}}},
      {twoInputs([](TensorView* a, TensorView* b) { return matmul(a, b); }, 2), {{4, 6}, {6, 5}}, {{4, 6}, {9, 5}}},
      {twoInputs(
           [](TensorView* a, TensorView* b) {
             return cat({a, b}, 0);
           },
           2),
       {{4, 6}, {3, 6}},
       {{4, 7}, {3, 6}}},
      {[](Fusion& f) { f.addOutput(topk(input(f, 1), 5).values); }, {{10}}, {{3}}},
      {[](Fusion& f) {
         f.addOutput(reshape(input(f, 1), {-1, 4}));
       },
       {{12}},
       {{10}}},
  };
  for (const Case& c : cases) {
    const auto cacheFor = [&](bool sharePlans) {
      auto fusion = std::make_unique<Fusion>();
      const FusionGuard guard(fusion.get());
      c.build(*fusion);
      return std::make_unique<FusionExecutorCache>(std::move(fusion),
                                                   ExecutorOptions{.sharePlans = sharePlans, .verify = Verify::Off});
    };
    const auto shared = cacheFor(true);
    const auto constant = cacheFor(false);
    EXPECT_EQ(errorOfCall(*shared, c.good), "");
    EXPECT_EQ(errorOfCall(*constant, c.good), "");
    for (int call = 0; call < 2; call++) {
      EXPECT_EQ(errorOfCall(*shared, c.bad), errorOfCall(*constant, c.bad));
    }
    EXPECT_EQ(errorOfCall(*shared, c.good), "");
    EXPECT_EQ(shared->plansCompiled(), 1);
  }
}

// Refused are the shapes that concretize() refuses, though it looks at few of them.
TEST_F(ShapeClassTest, AShapeBetweenTwoAcceptedOnesIsAccepted) {
  struct Case {
    std::string name;
    BuildFusion build;
    bool acceptsBetween;
  };
  const auto slice = [](int64_t stop) {
    return [=](Fusion& f) { f.addOutput(meshfuse::slice(input(f, 2), {0, 0}, {stop, 8})); };
  };
  const std::vector<Case> cases = {
      {"three kernels", threeKernels, true},
      {"one dim", [](Fusion& f) { f.addOutput(reshape(tanh(input(f, 2)), {-1})); }, true},
      {"slice", slice(2), true},
      {"slice that may end early", slice(7), false},
      {"topk", [](Fusion& f) { f.addOutput(topk(input(f, 2), 5, 0).values); }, true},
      {"square",
       [](Fusion& f) {
         TensorView* x = input(f, 2);
         f.addOutput(matmul(x, transpose(x, 0, 1)));
       },
       true},
      {"twelve rows",
       [](Fusion& f) {
         TensorView* twelve = makeContigConcreteTensor({12, 8});
         TensorView* x = input(f, 2);
         f.addInput(twelve);
         f.addOutput(add(x, twelve));
       },
       true},
      {"s*s elements",
       [](Fusion& f) {
         TensorView* x = input(f, 2);
         f.addOutput(reshape(matmul(x, transpose(x, 0, 1)), {-1}));
       },
       false},
      {"rows of a product",
       [](Fusion& f) {
         f.addOutput(reshape(input(f, 2), {-1, 24}));
       },
       false},
      {"another number of elements",
       [](Fusion& f) {
         f.addOutput(reshape(input(f, 2), {12, 8}));
       },
       false},
      {"maybe one row",
       [](Fusion& f) {
         f.addOutput(pad(input(f, 2), {0, 0, -3, 0}));
       },
       false},
  };
  for (const Case& c : cases) {
    Fusion fusion;
    {
      const FusionGuard guard(&fusion);
      c.build(fusion);
    }
    const auto accepts = [&](const IntExpr& rows) {
      return errorOf([&] { (void)concretize(fusion, SymbolSizes{{"i0", rows}, {"i1", 8}}); }).empty();
    };
    const IntExpr any = IntExpr::symbol("i0", {.lower = 2});
    EXPECT_EQ(accepts(any) && acceptsBetween(*concretize(fusion, SymbolSizes{{"i0", any}, {"i1", 8}})),
              c.acceptsBetween)
        << c.name;
    std::vector<int64_t> accepted;
    for (int64_t rows = 2; rows < 30; rows++) {
      if (accepts(rows)) {
        accepted.push_back(rows);
      }
    }
    ASSERT_FALSE(accepted.empty()) << c.name;
    EXPECT_TRUE(!c.acceptsBetween || accepted.back() - accepted.front() + 1 == std::ssize(accepted)) << c.name;
  }
}

// The sizes of refused calls do not count: the ranks of a group may have refused different shapes.
TEST_F(ShapeClassTest, RanksThatDisagreedAgreeLater) {
  runLoopback(2, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    const FusionGuard guard(fusion.get());
    fusion->addOutput(neg(input(*fusion, 1)));
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    EXPECT_NE(errorOfCall(cache, {{comm.rank() + 4}}), "");
    for (const int64_t n : {4, 5, 6}) {
      EXPECT_EQ(errorOfCall(cache, {{n}}), "") << n;
    }
  });
}

TEST_F(ShapeClassTest, ASizeThatNoInputHasIsAUserError) {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  TensorView* other = makeContigTensor(1);
  fusion->addOutput(expand_as(broadcast(input(*fusion, 1), {false, true}), broadcast(other, {true, false})));
  FusionExecutorCache cache(std::move(fusion));
  for (int call = 0; call < 2; call++) {
    EXPECT_THROW((void)cache.runFusionWithInputs(inputsOf({{3}})), UserError);
  }
}

// A matrix as so many rows.
std::unique_ptr<Fusion> inRows() {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  TensorView* x = input(*fusion, 2);
  Val* n = IrBuilder::create<Val>(DataType::Int);
  fusion->addInput(n);
  fusion->addOutput(reshape(tanh(x), std::vector<IntExpr>{n->intExpr(), -1}));
  return fusion;
}

TEST_F(ShapeClassTest, ADivisionByZeroIsTheSameUserErrorEachTime) {
  FusionExecutorCache cache(inRows());
  const auto inputs = [](int64_t rows, int64_t n) {
    return std::vector<Argument>{randomTensor({rows, 12}, DataType::Float, 1), n};
  };
  const std::string first = errorOf([&] { (void)cache.runFusionWithInputs(inputs(16, 0)); });
  EXPECT_NE(first.find("192 divided by 0"), std::string::npos) << first;
  EXPECT_EQ(errorOf([&] { (void)cache.runFusionWithInputs(inputs(16, 0)); }), first);
  for (const int64_t rows : {4, 6, 8}) {
    (void)cache.runFusionWithInputs(inputs(rows, 2));
  }
  EXPECT_EQ(errorOf([&] { (void)cache.runFusionWithInputs(inputs(16, 0)); }), first);
}

TEST_F(ShapeClassTest, ADivisionByZeroOnOneRankIsToldToAll) {
  std::array<std::string, 2> errors;
  runLoopback(2, [&](Communicator& comm) {
    FusionExecutorCache cache(inRows(), {.communicator = &comm});
    const std::vector<Argument> inputs = {randomTensor({16, 12}, DataType::Float, 1), 2 - 2 * comm.rank()};
    errors[comm.rank()] = errorOf([&] { (void)cache.runFusionWithInputs(inputs); });
  });
  EXPECT_NE(errors[0].find("192 divided by 0"), std::string::npos) << errors[0];
  EXPECT_EQ(errors[0], errors[1]);
}

TEST_F(ShapeClassTest, AnIndexOutOfRangeIsNamedForALaterShape) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = input(f, 2);
    TensorView* rows = makeContigTensor(1, DataType::Int);
    f.addInput(rows);
    f.addOutput(index_select(x, 0, rows));
  });
  const auto call = [&](int64_t rows, int64_t row) {
    const Tensor index = Tensor::full({2}, DataType::Int, static_cast<double>(row));
    return errorOf([&] {
      (void)checked.cache().runFusionWithInputs({randomTensor({rows, 64}, DataType::Float, 1), index});
    });
  };
  EXPECT_EQ(call(100, 3), "");
  EXPECT_EQ(call(120, 3), "");
  EXPECT_EQ(call(140, 3), "");
  const std::string error = call(130, 131);
  EXPECT_NE(error.find("index_select"), std::string::npos) << error;
  EXPECT_NE(error.find("at [0] of input 1"), std::string::npos) << error;
}

// Each call adds to its argument.
TEST_F(ShapeClassTest, ResultsWrittenIntoInputs) {
  const auto build = [](Fusion& f) {
    TensorView* x = input(f, 2);
    TensorView* sum = add(x, input(f, 2));
    f.addOutput(sum);
    f.aliasOutputToInput(sum, x);
    TensorView* product = matmul(x, sum);
    f.addOutput(product);
  };
  EXPECT_EQ(plansOf(build, {{{4, 4}, {4, 4}}, {{6, 6}, {6, 6}}, {{7, 7}, {7, 7}}, {{9, 9}, {9, 9}}}), 2);
}

TEST_F(ShapeClassTest, KeepsTheShapesUsedLast) {
  CheckedCache checked(threeKernels);
  for (int64_t round = 0; round < 2; round++) {
    for (int64_t rows = 2; rows < 40; rows += 2) {
      EXPECT_EQ(checked.call(inputsOf({{rows, 8}})), "");
    }
  }
  EXPECT_EQ(checked.cache().plansCompiled(), 3) << "a class is known while one of its shapes is";
}

TEST_F(ShapeClassTest, IsKnownWithoutItsShapes) {
  CheckedCache checked(threeKernels, {.maxPlans = 2});
  for (const int64_t rows : {6, 10, 16, 32, 14, 48, 0, 1, 18, 64}) {
    EXPECT_EQ(checked.call(inputsOf({{rows, 8}})), "") << rows;
  }
  EXPECT_EQ(checked.cache().plansCompiled(), 5) << "6, any number, multiples of 16, 0 and 1";
}

// They differ in their operands only; a transposed one lies otherwise.
TEST_F(ShapeClassTest, ProductsOfEqualShapesHaveOneRoutine) {
  const auto build = [](Fusion& f) {
    TensorView* x = input(f, 2);
    const auto weight = [&] {
      TensorView* w = makeContigConcreteTensor({24, 24});
      f.addInput(w);
      return w;
    };
    TensorView* y = linear(linear(x, weight()), weight());
    TensorView* turned = matmul(y, weight());
    f.addOutput(linear(turned, weight()));
    f.addOutput(matmul(turned, transpose(turned, 0, 1)));
  };
  CheckedCache checked(build);
  for (const int64_t rows : {7, 9, 11}) {
    EXPECT_EQ(checked.call(inputsOf({{rows, 24}, {24, 24}, {24, 24}, {24, 24}, {24, 24}})), "") << rows;
    EXPECT_EQ(checked.cache().hostProgram()->routines.size(), 3) << "linear, matmul, matmul of one tensor";
  }
  EXPECT_EQ(checked.cache().plansCompiled(), 2);
}

TEST_F(ShapeClassTest, ManyOps) {
  const std::vector<Shapes> matrices = {{{5, 7}},     {{64, 1000}}, {{3, 33}}, {{1000, 3}},
                                        {{17, 4096}}, {{2, 2}},     {{48, 32}}};
  const std::vector<BuildFusion> builds = {
      [](Fusion& f) { f.addOutput(reshape(tanh(input(f, 2)), {-1})); },
      [](Fusion& f) { f.addOutput(transpose(exp(input(f, 2)), 0, 1)); },
      [](Fusion& f) {
        TensorView* x = input(f, 2);
        f.addOutput(matmul(softmax(x, 1), transpose(x, 0, 1)));
      },
      [](Fusion& f) {
        f.addOutput(cat({input(f, 2), exp(input(f, 2))}, 0));
      },
      [](Fusion& f) {
        f.addOutput(pad(input(f, 2), {1, 2, 3, 4}));
      },
      [](Fusion& f) { f.addOutput(cumsum(input(f, 2), 1)); },
      [](Fusion& f) {
        TensorView* x = input(f, 2);
        f.addOutput(variance_mean(x, {1}, 0, true).var);
      },
  };
  std::vector<int64_t> counts;
  for (const BuildFusion& build : builds) {
    std::vector<Shapes> calls = matrices;
    Fusion probe;
    {
      FusionGuard guard(&probe);
      build(probe);
    }
    for (Shapes& shapes : calls) {
      shapes.resize(probe.inputs().size(), shapes[0]);
    }
    counts.push_back(plansOf(build, calls));
  }
  // [3, 33] and [1000, 3] are of one class
  EXPECT_EQ(counts, std::vector<int64_t>(builds.size(), 6));
}

}  // namespace

}  // namespace meshfuse
