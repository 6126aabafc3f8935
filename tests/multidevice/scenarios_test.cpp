// Programs with one sharded edge or a few, and exactly the communication each must take, as functions of the number of ranks.
#include <limits>

#include "base/ranges.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/scenario.h"
#include "multidevice/scenario_parts.h"

namespace meshfuse {

namespace {

// Every grid of n ranks.
std::vector<std::pair<int64_t, int64_t>> gridsOf(int64_t n) {
  std::vector<std::pair<int64_t, int64_t>> grids;
  for (int64_t x = 1; x <= n; x++) {
    if (n % x == 0) {
      grids.emplace_back(x, n / x);
    }
  }
  return grids;
}

class OneEdge : public ScenarioTest {};

TEST_F(OneEdge, PointwiseOnShardsIsOneKernel) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {2 * n, 3}, mesh);
                      shardBlock(x, 0, mesh, "x");
                      shardBlock(output(f, add(x, 1.0), mesh), 0, mesh, "x");
                    },
                    {random({2 * n, 3}, 1)},
                    {{}, 1, 0, {"aligned"}}};
  });
}

TEST_F(OneEdge, ReplicatedToShardedIsLocal) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {6, 2 * n}, mesh);
                      shardBlock(output(f, set(x), mesh), 1, mesh, "x");
                    },
                    {random({6, 2 * n}, 1)},
                    {{}, 1, 0, {n == 1 ? "aligned" : "local"}}};
  });
}

TEST_F(OneEdge, GatherOfTheOutermostDimNeedsNoKernel) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {2 * n, 6}, mesh);
                      shardBlock(x, 0, mesh, "x");
                      output(f, set(x), mesh);
                    },
                    {random({2 * n, 6}, 1)},
                    {among(n, "all-gather"), n == 1 ? 1 : 0, (n - 1) * 12 * 4}};
  });
}

TEST_F(OneEdge, GatherOfAnInnerDimIsOneKernel) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {6, 2 * n}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      output(f, set(x), mesh);
                    },
                    {random({6, 2 * n}, 1)},
                    {among(n, "all-gather"), 1, (n - 1) * 12 * 4}};
  });
}

// Dim 0 of the tensor is the middle one of its memory.
TEST_F(OneEdge, GatherOfAPermutedLayoutIsOneKernel) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {3, 2 * n, 5}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      output(f, permute(x, {1, 0, 2}), mesh);
                    },
                    {random({3, 2 * n, 5}, 1)},
                    {among(n, "all-gather"), 1, (n - 1) * 30 * 4}};
  });
}

TEST_F(OneEdge, MovingAShardToAnotherDimIsAnAllToAll) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {2 * n, 3 * n}, mesh);
                      shardBlock(x, 0, mesh, "x");
                      shardBlock(output(f, set(x), mesh), 1, mesh, "x");
                    },
                    {random({2 * n, 3 * n}, 1)},
                    {among(n, "all-to-all"), -1, 2 * 3 * (n - 1) * 4}};
  });
}

// With all-to-all forbidden and a bound that allows it, the plan is an all-gather; each rank keeps its slice.
TEST_F(OneEdge, WithoutExchangesAShardMovesThroughTheWhole) {
  runScenario([](int64_t n) {
    return Scenario{
        [=](Fusion& f) {
          DeviceMesh mesh = axisX(n);
          TensorView* x = input(f, {2 * n, 3 * n}, mesh);
          shardBlock(x, 0, mesh, "x");
          shardBlock(output(f, set(x), mesh), 1, mesh, "x");
        },
        {random({2 * n, 3 * n}, 1)},
        {among(n, "all-gather"), -1, 2 * 3 * n * (n - 1) * 4},
        {},
        {.planner = PlannerSettings{.bound = 6 * n * n, .direct = DirectChoice::Fallback, .forbid = {"all_to_all"}}}};
  });
}

// Rows that a window needs of neighbours come by a gather where messages are ruled out.
TEST_F(OneEdge, WithoutTransfersAWindowIsCutOutOfTheWhole) {
  const auto scenario = [](int64_t n, std::vector<std::string> forbid, Expected expected) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {4 * n, 3}, mesh);
                      shardBlock(x, 0, mesh, "x");
                      TensorView* shifted = slice(x, {1, 0}, {2 * n + 1, 3});
                      shardBlock(output(f, shifted, mesh), 0, mesh, "x");
                      f.setPlanner({.bound = 12 * n, .forbid = forbid});
                    },
                    {random({4 * n, 3}, 1)},
                    std::move(expected)};
  };
  // all parts of the others
  runScenario([&](int64_t n) {
    return scenario(n, {"transfer", "all_to_all"}, {among(n, "all-gather"), -1, (n - 1) * 4 * 3 * 4});
  });
}

