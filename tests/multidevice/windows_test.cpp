// Windows along sharded dims: the halo exchange moves only the missing elements.
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/scenario.h"

namespace meshfuse {

namespace {

const DeviceMesh kLine = DeviceMesh::create({{"x", 4}});

TensorView* rows(Fusion& f, std::vector<int64_t> shape) {
  TensorView* tv = input(f, std::move(shape), kLine);
  shardBlock(tv, 0, kLine, "x");
  return tv;
}

// An output in blocks of its first dim.
void inRows(Fusion& f, TensorView* tv) {
  f.addOutput(tv);
  tv->setDeviceMesh(kLine);
  shardBlock(tv, 0, kLine, "x");
}

Expected steps(std::vector<std::string> communication, int64_t elements) {
  return {std::move(communication), -1, elements * 4};
}

Expected transfers(std::vector<int64_t> teams, int64_t elements) {
  std::vector<std::string> communication;
  for (int64_t n : teams) {
    communication.push_back(fmt::format("transfer/{}", n));
  }
  return steps(std::move(communication), elements);
}

class Windows : public ScenarioTest {};

TEST_F(Windows, OneRowIsBroadcastByTheRankThatHoldsIt) {
  for (int64_t row : {0, 5, -1}) {
    const int64_t holder = (row + 8) % 8 / 2;
    std::vector<Expected> ranks(4, steps({"broadcast/4"}, 3));
    ranks[holder].bytes = 0;
    runScenarioOn(4, {[=](Fusion& f) {
                        TensorView* y = select(rows(f, {8, 3}), 0, row);
                        f.addOutput(y);
                        y->setDeviceMesh(kLine);
                      },
                      {random({8, 3}, 1)},
                      {},
                      ranks});
  }
}

// The number of the row is an argument: each call decides which rank sends. -3 counts from the end.
TEST_F(Windows, ARowOfARunTimeNumberIsBroadcast) {
  for (int64_t row : {0, 5, -3}) {
    runScenarioOn(4, {[](Fusion& f) {
                        TensorView* x = rows(f, {8, 4});
                        Val* i = f.inputScalar(DataType::Int);
                        f.addInput(i);
                        TensorView* y = neg(select(x, 0, i));
                        f.addOutput(y);
                        y->setDeviceMesh(kLine);
                      },
                      {random({8, 4}, 1), row},
                      steps({"broadcast/4"}, 3)});
  }
}

TEST_F(Windows, OneRowWhereItIsTakesNothing) {
  const DeviceMesh third = DeviceMesh::create({{"x", 1}}, {2});
  runScenarioOn(4, {[=](Fusion& f) {
                      TensorView* y = slice(rows(f, {8, 3}), {5, 0}, {6, 3});
                      f.addOutput(y);
                      y->setDeviceMesh(third);
                    },
                    {random({8, 3}, 1)},
                    {},
                    {{{}, 0, 0}, {{}, 0, 0}, {{}, -1, 0}, {{}, 0, 0}}});
}

// The slice is free: it is taken where its reader is.
TEST_F(Windows, ARowThatOneRankReadsIsTakenThere) {
  const DeviceMesh third = DeviceMesh::create({{"x", 1}}, {2});
  runScenarioOn(4, {[=](Fusion& f) {
                      TensorView* y = neg(select(rows(f, {8, 3}), 0, 5));
                      f.addOutput(y);
                      y->setDeviceMesh(third);
                    },
                    {random({8, 3}, 1)},
                    {},
                    {{{}, 0, 0}, {{}, 0, 0}, {{}, -1, 0}, {{}, 0, 0}}});
}

// What the slice leaves is x shifted by one: one row of the right neighbour.
TEST_F(Windows, ASliceOfAPadIsOneWindow) {
  runScenarioOn(4, {[](Fusion& f) {
                      inRows(f, slice(pad(rows(f, {16, 2}), {0, 0, 1, 1}), {2, 0}, {18, 2}));
                    },
                    {random({16, 2}, 1)},
                    {},
                    {transfers({2}, 2), transfers({3}, 2), transfers({3}, 2), transfers({2}, 0)}});
}

// 16 rows in blocks of four; the slice of rows 1 to 12 is in blocks of three.
TEST_F(Windows, ASliceMovesWhatCrossesABoundary) {
  runScenarioOn(4, {[](Fusion& f) {
                      inRows(f, slice(rows(f, {16, 2}), {1, 0}, {13, 2}));
                    },
                    {random({16, 2}, 1)},
                    {},
                    {transfers({}, 0), transfers({2}, 0), transfers({3}, 2), transfers({2}, 4)}});
}

TEST_F(Windows, APadMovesWhatCrossesABoundary) {
  runScenarioOn(4, {[](Fusion& f) {
                      inRows(f, pad(rows(f, {16, 2}), {0, 0, 2, 2}));
                    },
                    {random({16, 2}, 1)},
                    {},
                    {transfers({2}, 0), transfers({2}, 2), transfers({2}, 2), transfers({2}, 0)}});
}

TEST_F(Windows, AConcatenationMovesTheTilesOfEachOperand) {
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* a = rows(f, {4, 2});
                      TensorView* b = rows(f, {12, 2});
                      inRows(f, cat({a, b}, 0));
                    },
                    {random({4, 2}, 1), random({12, 2}, 2)},
                    {},
                    {transfers({4, 2}, 6), transfers({2, 3}, 6), transfers({2, 3}, 4), transfers({2, 2}, 2)}});
}

