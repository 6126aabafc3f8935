// Parts of different sizes, some of them empty, end to end: every program on loopback ranks against the reference on whole tensors.
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <cstdint>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "host/program.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/scenario_parts.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

struct Uneven {
  std::function<void(Fusion&)> build;
  std::vector<Argument> inputs;
  std::vector<std::string> communication;  // kinds in order of steps in which all ranks take part
  int64_t bytes = 0;                       // received by all ranks together, but for all-reduces
  int64_t transfers = 0;                   // steps of all ranks that send to some ranks or receive from some
};

void runRank(Communicator& comm, const Uneven& program) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    program.build(*fusion);
  }
  const std::vector<BoundedTensor> whole = interpretWithBounds(*fusion, program.inputs, {.partials = comm.size()});
  const std::vector<Argument> local = shardsOfRank(*fusion, program.inputs, comm);
  FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Always});
  for (int64_t call = 0; call < 2; call++) {
    comm.resetCounters();
    const std::vector<Tensor> got = cache.runFusionWithInputs(local);
    const std::shared_ptr<const Fusion> planned = cache.planned();
    for (size_t i = 0; i < got.size(); i++) {
      const TensorView* tv = planned->outputs()[i]->asTensor();
      const BoundedTensor part{shardTensor(whole[i].value, tv, comm.rank()),
                               shardTensor(whole[i].error, tv, comm.rank()), whole[i].uncertain};
      EXPECT_EQ(compare(got[i], part).value_or(""), "")
          << "output " << i << " on rank " << comm.rank() << " of " << comm.size() << "\n"
          << cache.planText() << cache.hostProgram()->toString();
    }
    int64_t counted = 0;
    for (const TransferCounters::Entry& e : comm.counters().of) {
      counted += e.bytesReceived;
    }
    counted -= comm.counters()[Collective::AllReduce].bytesReceived;  // the plan has the mean of the team
    std::vector<std::string> kinds;
    int64_t plannedBytes = 0;
    for (const CommRecord& c : cache.commSteps()) {
      kinds.push_back(c.kind);
      plannedBytes += c.kind == "all-reduce" ? 0 : c.bytesReceived;
    }
    const auto transfers = static_cast<int64_t>(std::erase(kinds, "transfer"));
    EXPECT_EQ(kinds, program.communication) << cache.planText();
    EXPECT_EQ(sumOverRanks(comm, transfers), program.transfers) << cache.planText();
    const int64_t total = sumOverRanks(comm, plannedBytes);
    const int64_t arrived = sumOverRanks(comm, counted);
    if (call > 0) {
      EXPECT_EQ(arrived, total) << cache.hostProgram()->toString();
    }
    EXPECT_EQ(total, program.bytes) << cache.planText();
  }
}