// Rows 1 + r, 5 + r and 9 + r of 16 on rank r of four: two of them come from others, rank 3 sends none. Where a call costs as much as a
// hundred elements the gather of the whole is cheaper, 100 + 36 for 200 + 6, and taken where a rank may hold its 48 elements.
TEST_F(OneEdge, AWindowIsGatheredOnlyWhereTheWholeIsWithinTheBound) {
  const auto run = [this](std::optional<int64_t> bound, double alpha, const std::vector<Expected>& byRank) {
    runScenarioOn(4, {[=](Fusion& f) {
                        DeviceMesh mesh = axisX(4);
                        TensorView* x = input(f, {16, 3}, mesh);
                        shardBlock(x, 0, mesh, "x");
                        TensorView* y = output(f, slice(x, {1, 0}, {13, 3}), mesh);
                        y->inner_split(0, 4);
                        y->axis(1)->parallelize(mesh.axis("x"));
                        f.setPlanner({.bound = bound, .alpha = {{"x", alpha}}});
                      },
                      {random({16, 3}, 1)},
                      {},
                      byRank});
  };
  const std::vector<Expected> gather(4, Expected{{"all-gather/4"}, -1, 3 * 4 * 3 * 4});
  const Expected outer{{"transfer/3"}, 0, 2 * 3 * 4};
  const Expected inner{{"transfer/4"}, 0, 2 * 3 * 4};
  const std::vector<Expected> transfer{outer, inner, inner, outer};
  run(48, 100, gather);
  run(47, 100, transfer);
  run({}, 100, transfer);
  run(48, 1, transfer);
}

class Reductions : public ScenarioTest {
 protected:
  using Reduce = std::function<TensorView*(TensorView*)>;
  // [2n, 3n], the first dim cut, from low to high.
  void toReplicated(const Reduce& reduce, DataType type, double low, double high) {
    runScenario([&](int64_t n) {
      return Scenario{[&reduce, type, n](Fusion& f) {
                        DeviceMesh mesh = axisX(n);
                        TensorView* x = input(f, {2 * n, 3 * n}, mesh, type);
                        shardBlock(x, 0, mesh, "x");
                        output(f, reduce(x), mesh);
                      },
                      {randomTensor({2 * n, 3 * n}, type, 1, low, high)},
                      {among(n, "all-reduce"), 1, allReduceBytes(3 * n, n, dataTypeSize(type))}};
    });
  }
};

TEST_F(Reductions, OverAShardedDimEndInAnAllReduce) {
  for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max}) {
    toReplicated([=](TensorView* x) { return reductionOp(op, x, {0}); }, DataType::Float, -3, -1);
  }
}

TEST_F(Reductions, OfBitsAndTruthToo) {
  for (ReduceOp op : {ReduceOp::And, ReduceOp::Or, ReduceOp::Xor}) {
    toReplicated([=](TensorView* x) { return reductionOp(op, x, {0}); }, DataType::Int, 0, 1 << 20);
  }
  toReplicated([](TensorView* x) { return any(x, {0}); }, DataType::Bool, 0, 2);
  toReplicated([](TensorView* x) { return all(x, {0}); }, DataType::Bool, 0, 2);
}

// The result is cut where it is kept; or the reduced dim is, too, by the same axis: [rDIDx, 2, iDIDx, 4], and reordered as
// [iDIDx, 4, rDIDx, 2].
TEST_F(Reductions, ToAShardAreAReduceScatter) {
  enum class Written : uint8_t { Kept, Both, Reordered };
  for (Written written : {Written::Kept, Written::Both, Written::Reordered}) {
    for (bool maximum : {false, true}) {
      for (DataType type : {DataType::Float, DataType::BFloat16}) {
        runScenario([=](int64_t n) {
          return Scenario{[=](Fusion& f) {
                            DeviceMesh mesh = axisX(n);
                            TensorView* x = input(f, {2 * n, 4 * n}, mesh, type);
                            shardBlock(x, 0, mesh, "x");
                            TensorView* y = output(f, maximum ? max(x, {0}) : sum(x, {0}), mesh);
                            shardBlock(y, 1, mesh, "x");
                            if (written != Written::Kept) {
                              shardBlock(y, 0, mesh, "x");
                            }
                            if (written == Written::Reordered) {
                              y->reorder({{2, 0}, {3, 1}, {0, 2}, {1, 3}});
                            }
                          },
                          {random({2 * n, 4 * n}, 1, type)},
                          {among(n, "reduce-scatter"), 1, 4 * (n - 1) * 4}};  // 16 bits are reduced in float
        });
      }
    }
  }
}

