// Programs whose tensors are on several meshes, or that send tiles directly: what each rank receives, and that the others do nothing.
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/scenario.h"

namespace meshfuse {

namespace {

DeviceMesh onX(std::vector<int64_t> ids) {
  const auto n = std::ssize(ids);
  return DeviceMesh::create({{"x", n}}, std::move(ids));
}

// `tv` on a mesh, one dim in blocks over an axis; -1: whole.
TensorView* place(TensorView* tv, const DeviceMesh& mesh, int dim = -1, std::string_view axis = "x") {
  tv->setDeviceMesh(mesh);
  if (dim >= 0) {
    shardBlock(tv, dim, mesh, axis);
  }
  return tv;
}

TensorView* source(Fusion& f, std::vector<int64_t> shape, const DeviceMesh& mesh, int dim = -1) {
  TensorView* tv = input(f, std::move(shape), mesh);
  return place(tv, mesh, dim);
}

const Expected kNothing{{}, 0, 0};

Expected oneTransfer(int64_t ranks, int64_t elements, int64_t kernels = 1) {
  return {{fmt::format("transfer/{}", ranks)}, kernels, elements * 4};
}

class TwoMeshes : public ScenarioTest {};

// 2 x on [0, 1], then y + 1 on [2, 3], both in two parts.
TEST_F(TwoMeshes, StagesWithEqualPartsSendThemInPairs) {
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* x = source(f, {4, 6}, onX({0, 1}), 0);
                      TensorView* y = place(set(mul(x, 2.0)), onX({2, 3}), 0);
                      f.addOutput(add(y, 1.0));
                    },
                    {random({4, 6}, 1)},
                    {},
                    {oneTransfer(2, 0), oneTransfer(2, 0), oneTransfer(2, 12), oneTransfer(2, 12)}});
}

// One row of what [0, 1, 2, 3] hold is broadcast among them; [4, 5] get it from there, and take no part in the broadcast.
TEST_F(TwoMeshes, ARowIsBroadcastOnItsMeshAlone) {
  const Expected gets{{"broadcast/4"}, -1, 16};
  const Expected passesOn{{"broadcast/4", "transfer/2"}, -1, 16};
  const Expected holds{{"broadcast/4", "transfer/2"}, -1, 0};
  const Expected away{{"transfer/2"}, -1, 16};
  runScenarioOn(6, {[](Fusion& f) {
                      TensorView* x = source(f, {8, 4}, onX({0, 1, 2, 3}), 0);
                      TensorView* row = place(slice(x, {2, 0}, {3, 4}), onX({0, 1, 2, 3}));
                      f.addOutput(row);
                      f.addOutput(place(neg(row), onX({4, 5})));
                    },
                    {random({8, 4}, 1)},
                    {},
                    {passesOn, holds, gets, gets, away, away}});
}

TEST_F(TwoMeshes, ALargerStageOnAnotherDimTakesTileIntersections) {
  std::vector<Expected> ranks{oneTransfer(5, 0, 0), oneTransfer(5, 0, 0)};
  for (int r = 2; r < 6; r++) {
    ranks.push_back(oneTransfer(3, 8));
  }
  runScenarioOn(6, {[](Fusion& f) {
                      TensorView* x = source(f, {4, 8}, onX({0, 1}), 0);
                      f.addOutput(add(place(set(x), onX({2, 3, 4, 5}), 1), 1.0));
                    },
                    {random({4, 8}, 1)},
                    {},
                    ranks});
}

// Rank 1 is in both: the second part on the first mesh, the first on the other. Each stage cuts its own part of a whole tensor.
TEST_F(TwoMeshes, ARankStandsAtTwoPlacesOfOneAxisName) {
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* w = makeContigConcreteTensor({4, 6});
                      TensorView* x = input(f, {4, 6}, onX({0, 1}));
                      place(x, onX({0, 1}), 0);
                      f.addInput(w);
                      TensorView* y = place(set(mul(x, w)), onX({1, 2}), 0);
                      f.addOutput(place(add(y, w), onX({1, 2}), 0));
                    },
                    {random({4, 6}, 1), random({4, 6}, 2)},
                    {},
                    {oneTransfer(2, 0), oneTransfer(3, 12, 2), oneTransfer(2, 12), kNothing}});
}

TEST_F(TwoMeshes, AColumnOfAGridGathersItsRows) {
  runScenarioOn(4, {[](Fusion& f) {
                      const DeviceMesh grid = DeviceMesh::create({{"x", 2}, {"y", 2}});
                      const DeviceMesh column = DeviceMesh::create({{"x", 2}, {"y", 1}}, {0, 2});
                      TensorView* x = input(f, {4, 6}, grid);
                      shardBlock(x, 0, grid, "x");
                      x->outer_split(2, 2);
                      x->axis(2)->parallelize(grid.axis("y"));
                      f.addOutput(place(set(x), column, 0));
                    },
                    {random({4, 6}, 1)},
                    {},
                    {oneTransfer(2, 6, 0), oneTransfer(2, 0, 0), oneTransfer(2, 6, 0), oneTransfer(2, 0, 0)}});
}