void run(int64_t ranks, const Uneven& program) {
  try {
    runLoopback(ranks, [&](Communicator& comm) { runRank(comm, program); },
                {.deadline = std::chrono::milliseconds(60'000)});
  } catch (const Error& e) {
    ADD_FAILURE() << ranks << " ranks: " << e.what();
  }
}

void block(TensorView* tv, int64_t dim, const DeviceMesh& mesh, const std::string& axis = "x") {
  tv->setDeviceMesh(mesh);
  shardBlock(tv, dim, mesh, axis);
}

// (extent, ranks)
using Cut = std::pair<int64_t, int64_t>;
const std::vector<Cut> kCuts = {{6, 4}, {5, 4}, {5, 3}, {7, 2}, {10, 4}, {1, 8},
                                {3, 8}, {1, 2}, {0, 2}, {0, 4}, {9, 4}};

TEST(Uneven, PointwiseThenASumTakesOneAllReduce) {
  for (const auto& [n, ranks] : kCuts) {
    run(ranks, {[&](Fusion& f) {
                  TensorView* x = input(f, {n});
                  block(x, 0, axisX(ranks));
                  TensorView* y = add(x, 1.0);
                  f.addOutput(y);
                  output(f, sum(y, {0}), axisX(ranks));
                },
                {random({n})},
                {"all-reduce"}});
  }
}

TEST(Uneven, ReductionsOfEmptyPartsAreIdentities) {
  for (const auto& [n, ranks] : kCuts) {
    if (n == 0) {
      continue;
    }
    for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max}) {
      for (DataType type : {DataType::Float, DataType::Int}) {
        run(ranks, {[&](Fusion& f) {
                      TensorView* x = input(f, {n, 3}, type);
                      block(x, 0, axisX(ranks));
                      output(f, reductionOp(op, x, {0}), axisX(ranks));
                    },
                    {randomTensor({n, 3}, type, 1, -9, -1)},
                    {"all-reduce"}});
      }
    }
  }
}

TEST(Uneven, MeanDividesByTheGlobalCount) {
  for (const auto& [n, ranks] : kCuts) {
    if (n == 0) {
      continue;
    }
    run(ranks, {[&](Fusion& f) {
                  TensorView* x = input(f, {2, n});
                  block(x, 1, axisX(ranks));
                  output(f, mean(x, {1}), axisX(ranks));
                },
                {random({2, n})},
                {"all-reduce"}});
  }
}

TEST(Uneven, GathersCountWhatEachRankHolds) {
  for (const auto& [n, ranks] : kCuts) {
    std::vector<std::string> step;
    if (n > 0) {
      step.emplace_back(n % ranks == 0 ? "all-gather" : "all-gather-v");
    }
    run(ranks, {[&](Fusion& f) {
                  TensorView* x = input(f, {n, 3});
                  block(x, 0, axisX(ranks));
                  output(f, set(x), axisX(ranks));
                },
                {random({n, 3})},
                step,
                (ranks - 1) * n * 3 * 4});
    run(ranks, {[&](Fusion& f) {
                  TensorView* x = input(f, {2, n, 3});
                  block(x, 1, axisX(ranks));
                  output(f, set(x), axisX(ranks));
                },
                {random({2, n, 3})},
                step,
                (ranks - 1) * 2 * n * 3 * 4});
  }
}

TEST(Uneven, WhatIsWholeIsCutInPlace) {
  for (const auto& [n, ranks] : kCuts) {
    run(ranks, {[&](Fusion& f) {
                  TensorView* x = input(f, {2, n});
                  x->setDeviceMesh(axisX(ranks));
                  TensorView* y = set(x);
                  block(y, 1, axisX(ranks));
                  f.addOutput(y);
                },
                {random({2, n})},
                {},
                0});
  }
}

// Elements that change ranks: those of other blocks.
int64_t exchanged(int64_t rows, int64_t columns, int64_t ranks) {
  const auto part = [&](int64_t n, int64_t k) {
    const int64_t c = (n + ranks - 1) / ranks;
    return std::clamp<int64_t>(n - k * c, 0, c);
  };
  int64_t elements = 0;
  for (int64_t k = 0; k < ranks; k++) {
    elements += (rows - part(rows, k)) * part(columns, k);
  }
  return elements;
}

TEST(Uneven, MovingAShardToAnotherDimIsAnAllToAll) {
  for (const auto& [n, ranks] : kCuts) {
    if (n < 2) {
      continue;
    }
    for (int64_t m : {7, 8}) {
      run(ranks, {[&](Fusion& f) {
                    TensorView* x = input(f, {n, m});
                    block(x, 0, axisX(ranks));
                    TensorView* y = set(x);
                    block(y, 1, axisX(ranks));
                    f.addOutput(y);
                  },
                  {random({n, m})},
                  {"all-to-all-v"},
                  exchanged(n, m, ranks) * 4});
    }
  }
}

TEST(Uneven, BlockToCyclicSendsWhatIsLacked) {
  run(2, {[&](Fusion& f) {
            TensorView* x = input(f, {6});
            block(x, 0, axisX(2));
            TensorView* y = set(x);
            y->setDeviceMesh(axisX(2));
            y->inner_split(0, 2)->axis(1)->parallelize(ParallelType::DIDx);
            f.addOutput(y);
          },
          {random({6})},
          {"all-to-all-v"},
          2 * 4});
  // rows that a rank has in turn and not in its block
  for (const auto& [n, lacked] : std::vector<std::pair<int64_t, int64_t>>{{5, 4}, {10, 7}, {13, 10}}) {
    run(4, {[&](Fusion& f) {
              TensorView* x = input(f, {n, 2});
              block(x, 0, axisX(4));
              TensorView* y = set(x);
              y->setDeviceMesh(axisX(4));
              y->inner_split(0, 4)->axis(1)->parallelize(ParallelType::DIDx);
              f.addOutput(y);
              output(f, sum(y, {0, 1}), axisX(4));
              output(f, set(y), axisX(4));
            },
            {random({n, 2})},
            {"all-to-all-v", "all-gather-v", "all-gather-v"},  // of y for its sum, and of y
            (lacked + 2 * 3 * n) * 2 * 4});
  }
}

TEST(Uneven, SumsToUnevenPartsAreReduceScatters) {
  for (const auto& [n, ranks] : kCuts) {
    if (n < 2 || n % ranks == 0) {
      continue;
    }
    const bool few = n < ranks;  // then the whole sum costs less
    for (DataType type : {DataType::Float, DataType::BFloat16}) {
      run(ranks, {[&](Fusion& f) {
                    TensorView* x = input(f, {5, n}, type);
                    block(x, 0, axisX(ranks));
                    TensorView* y = sum(x, {0});
                    block(y, 1, axisX(ranks));  // dim 0 is the reduced one
                    f.addOutput(y);
                  },
                  {random({5, n}, 1, type)},
                  {few ? "all-reduce" : "reduce-scatter-v"},
                  few ? 0 : (ranks - 1) * n * 4});
    }
  }
}

TEST(Uneven, MatmulsWithEveryDimCut) {
  for (const auto& [n, ranks] : std::vector<Cut>{{10, 4}, {6, 4}, {5, 3}, {3, 8}, {1, 2}}) {
    const DeviceMesh mesh = axisX(ranks);
    run(ranks, {[&](Fusion& f) {  // K
                  TensorView* a = input(f, {6, n});
                  TensorView* b = input(f, {n, 7});
                  block(a, 1, mesh);
                  block(b, 0, mesh);
                  output(f, matmul(a, b), mesh);
                },
                {random({6, n}), random({n, 7}, 2)},
                {"all-reduce"}});
    run(ranks, {[&](Fusion& f) {  // M
                  TensorView* a = input(f, {n, 6});
                  TensorView* b = input(f, {6, 7});
                  block(a, 0, mesh);
                  b->setDeviceMesh(mesh);
                  f.addOutput(matmul(a, b));
                },
                {random({n, 6}), random({6, 7}, 2)},
                {}});
    run(ranks, {[&](Fusion& f) {  // N, by a linear with a bias, then K of the next
                  TensorView* a = input(f, {4, 6});
                  TensorView* w = input(f, {n, 6});
                  TensorView* bias = input(f, {n});
                  TensorView* v = input(f, {5, n});
                  TensorView* last = input(f, {5});
                  a->setDeviceMesh(mesh);
                  last->setDeviceMesh(mesh);
                  block(w, 0, mesh);
                  block(bias, 0, mesh);
                  block(v, 1, mesh);
                  output(f, linear(relu(linear(a, w, bias)), v, last), mesh);
                },
                {random({4, 6}), random({n, 6}, 2), random({n}, 3), random({5, n}, 4), random({5}, 5)},
                {"all-reduce"}});
  }
}

TEST(Uneven, NormsAndSoftmaxAcrossTheCutDim) {
  for (const auto& [n, ranks] : std::vector<Cut>{{10, 4}, {6, 4}, {5, 3}, {3, 8}, {1, 2}}) {
    for (int64_t dim : {0, 1}) {
      std::vector<std::string> sums(dim == 1 ? 2 : 0,
                                    "all-reduce");  // the largest and the sum, the sum and the variance
      run(ranks, {[&](Fusion& f) {
                    TensorView* x = input(f, {n, n});
                    block(x, dim, axisX(ranks));
                    TensorView* y = softmax(x, 1);
                    block(y, dim, axisX(ranks));
                    f.addOutput(y);
                  },
                  {random({n, n})},
                  sums});
      // each rank's count, mean and variance of a row, where all have some of it
      const bool combines = dim == 1 && n >= ranks;
      if (combines) {
        sums = {"all-gather"};
      }
      run(ranks, {[&](Fusion& f) {
                    TensorView* x = input(f, {n, n});
                    TensorView* w = input(f, {n});
                    block(x, dim, axisX(ranks));
                    TensorView* y = layer_norm(x, {n}, w, nullptr, 1e-5).output;
                    f.addOutput(y);
                  },
                  {random({n, n}), random({n}, 2)},
                  sums,
                  combines ? ranks * (ranks - 1) * n * 3 * 4 : 0});
    }
  }
}

TEST(Uneven, WindowsAlongTheCutDim) {
  // Of the second program: rows that a rank's part of the padded tensor reads and its part of the slice does not hold, for the slice at 0
  // and for the one at 1; the steps that move them.
  struct Row {
    int64_t n, ranks, lackedAt0, lackedAt1;
    std::vector<std::string> communication;
    int64_t transfers;
  };
  for (const auto& [n, ranks, lackedAt0, lackedAt1, communication, transfers] :
       std::vector<Row>{{10, 4, 0, 3, {}, 3},
                        {9, 4, 5, 2, {"all-to-all-v"}, 3},
                        {5, 3, 0, 1, {}, 2},
                        {5, 8, 0, 3, {}, 4},
                        {8, 4, 4, 1, {"all-to-all-v"}, 2}}) {
    run(ranks, {[&](Fusion& f) {
                  TensorView* x = input(f, {n, 2});
                  block(x, 0, axisX(ranks));
                  f.addOutput(slice(x, std::vector<int64_t>{0, 0}, {n - 1, 2}));
                  f.addOutput(slice(x, std::vector<int64_t>{2, 0}, {n - 1, 2}));
                  f.addOutput(slice(x, std::vector<int64_t>{1, 0}, {n, 2}, {2, 1}));
                  f.addOutput(pad(x, std::vector<int64_t>{0, 0, 0, 1}));
                  f.addOutput(pad(x, std::vector<int64_t>{1, 0, 2, 3}));
                  f.addOutput(cat({x, add(x, 1.0)}, 0));
                  f.addOutput(cat({x, add(x, 1.0)}, 1));
                },
                {random({n, 2})},
                {n % ranks == 0 ? "all-gather" : "all-gather-v"},  // of x, for all
                (ranks - 1) * n * 2 * 4});
    run(ranks, {[&](Fusion& f) {  // the result is cut, the operand too or not
                  TensorView* x = input(f, {n, 2});
                  x->setDeviceMesh(axisX(ranks));
                  for (int64_t start : {0, 1}) {
                    TensorView* y = slice(x, std::vector<int64_t>{start, 0}, {n - 1, 2});
                    block(y, 0, axisX(ranks));
                    f.addOutput(y);
                    TensorView* z = pad(add(y, 1.0), std::vector<int64_t>{0, 0, start, 2});
                    block(z, 0, axisX(ranks));
                    f.addOutput(z);
                  }
                },
                {random({n, 2})},
                communication,
                (lackedAt0 + lackedAt1) * 2 * 4,
                transfers});
  }
}

TEST(Uneven, ReshapesPermutesAndBroadcasts) {
  for (const auto& [n, ranks] : std::vector<Cut>{{10, 4}, {6, 4}, {5, 3}, {3, 8}, {1, 2}}) {
    run(ranks, {[&](Fusion& f) {
                  TensorView* x = input(f, {n, 6});
                  TensorView* b = input(f, {n});
                  block(x, 0, axisX(ranks));
                  block(b, 0, axisX(ranks));
                  f.addOutput(reshape(x, {n, 3, 2}));
                  f.addOutput(reshape(x, {n * 6}));
                  f.addOutput(transpose(x, 0, 1));
                  f.addOutput(add(x, broadcast(b, {false, true})));
                  f.addOutput(add(transpose(x, 0, 1), b));
                  f.addOutput(castOp(DataType::BFloat16, x));
                },
                {random({n, 6}), random({n}, 2)},
                {"all-gather-v"},  // of x, for reshape(x, {n * 6})
                (ranks - 1) * n * 6 * 4});
  }
}

TEST(Uneven, IndexedDims) {
  for (const auto& [n, ranks] : std::vector<Cut>{{10, 4}, {5, 3}, {3, 8}, {6, 4}}) {
    run(ranks, {[&](Fusion& f) {
                  TensorView* table = input(f, {n, 3});
                  TensorView* index = input(f, {5}, DataType::Int);
                  block(table, 0, axisX(ranks));
                  index->setDeviceMesh(axisX(ranks));
                  output(f, embedding_fwd(index, table), axisX(ranks));
                  output(f, index_select(table, 0, index), axisX(ranks));
                },
                {random({n, 3}), randomTensor({5}, DataType::Int, 2, 0, static_cast<double>(n))},
                {"all-reduce"}});
  }
}

// A rank without rows takes part in what moves the indices and the table.
TEST(Uneven, RowsOfATableByIndicesThatMove) {
  for (const auto& [n, ranks] : std::vector<Cut>{{5, 4}, {1, 2}, {6, 4}}) {
    run(ranks, {[&](Fusion& f) {
                  TensorView* table = input(f, {n, 3});
                  TensorView* index = input(f, {8}, DataType::Int);
                  block(table, 0, axisX(ranks));
                  block(index, 0, axisX(ranks));
                  TensorView* all = set(index);
                  all->setDeviceMesh(axisX(ranks));
                  output(f, embedding_fwd(all, table), axisX(ranks));
                  output(f, index_select(table, 0, all), axisX(ranks));
                },
                {random({n, 3}), randomTensor({8}, DataType::Int, 2, 0, static_cast<double>(n))},
                {"all-gather", "all-reduce"},
                (ranks - 1) * 8 * 8});
  }
}

// The one element of a dim may be cut: one rank has it.
TEST(Uneven, ADimOfOneThatIsCutIsBroadcast) {
  for (int64_t ranks : {2, 3}) {
    run(ranks, {[&](Fusion& f) {
                  TensorView* a = input(f, {2, 6});
                  TensorView* b = input(f, {6, 1});
                  block(b, 1, axisX(ranks));
                  TensorView* product = matmul(a, b);
                  f.addOutput(sub(product, broadcast(max(product, {1}), {false, true})));
                },
                {random({2, 6}), random({6, 1}, 2)},
                {"all-reduce"}});
  }
}

// One axis in parts over two dims, evenly and not: tiles come together to the whole they were cut from.
TEST(Uneven, OneAxisOverTwoDimsOfAWhole) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{6, 4}, {7, 5}, {1, 3}}) {
    const DeviceMesh mesh = axisX(4);
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor(shape);
    x->setDeviceMesh(mesh);
    x->outer_split(0, 2);
    x->outer_split(2, 2);
    x->reorder({{1, 2}, {2, 1}});
    x->merge(0);
    x->axis(0)->parallelize(ParallelType::DIDx);
    const Tensor global = random(shape);
    std::vector<Tensor> parts;
    for (int64_t rank = 0; rank < 4; rank++) {
      parts.push_back(shardTensor(global, x, rank));
    }
    EXPECT_EQ(unshardTensor(parts, x).toVector(), global.toVector());
  }
}