class Layouts : public ScenarioTest {};

TEST_F(Layouts, BlockToCyclicIsAnAllToAll) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {n * n}, mesh);
                      shardBlock(x, 0, mesh, "x");
                      TensorView* y = output(f, set(x), mesh);
                      y->inner_split(0, n);
                      y->axis(1)->parallelize(mesh.axis("x"));
                    },
                    {random({n * n}, 1)},
                    {among(n, "all-to-all"), -1, (n - 1) * 4}};
  });
}

TEST_F(Layouts, OuterProductsNeedNothing) {
  runScenario([](int64_t n) {
    auto [nx, ny] = gridsOf(n).at(n == 1 ? 0 : 1);  // 2 x n/2
    return Scenario{[=, nx = nx, ny = ny](Fusion& f) {
                      DeviceMesh mesh = DeviceMesh::create({{"x", nx}, {"y", ny}});
                      TensorView* a = input(f, {2 * nx, 1}, mesh);
                      shardBlock(a, 0, mesh, "x");
                      TensorView* b = input(f, {1, 3 * ny}, mesh);
                      shardBlock(b, 1, mesh, "y");
                      TensorView* z = output(f, mul(a, b), mesh);
                      shardBlock(z, 1, mesh, "y");
                      shardBlock(z, 0, mesh, "x");
                    },
                    {random({2 * nx, 1}, 1), random({1, 3 * ny}, 2)},
                    {{}, 1, 0}};
  });
}

TEST_F(Layouts, DimsOfOneComeAndGoBesideAShard) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {1, 3 * n, 5}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      TensorView* rows = squeeze(neg(x), 0);
                      TensorView* y = output(f, unsqueeze(exp(rows), 1), mesh);
                      shardBlock(y, 0, mesh, "x");
                    },
                    {random({1, 3 * n, 5}, 1)},
                    {{}, 1, 0}};
  });
}

// [2x, 3y] in tiles of a grid, then only one dim cut.
Scenario gatherOverOneAxis(int64_t nx, int64_t ny, bool overY) {
  int64_t team = overY ? ny : nx;
  return {[=](Fusion& f) {
            DeviceMesh mesh = DeviceMesh::create({{"x", nx}, {"y", ny}});
            TensorView* x = input(f, {2 * nx, 3 * ny}, mesh);
            shardBlock(x, 1, mesh, "y");
            shardBlock(x, 0, mesh, "x");
            TensorView* y = output(f, set(x), mesh);
            overY ? shardBlock(y, 0, mesh, "x") : shardBlock(y, 1, mesh, "y");
          },
          {random({2 * nx, 3 * ny}, 1)},
          {among(team, "all-gather"), -1, (team - 1) * 6 * 4}};
}

TEST_F(Layouts, GatherOverOneAxisOfAGrid) {
  for (bool overY : {true, false}) {
    for (size_t grid : {0, 1}) {  // 1 x n, then 2 x n/2
      runScenario([=](int64_t n) {
        auto [nx, ny] = gridsOf(n).at(n == 1 ? 0 : grid);
        return gatherOverOneAxis(nx, ny, overY);
      });
    }
  }
}

TEST_F(Layouts, GatherOverOneAxisOfAGridOfEight) {
  for (bool overY : {true, false}) {
    for (auto [nx, ny] : gridsOf(8)) {
      runScenarioOn(8, gatherOverOneAxis(nx, ny, overY));
    }
  }
}

TEST_F(Layouts, ReshapesOnlyRegroupDigits) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {3, 2 * n * 6}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      TensorView* heads = reshape(x, {3, 2 * n, 6});
                      f.addOutput(heads);
                      f.addOutput(reshape(neg(heads), {3, 2 * n * 6}));
                    },
                    {random({3, 2 * n * 6}, 1)},
                    {{}, -1, 0}};
  });
}

class Models : public ScenarioTest {
 protected:
  static constexpr int64_t kRows = 12, kFeatures = 8;