// Three readers of one rank: each fetches a third, then they share.
TEST_F(TwoMeshes, WhatAllReadersWantCrossesOnce) {
  const Expected reader{{"transfer/2", "all-gather/3"}, 1, (6 + 12) * 4};
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* x = source(f, {3, 6}, onX({0}));
                      f.addOutput(add(place(set(x), onX({1, 2, 3})), 1.0));
                    },
                    {random({3, 6}, 1)},
                    {},
                    {oneTransfer(4, 0, 0), reader, reader, reader}});
}

// Every row crosses once: each reader fetches the half of one sender, then they share. Ranks beyond the fourth do nothing.
Scenario halvesThatAreSpread(int ranks) {
  const Expected reader{{"transfer/2", "all-gather/2"}, 1, (12 + 12) * 4};
  std::vector<Expected> byRank{oneTransfer(2, 0, 0), oneTransfer(2, 0, 0), reader, reader};
  byRank.resize(ranks, kNothing);
  return {[](Fusion& f) {
            TensorView* x = source(f, {4, 6}, onX({0, 1}), 0);
            f.addOutput(add(place(set(x), onX({2, 3})), 1.0));
          },
          {random({4, 6}, 1)},
          {},
          byRank};
}

TEST_F(TwoMeshes, HalvesCrossOnceAndAreGatheredWhereTheyAreRead) { runScenarioOn(4, halvesThatAreSpread(4)); }

TEST_F(TwoMeshes, HalvesThatAreSpreadAreNotSentToOthers) { runScenarioOn(5, halvesThatAreSpread(5)); }

// The sum is complete before it leaves.
TEST_F(TwoMeshes, SumsAreCombinedWhereTheyAre) {
  const Expected first{{"all-reduce/2", "transfer/2"}, 1, 5 * 4};
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* x = source(f, {4, 5}, onX({0, 1}), 0);
                      TensorView* s = sum(x, {0});
                      f.addOutput(neg(place(set(s), onX({2, 3}))));
                    },
                    {random({4, 5}, 1)},
                    {},
                    {first, first, oneTransfer(2, 5), oneTransfer(2, 5)}});
}

// Both ranks take part in the sum, though only one of them sends it.
TEST_F(TwoMeshes, ASumThatOneRankSends) {
  const auto first = [](const Expected& after) {
    Expected e{{"all-reduce/2"}, 1, 5 * 4};
    e.communication.insert(e.communication.end(), after.communication.begin(), after.communication.end());
    return e;
  };
  runScenarioOn(3, {[](Fusion& f) {
                      TensorView* x = source(f, {4, 5}, onX({0, 1}), 0);
                      f.addOutput(neg(place(set(sum(x, {0})), onX({2}))));
                    },
                    {random({4, 5}, 1)},
                    {},
                    {first(oneTransfer(2, 0)), first(kNothing), oneTransfer(2, 5)}});
}

// Weights live with their stage; each stage is tensor parallel on its own. The sum of the first is scattered only, as its readers are
// elsewhere: each of them is sent a half, and they share.
TEST_F(TwoMeshes, PipelineOfTensorParallelLayers) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kWidth = 8;
  const Expected first{{"reduce-scatter/2", "transfer/2"}, -1, kRows * kWidth / 2 * 4};
  const Expected second{{"transfer/2", "all-gather/2", "all-reduce/2"}, -1, 2 * kRows * kWidth * 4};
  runScenarioOn(4, {[=](Fusion& f) {
                      TensorView* t = source(f, {kRows, kWidth}, onX({0, 1}));
                      for (const DeviceMesh& mesh : {onX({0, 1}), onX({2, 3})}) {
                        TensorView* up = source(f, {16, kWidth}, mesh, 0);
                        TensorView* down = source(f, {kWidth, 16}, mesh, 1);
                        t = linear(tanh(linear(place(set(t), mesh), up)), down);
                      }
                      f.addOutput(t);
                    },
                    {random({kRows, kWidth}, 1), random({16, kWidth}, 2), random({kWidth, 16}, 3),
                     random({16, kWidth}, 4), random({kWidth, 16}, 5)},
                    {},
                    {first, first, second, second}});
}

// A result without dims: ranks that it is not on get one of no elements, no zero.
TEST_F(TwoMeshes, AScalarIsOnItsMeshOnly) {
  runScenarioOn(3, {[](Fusion& f) {
                      TensorView* x = source(f, {4, 6}, onX({0, 2}), 0);
                      f.addOutput(sum(place(set(x), onX({2})), {0, 1}));
                    },
                    {random({4, 6}, 1)},
                    {},
                    {oneTransfer(2, 0, 0), kNothing, oneTransfer(2, 12)}});
}