TEST(Uneven, PositionsAreGlobal) {
  for (const auto& [n, ranks] : std::vector<Cut>{{10, 4}, {5, 3}, {3, 8}, {6, 4}}) {
    run(ranks, {[&](Fusion& f) {
                  TensorView* x = input(f, {n, 3});
                  block(x, 0, axisX(ranks));
                  f.addOutput(add(x, broadcast(castOp(DataType::Float, iota(n)), {false, true})));
                  f.addOutput(add(x, rand({n, 3}, DataType::Float)));
                },
                {random({n, 3})},
                {}});
  }
}

TEST(Uneven, GridsOfTwoAxes) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 3}});
  // For a whole, each rank lacks all but its own part. Elements that a rank's part lacks: of `swapped`, and of y.
  struct Row {
    std::vector<int64_t> shape;
    int64_t lackedOfSwapped;
    std::vector<std::string> communication;  // of the second program
    int64_t lackedOfY;
  };
  for (const auto& [shape, lackedOfSwapped, communication, lackedOfY] :
       std::vector<Row>{{{5, 7}, 25, {"all-reduce", "all-gather-v", "all-to-all-v", "all-gather-v"}, 57},
                        {{1, 4}, 2, {"all-reduce", "all-gather-v", "all-to-all-v", "all-gather-v"}, 7},
                        {{6, 2}, 9, {"all-reduce", "all-gather", "all-to-all-v", "all-gather-v"}, 20},
                        {{3, 1}, 2, {"all-reduce", "all-gather-v", "all-gather-v"}, 15}}) {
    const int64_t gathered = 5 * shape[0] * shape[1];
    run(6, {[&](Fusion& f) {
              TensorView* x = input(f, shape);
              block(x, 0, mesh, "x");
              TensorView* at = x;
              at->outer_split(2, 3);
              at->axis(2)->parallelize(mesh.axis("y"));
              output(f, set(x), mesh);
              output(f, sum(x, {0, 1}), mesh);
              f.addOutput(sum(x, {0}));
              TensorView* swapped = set(x);
              block(swapped, 0, mesh, "y");
              swapped->outer_split(2, 2);
              swapped->axis(2)->parallelize(mesh.axis("x"));
              f.addOutput(swapped);
            },
            {random(shape)},
            {"all-reduce", "all-reduce", "all-gather-v", "all-to-all-v"},
            (gathered + lackedOfSwapped) * 4});
    run(6, {[&](Fusion& f) {  // both axes on one dim, padded once
              TensorView* x = input(f, shape);
              x->setDeviceMesh(mesh);
              x->outer_split(0, 6);
              x->outer_split(0, 2);
              x->axis(0)->parallelize(mesh.axis("x"));
              x->axis(1)->parallelize(mesh.axis("y"));
              output(f, set(x), mesh);
              output(f, sum(x, {0}), mesh);
              TensorView* y = set(x);
              block(y, 1, mesh, "y");
              f.addOutput(y);
            },
            {random(shape)},
            communication,
            (gathered + lackedOfY) * 4});
  }
}