  // A column-parallel and a row-parallel linear around a gelu, with 4 hidden features a rank; only the weights are annotated.
  static TensorView* mlp(Fusion& f, TensorView* x, const DeviceMesh& mesh) {
    int64_t hidden = 4 * mesh.numDevices();
    TensorView* w0 = input(f, {hidden, kFeatures}, mesh);
    TensorView* w1 = input(f, {kFeatures, hidden}, mesh);
    shardBlock(w0, 0, mesh, "x");
    shardBlock(w1, 1, mesh, "x");
    return linear(tanh_gelu(linear(x, w0)), w1);
  }
  static std::vector<Argument> mlpInputs(int64_t n) {
    return {random({kRows, kFeatures}, 1), random({4 * n, kFeatures}, 2), random({kFeatures, 4 * n}, 3)};
  }
  static Expected oneAllReduce(int64_t n, int64_t size = 4) {
    return {among(n, "all-reduce"), -1, allReduceBytes(kRows * kFeatures, n, size)};
  }
  static TensorView* unannotated(Fusion& f) {
    TensorView* x = makeContigConcreteTensor({kRows, kFeatures});
    f.addInput(x);
    return x;
  }
};

TEST_F(Models, ResidualMlpTakesItsShardingFromTheWeights) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      TensorView* x = unannotated(f);
                      f.addOutput(add(x, mlp(f, x, axisX(n))));
                    },
                    mlpInputs(n), oneAllReduce(n)};
  });
}

// An intermediate op reads the unannotated input; the numbers that choose have no tensor input and take their mesh from their use.
TEST_F(Models, ResidualMlpWithDropout) {
  for (bool hidden : {false, true}) {
    runScenario([=](int64_t n) {
      return Scenario{[=](Fusion& f) {
                        DeviceMesh mesh = axisX(n);
                        TensorView* x = mul(unannotated(f), 0.5);
                        auto dropout = [](TensorView* t, int64_t columns) {
                          TensorView* kept = lt(rand({kRows, columns}, DataType::Float, 7, 1), 0.75);
                          return mul(where(kept, t, 0.0), 1 / 0.75);
                        };
                        if (hidden) {
                          TensorView* w0 = input(f, {4 * n, kFeatures}, mesh);
                          TensorView* w1 = input(f, {kFeatures, 4 * n}, mesh);
                          shardBlock(w0, 0, mesh, "x");
                          shardBlock(w1, 1, mesh, "x");
                          f.addOutput(add(x, linear(dropout(tanh_gelu(linear(x, w0)), 4 * n), w1)));
                        } else {
                          f.addOutput(add(x, dropout(mlp(f, x, mesh), kFeatures)));
                        }
                      },
                      mlpInputs(n), oneAllReduce(n)};
    });
  }
}

// With biases, and everything of one type.
Scenario loopSplitMlp(int64_t n, int64_t rows, int64_t features, DataType type, Expected expected,
                      PassSettings passes) {
  return {[=](Fusion& f) {
            DeviceMesh mesh = axisX(n);
            TensorView* x = input(f, {rows, features}, mesh, type);
            TensorView* w0 = input(f, {4 * n, features}, mesh, type);
            TensorView* b0 = input(f, {4 * n}, mesh, type);
            TensorView* w1 = input(f, {features, 4 * n}, mesh, type);
            TensorView* b1 = input(f, {features}, mesh, type);
            shardBlock(w0, 0, mesh, "x");
            shardBlock(b0, 0, mesh, "x");
            shardBlock(w1, 1, mesh, "x");
            f.addOutput(linear(castOp(type, tanh_gelu(linear(x, w0, b0))), w1, b1));
          },
          {random({rows, features}, 1, type), random({4 * n, features}, 2, type), random({4 * n}, 3, type),
           random({features, 4 * n}, 4, type), random({features}, 5, type)},
          std::move(expected),
          {},
          passes};
}

TEST_F(Models, LoopSplitMlpInEveryTypeTakesOneAllReduce) {
  for (DataType type : {DataType::Float, DataType::Half, DataType::BFloat16}) {
    runScenario(
        [=](int64_t n) { return loopSplitMlp(n, kRows, kFeatures, type, oneAllReduce(n, dataTypeSize(type)), {}); });
  }
}

TEST_F(Models, LoopSplitMlpReducesInFloatWhereThatIsAskedFor) {
  for (DataType type : {DataType::Float, DataType::Half, DataType::BFloat16}) {
    runScenario([=](int64_t n) {
      return loopSplitMlp(n, kRows, kFeatures, type, oneAllReduce(n, 4), {.reduceInFloat = true});
    });
  }
}