TEST_F(TwoMeshes, WithoutTheFirstRankThenTheWorld) {
  const auto of = [](int64_t ranks, int64_t elements) { return oneTransfer(ranks, elements); };
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* x = source(f, {12, 2}, onX({1, 2, 3}), 0);
                      f.addOutput(add(place(set(x), onX({0, 1, 2, 3}), 0), 1.0));
                    },
                    {random({12, 2}, 1)},
                    {},
                    {of(2, 6), of(3, 4), of(3, 2), of(2, 0)}});
}

TEST_F(TwoMeshes, ReversedRanksAndTransposedGrids) {
  runScenarioOn(4, {[](Fusion& f) {
                      const DeviceMesh grid = DeviceMesh::create({{"x", 2}, {"y", 2}});
                      const DeviceMesh turned = DeviceMesh::create({{"x", 2}, {"y", 2}}, {0, 2, 1, 3});
                      const DeviceMesh line = DeviceMesh::create({{"x", 4}, {"y", 1}}, {3, 2, 1, 0});
                      TensorView* x = input(f, {8, 6}, grid);
                      shardBlock(x, 0, grid, "x");
                      TensorView* a = place(set(x), turned, 0);
                      TensorView* b = place(set(neg(a)), line, 0);
                      TensorView* c = place(set(x), turned, 0, "y");
                      f.addOutput(add(b, 1.0));
                      f.addOutput(c);  // every rank has that part already
                    },
                    {random({8, 6}, 1)},
                    {},
                    {{{"transfer/2", "transfer/3"}, -1, 12 * 4},
                     {{"transfer/2", "transfer/2"}, -1, 24 * 4},
                     {{"transfer/3"}, -1, 24 * 4},
                     {{"transfer/2"}, -1, 12 * 4}}});
}

// A mesh of one rank holds what it reads; its readers are the others.
TEST_F(TwoMeshes, OfOneRankThatHoldsItAlready) {
  runScenarioOn(2, {[](Fusion& f) {
                      TensorView* x = source(f, {4, 6}, onX({0, 1}));
                      f.addOutput(add(place(set(x), onX({1})), 1.0));
                    },
                    {random({4, 6}, 1)},
                    {},
                    {kNothing, {{}, 1, 0}}});
}

TEST_F(TwoMeshes, UnevenParts) {
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* x = source(f, {5, 3}, onX({0, 1}), 0);
                      f.addOutput(add(place(set(x), onX({1, 2, 3}), 0), 1.0));
                    },
                    {random({5, 3}, 1)},
                    {},
                    {oneTransfer(3, 0, 0), oneTransfer(4, 6), oneTransfer(3, 6), oneTransfer(2, 3)}});
}

// Sizes that are symbols: ranks outside a mesh know them from what they are given instead of a part.
TEST_F(TwoMeshes, SizesThatOnlySomeRanksSee) {
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* x = makeContigTensor(2);
                      f.addInput(x);
                      place(x, onX({0, 1}), 0);
                      f.addOutput(add(place(set(x), onX({2, 3}), 0), 1.0));
                    },
                    {random({4, 6}, 1)},
                    {},
                    {oneTransfer(2, 0, 0), oneTransfer(2, 0, 0), oneTransfer(2, 12), oneTransfer(2, 12)}});
}

TEST_F(TwoMeshes, ARankOutsideWithoutSizesIsRefused) {
  runOnRanks(2, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigTensor(2);
    fusion->addInput(x);
    place(x, onX({0}));
    fusion->addOutput(place(set(x), onX({1})));
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    const Tensor mine = comm.rank() == 0 ? random({4, 6}, 1) : Tensor::empty({0, 0}, DataType::Float);
    std::string refusal;
    try {
      (void)cache.runFusionWithInputs({mine});
      FAIL() << "rank " << comm.rank() << " ran";
    } catch (const Error& e) {
      refusal = e.what();
      EXPECT_NE(refusal.find("withGlobalShape"), std::string::npos) << refusal;
    }
    for (const std::string& text : comm.exchange(refusal)) {
      EXPECT_EQ(text, refusal);
    }
  });
}

class DirectTransfers : public ScenarioTest {};

TEST_F(DirectTransfers, BetweenAxesThatDoNotNest) {
  // 12 rows in halves over x to thirds over y: ranks lack none, 2, all 4, all 4, 2 and none of them
  runScenarioOn(6, {[](Fusion& f) {
                      const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 3}});
                      TensorView* x = input(f, {12, 2}, mesh);
                      shardBlock(x, 0, mesh, "x");
                      f.addOutput(place(set(x), mesh, 0, "y"));
                    },
                    {random({12, 2}, 1)},
                    {},
                    {oneTransfer(2, 0, 0), oneTransfer(2, 4, 0), oneTransfer(2, 8, 0), oneTransfer(2, 8, 0),
                     oneTransfer(2, 4, 0), oneTransfer(2, 0, 0)}});
}

}  // namespace

}  // namespace meshfuse