TEST(Uneven, AnMlpWithAnOddVocabulary) {
  const int64_t vocabulary = 101;
  run(8, {[&](Fusion& f) {
            const DeviceMesh mesh = axisX(8);
            TensorView* tokens = input(f, {6}, DataType::Int);
            TensorView* table = input(f, {vocabulary, 12});
            TensorView* w = input(f, {vocabulary, 12});
            tokens->setDeviceMesh(mesh);
            block(table, 0, mesh);
            block(w, 0, mesh);
            TensorView* logits = linear(embedding_fwd(tokens, table), w);
            TensorView* p = log_softmax(logits, 1);
            f.addOutput(p);
            output(f, mean(p, {0, 1}), mesh);
          },
          {randomTensor({6}, DataType::Int, 1, 0, 101), random({vocabulary, 12}, 2), random({vocabulary, 12}, 3)},
          // the rows of the tokens, the largest and the sum of a row of logits, the mean
          {"all-reduce", "all-reduce", "all-reduce", "all-reduce"}});
}

// -- sizes known at run time --------------------------------------------------------------------------------------------------------

TensorView* symbolic(Fusion& f, int64_t dims) {
  TensorView* tv = makeContigTensor(f, dims, DataType::Float);
  f.addInput(tv);
  return tv;
}