// 1000.3 on one rank and -1000 on the other: 16 bits do not hold the first.
TEST_F(Models, SumsReducedInFloatAreMoreExact) {
  for (DataType type : {DataType::Half, DataType::BFloat16}) {
    const auto errorOf = [type](Communicator& comm, bool inFloat) {
      auto fusion = std::make_unique<Fusion>();
      FusionGuard guard(fusion.get());
      const DeviceMesh mesh = axisX(2);
      TensorView* x = input(*fusion, {1, 4}, mesh, type);
      TensorView* w = input(*fusion, {1, 4}, mesh, type);
      shardBlock(x, 1, mesh, "x");
      shardBlock(w, 1, mesh, "x");
      fusion->addOutput(linear(x, w));
      const Tensor ones = Tensor::full({1, 2}, type, 1);
      const Tensor part =
          Tensor::of(comm.rank() == 0 ? std::vector<double>{1000, 0.3} : std::vector<double>{-1000, 0}, {1, 2}, type);
      FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .passes = {.reduceInFloat = inFloat}});
      return std::abs(cache.runFusionWithInputs({ones, part})[0].at({0, 0}) - 0.3);
    };
    runOnRanks(2, [&](Communicator& comm) {
      EXPECT_GT(errorOf(comm, false), 0.1);
      EXPECT_LT(errorOf(comm, true), 0.001);
    });
  }
}

// One cast is read by two ops, and the second linear is in float: its partial sums are, too.
TEST_F(Models, CastsOfAnMlpNeedNoCommunication) {
  for (DataType type : {DataType::Half, DataType::BFloat16}) {
    runScenario([=](int64_t n) {
      return Scenario{
          [=](Fusion& f) {
            DeviceMesh mesh = axisX(n);
            TensorView* x = input(f, {kRows, kFeatures}, mesh, type);
            TensorView* w0 = input(f, {4 * n, kFeatures}, mesh, type);
            TensorView* w1 = input(f, {kFeatures, 4 * n}, mesh);
            shardBlock(w0, 0, mesh, "x");
            shardBlock(w1, 1, mesh, "x");
            TensorView* wide = castOp(DataType::Float, linear(x, w0));
            TensorView* gated = mul(wide, sigmoid(wide));
            f.addOutput(castOp(type, add(linear(gated, w1), castOp(DataType::Float, x))));
            f.addOutput(castOp(type, gated));
          },
          {random({kRows, kFeatures}, 1, type), random({4 * n, kFeatures}, 2, type), random({kFeatures, 4 * n}, 3)},
          oneAllReduce(n, 4)};
    });
  }
}

// The bias of the row-parallel linear is whole on every rank. It is large: were it added by each, no bound would hold it.
TEST_F(Models, BiasOfARowParallelLinearIsAddedOnce) {
  runScenario([](int64_t n) {
    return Scenario{
        [=](Fusion& f) {
          DeviceMesh mesh = axisX(n);
          TensorView* x = input(f, {kRows, 4 * n}, mesh);
          TensorView* w = input(f, {kFeatures, 4 * n}, mesh);
          TensorView* b = input(f, {kFeatures}, mesh);
          shardBlock(x, 1, mesh, "x");
          shardBlock(w, 1, mesh, "x");
          f.addOutput(linear(x, w, b));
        },
        {random({kRows, 4 * n}, 1), random({kFeatures, 4 * n}, 2), Tensor::full({kFeatures}, DataType::Float, 1000)},
        oneAllReduce(n)};
  });
}

// A matrix times a vector, with a bias of one element
TEST_F(Models, BiasOfASumWithoutColumnsIsAddedOnce) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {kRows, 4 * n}, mesh);
                      TensorView* w = input(f, {4 * n}, mesh);
                      TensorView* b = input(f, {}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      shardBlock(w, 0, mesh, "x");
                      f.addOutput(linear(x, w, b));
                    },
                    {random({kRows, 4 * n}, 1), random({4 * n}, 2), Tensor::full({}, DataType::Float, 1000)},
                    {among(n, "all-reduce"), -1, allReduceBytes(kRows, n, 4)}};
  });
}