// Operands of one size lie side by side on every rank: one exchange moves all of them.
TEST_F(Windows, AConcatenationOfEqualOperandsIsOneExchange) {
  const auto exchange = [](int64_t elements) { return steps({"all-to-all-v/4"}, elements); };
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* a = rows(f, {8, 2});
                      TensorView* b = rows(f, {8, 2});
                      inRows(f, cat({a, b}, 0));
                    },
                    {random({8, 2}, 1), random({8, 2}, 2)},
                    {},
                    {exchange(4), exchange(8), exchange(8), exchange(4)}});
}

// y[i] = x[i - 1] + x[i] + x[i + 1], zeros outside: one exchange, a row to each neighbour.
TEST_F(Windows, NeighboursExchangeOneRowEachWay) {
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* x = rows(f, {16, 2});
                      inRows(f, add(add(pad(x, {0, 0, 1, -1}), x), pad(x, {0, 0, -1, 1})));
                    },
                    {random({16, 2}, 1)},
                    {},
                    {transfers({2}, 2), transfers({3}, 4), transfers({3}, 4), transfers({2}, 2)}});
}

// Only rows that are there: 14 of 16, so that the last rank has two and needs none of another. Two rows from the right are all that the
// slices read there, the first of them both.
TEST_F(Windows, ThreeSlicesAndTwoAdds) {
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* x = rows(f, {16, 2});
                      auto window = [&](int64_t first) { return slice(x, {first, 0}, {first + 14, 2}); };
                      inRows(f, add(add(window(0), window(1)), window(2)));
                    },
                    {random({16, 2}, 1)},
                    {},
                    {transfers({2}, 4), transfers({3}, 4), transfers({3}, 4), transfers({2}, 0)}});
}

TEST_F(Windows, BetweenMeshes) {
  const DeviceMesh pair = DeviceMesh::create({{"x", 2}}, {1, 2});
  runScenarioOn(4, {[=](Fusion& f) {
                      TensorView* y = slice(rows(f, {8, 2}), {1, 0}, {7, 2});
                      f.addOutput(y);
                      y->setDeviceMesh(pair);
                      shardBlock(y, 0, pair, "x");
                    },
                    {random({8, 2}, 1)},
                    {},
                    {transfers({2}, 0), transfers({2}, 2), transfers({2}, 2), transfers({2}, 0)}});
}

// Where ranks want all of it anyway, one collective is cheaper than many messages.
TEST_F(Windows, AWindowThatAllWantIsGathered) {
  std::vector<Expected> ranks(4, steps({"all-gather-v/4"}, 11 * 2));
  ranks[3].bytes = 12 * 2 * 4;  // which has three of the fifteen
  runScenarioOn(4, {[](Fusion& f) {
                      TensorView* y = slice(rows(f, {16, 2}), {0, 0}, {15, 2});
                      f.addOutput(y);
                      y->setDeviceMesh(kLine);
                    },
                    {random({16, 2}, 1)},
                    {},
                    ranks});
}

}  // namespace

}  // namespace meshfuse