TEST(Uneven, TheWholeIsKnownFromItsParts) {
  const auto build = [](Fusion& f) {
    TensorView* x = symbolic(f, 2);
    block(x, 0, axisX(4));
    f.addOutput(add(x, 1.0));
    output(f, mean(x, {0, 1}), axisX(4));
  };
  run(4, {build, {random({6, 3})}, {"all-reduce"}});  // shardTensor names the whole
  runLoopback(4, [&](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      build(*fusion);
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    // results go in again, and other wholes with parts of the same size
    for (int64_t n : {5, 6, 8, 5}) {
      const int64_t mine = std::clamp<int64_t>(n - 2 * comm.rank(), 0, 2);
      Tensor x = Tensor::full({mine, 1}, DataType::Float, 1.0).withGlobalShape({n, 1});
      for (int64_t call = 0; call < 3; call++) {
        std::vector<Tensor> got = cache.runFusionWithInputs({x});
        EXPECT_EQ(got[1].item(), 1.0 + call) << n;
        x = got[0];
      }
    }
  });
}

TEST(Uneven, TheWholeIsKnownFromAnotherInput) {
  runLoopback(4, [&](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = symbolic(*fusion, 1);
      TensorView* y =
          TensorViewBuilder().dtype(DataType::Float).shape(std::vector<Val*>{size(x, 0)}).contiguity(true).build();
      fusion->addInput(y);
      y->setDeviceMesh(axisX(4));
      block(x, 0, axisX(4));
      fusion->addOutput(mul(x, y));
      output(*fusion, sum(x, {0}), axisX(4));
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    const Tensor x = random({6});
    const Tensor mine =
        x.slice(0, std::min<int64_t>(6, 2 * comm.rank()), std::min<int64_t>(6, 2 * comm.rank() + 2)).contiguous();
    const std::vector<Tensor> got = cache.runFusionWithInputs({mine, Tensor::full({6}, DataType::Float, 2.0)});
    EXPECT_EQ(got[0].size(0), mine.size(0));
    const std::vector<double> all = x.toVector();
    EXPECT_NEAR(got[1].item(), std::accumulate(all.begin(), all.end(), 0.0), 1e-5);
  });
}