// The bias lies where the result needs it and is added after the sum, so it keeps no axis from it.
TEST_F(Models, ABiasCutAsTheResultLeavesTheSumToTheRanks) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {4 * n, 8 * n}, mesh);
                      TensorView* w = input(f, {2 * n, 8 * n}, mesh);
                      TensorView* b = input(f, {2 * n}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      shardBlock(w, 1, mesh, "x");
                      shardBlock(b, 0, mesh, "x");
                      shardBlock(output(f, linear(x, w, b), mesh), 1, mesh, "x");
                    },
                    {random({4 * n, 8 * n}, 1), random({2 * n, 8 * n}, 2), random({2 * n}, 3)},
                    {among(n, "reduce-scatter"), -1, 8 * n * (n - 1) * 4}};
  });
}

// Weight and bias are cut by columns of the result, which is to be cut by rows, and x by the summed dim. Moving the weight to that dim is cheaper than
// moving x to rows and gathering the weight.
TEST_F(Models, AWeightMovesToTheSummedDimWhereThatIsCheaper) {
  runScenario([](int64_t n) {
    std::vector<std::string> steps;
    for (const char* step : {"all-to-all", "reduce-scatter", "all-gather"}) {
      append(steps, among(n, step));
    }
    return Scenario{[=](Fusion& f) {
                      const DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {4 * n, 8 * n}, mesh);
                      TensorView* w = input(f, {2 * n, 8 * n}, mesh);
                      TensorView* b = input(f, {2 * n}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      shardBlock(w, 0, mesh, "x");
                      shardBlock(b, 0, mesh, "x");
                      shardBlock(output(f, linear(x, w, b), mesh), 0, mesh, "x");
                    },
                    {random({4 * n, 8 * n}, 1), random({2 * n, 8 * n}, 2), random({2 * n}, 3)},
                    {steps, -1, (16 + 8 * n + 2) * (n - 1) * 4}};
  });
}

// Tokens [3n] into a table of 4 rows a rank, cut over the vocabulary.
Scenario embedding(int64_t n, bool scattered, bool nan) {
  constexpr int64_t kWidth = 6;
  Tensor index = Tensor::empty({3 * n}, DataType::Int);
  Tensor table = random({4 * n, kWidth}, 2);
  for (int64_t i = 0; i < 3 * n; i++) {
    // No token is of the first or the last row of a shard: those are what an index held in range would read.
    int64_t shard = (i * 5 + 1) % n;
    index.set(std::vector<int64_t>{i}, static_cast<double>(nan ? 4 * shard + 1 + i % 2 : (7 * i + 3) % (4 * n)));
  }
  for (int64_t row = 0; nan && row < 4 * n; row++) {
    for (int64_t k = 0; k < kWidth && (row % 4 == 0 || row % 4 == 3); k++) {
      table.set(std::vector<int64_t>{row, k}, std::numeric_limits<double>::quiet_NaN());
    }
  }
  return {[=](Fusion& f) {
            DeviceMesh mesh = axisX(n);
            TensorView* tokens = input(f, {3 * n}, mesh, DataType::Int);
            TensorView* rows = input(f, {4 * n, kWidth}, mesh);
            shardBlock(rows, 0, mesh, "x");
            TensorView* y = output(f, embedding_fwd(tokens, rows), mesh);
            if (scattered) {
              shardBlock(y, 0, mesh, "x");
            }
          },
          {index, table},
          {among(n, scattered ? "reduce-scatter" : "all-reduce"), 1,
           scattered ? 3 * kWidth * (n - 1) * 4 : allReduceBytes(3 * n * kWidth, n)}};
}

TEST_F(Models, EmbeddingOfAShardedVocabularyIsMasked) {
  for (bool scattered : {false, true}) {
    runScenario([=](int64_t n) { return embedding(n, scattered, false); });
  }
}

TEST_F(Models, EmbeddingRowsOfOtherShardsContributeZeroNotNan) {
  for (bool scattered : {false, true}) {
    runScenario([=](int64_t n) { return embedding(n, scattered, true); });
  }
}

TEST_F(Models, DropoutDrawsTheSameNumbersOnEveryMesh) {
  runScenario([](int64_t n) {
    return Scenario{[=](Fusion& f) {
                      DeviceMesh mesh = axisX(n);
                      TensorView* x = input(f, {8, 4 * n}, mesh);
                      shardBlock(x, 1, mesh, "x");
                      f.addOutput(where(lt(rand_like(x), 0.5), x, 0.0));
                    },
                    {random({8, 4 * n}, 1)},
                    {{}, 1, 0}};
  });
}

}  // namespace

}  // namespace meshfuse