std::string refusalOnRanks(int64_t ranks, const std::function<void(Communicator&)>& body) {
  try {
    runLoopback(ranks, body);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Uneven, AWholeThatNothingTellsIsRefused) {
  const std::string text = refusalOnRanks(4, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = symbolic(*fusion, 1);
      block(x, 0, axisX(4));
      output(*fusion, sum(x, {0}), axisX(4));
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    const int64_t mine = std::clamp<int64_t>(6 - 2 * comm.rank(), 0, 2);
    EXPECT_THROW((void)cache.runFusionWithInputs({Tensor::zeros({mine}, DataType::Float)}), UserError);
    (void)cache.runFusionWithInputs({Tensor::zeros({mine}, DataType::Float)});
  });
  EXPECT_NE(text.find("Tensor::withGlobalShape"), std::string::npos) << text;
}

TEST(Uneven, APartOfAWrongSizeIsRefusedOnAllRanks) {
  const std::string text = refusalOnRanks(4, [](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = input(*fusion, {6});
      block(x, 0, axisX(4));
      output(*fusion, sum(x, {0}), axisX(4));
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    const int64_t mine = std::clamp<int64_t>(6 - 2 * comm.rank(), 0, 2);
    (void)cache.runFusionWithInputs({Tensor::zeros({comm.rank() == 3 ? 1 : mine}, DataType::Float)});
  });
  EXPECT_NE(text.find("has local sizes [0] on this rank, got [1]"), std::string::npos) << text;
}

}  // namespace
}  // namespace meshfuse
