// Dims in parts of given sizes: right wherever such a tensor goes, with the communication that it takes, or a clear error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "inputs.h"
#include "ir/text.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/on_ranks.h"

namespace meshfuse {

namespace {

std::string refusal(const std::function<void()>& what) {
  try {
    what();
  } catch (const UserError& e) {
    return e.what();
  }
  return "none";
}

using Sizes = std::vector<IntExpr>;

TensorView* inParts(TensorView* x, int dim, const Sizes& sizes) {
  x->setDeviceMesh(DeviceMesh::createForNumDevices(std::ssize(sizes)));
  x->partition(dim, sizes);
  x->axis(dim)->parallelize(ParallelType::DIDx);
  return x;
}

// Of 14 rows: on four ranks 2, 3, 4 and 5; on two of them one may have nothing.
Sizes ofFourteen(int64_t ranks) { return ranks == 4 ? Sizes{2, 3, 4, 5} : Sizes{14, 0}; }
Sizes turned(Sizes sizes) {
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

TEST(PartsOfGivenSizes, Elementwise) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = inParts(input(f, {14, 6}), 0, ofFourteen(ranks));
        TensorView* y = inParts(input(f, {14, 6}), 0, turned(ofFourteen(ranks)));
        TensorView* z = input(f, {6});
        f.addOutput(mul(tanh(x), x));
        f.addOutput(add(mul(x, y), z));
        TensorView* other = add(x, 1.0);
        f.addOutput(other);
        cut(other, 0, ranks);
        TensorView* turnedOver = exp(y);
        f.addOutput(turnedOver);
        inParts(turnedOver, 0, ofFourteen(ranks));
      },
      {{{random({14, 6}), random({14, 6}, 2), random({6}, 3)}}});
}

TEST(PartsOfGivenSizes, Reductions) {
  for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Int}) {
    expectAgreesOnRanks(
        [&](Fusion& f, int64_t ranks) {
          TensorView* x = inParts(input(f, {14, 6}, type), 0, ofFourteen(ranks));
          f.addOutput(sum(x, {0}));
          f.addOutput(sum(x, {1}));
          f.addOutput(max(x, {0, 1}));
          f.addOutput(min(x, {0}, true));
          if (type == DataType::Float) {
            f.addOutput(mean(x, {0}));
            f.addOutput(variance(x, {0}, 1, true));
            f.addOutput(softmax(x, 0));
            f.addOutput(softmax(x, 1));
          }
        },
        {{{random({14, 6}, 1, type)}}});
  }
}

TEST(PartsOfGivenSizes, Products) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = inParts(input(f, {14, 6}), 0, ofFourteen(ranks));
        TensorView* w = input(f, {6, 5});
        TensorView* dy = inParts(input(f, {14, 5}), 0, ofFourteen(ranks));
        f.addOutput(matmul(x, w));
        f.addOutput(matmul(transpose(x, 0, 1), dy));  // contracted over the parts
        f.addOutput(matmul(transpose(x, 0, 1), inParts(neg(dy), 0, turned(ofFourteen(ranks)))));
        f.addOutput(matmul(dy, transpose(w, 0, 1)));
      },
      {{{random({14, 6}), random({6, 5}, 2), random({14, 5}, 3)}}});
}

TEST(PartsOfGivenSizes, Shapes) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = inParts(input(f, {14, 6}), 0, ofFourteen(ranks));
        f.addOutput(tanh(reshape(x, {84})));       // merged with the next dim
        f.addOutput(tanh(reshape(x, {2, 7, 6})));  // split
        f.addOutput(reshape(reshape(x, {14, 2, 3}), {14, 6}));
        f.addOutput(neg(transpose(x, 0, 1)));
        f.addOutput(neg(slice(x, {3, 1}, {12, 5})));
        f.addOutput(neg(slice(x, {0, 1}, {14, 5}, {2, 2})));
        f.addOutput(pad(x, {1, 2, 3, 1}));
        f.addOutput(cat({x, neg(x)}, 0));
        f.addOutput(cat({x, neg(x)}, 1));
        f.addOutput(add(broadcast(sum(x, {1}), {false, true}), x));
        f.addOutput(select(x, 0, 6));
        f.addOutput(squeeze(slice(x, {5, 0}, {6, 6}), 0));
      },
      {{{random({14, 6})}}});
}

TEST(PartsOfGivenSizes, IndicesAndOrders) {
  const Tensor rows = Tensor::of({13, 0, 5, 5, 2, 7}, {6}, DataType::Int);
  const Tensor ids = Tensor::of({0, 13, 1, 12, 2, 11, 3, 10, 4, 9, 5, 8, 6, 7}, {14}, DataType::Int);
  std::vector<RankCall> calls;
  for (int64_t row = 0; row < 14; row++) {
    calls.push_back({{random({14, 6}), rows, ids, row}});
  }
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = inParts(input(f, {14, 6}), 0, ofFourteen(ranks));
        TensorView* rows = input(f, {6}, DataType::Int);
        TensorView* ids = inParts(input(f, {14}, DataType::Int), 0, turned(ofFourteen(ranks)));
        f.addOutput(index_select(x, 0, rows));
        f.addOutput(embedding_fwd(ids, x));  // a table in parts, read by numbers in others
        Val* row = IrBuilder::create<Val>(DataType::Int);
        f.addInput(row);
        f.addOutput(select(x, 0, row));
        f.addOutput(cumsum(x, 0));
        f.addOutput(argmax(x, {0}));
        f.addOutput(mul(x, inParts(full({14, 6}, 2.0, DataType::Float), 0, ofFourteen(ranks))));
        f.addOutput(inParts(iota(14), 0, ofFourteen(ranks)));
        f.addOutput(rand_like(x, 3, 0));
      },
      calls);
}

// Attention over tokens in parts: nothing of it depends on who has which.
TEST(PartsOfGivenSizes, ALayer) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = inParts(input(f, {14, 8}), 0, ofFourteen(ranks));
        TensorView* w1 = cut(input(f, {8, 16}), 1, ranks);
        TensorView* w2 = cut(input(f, {16, 8}), 0, ranks);
        TensorView* y = add(x, matmul(gelu(matmul(x, w1)), w2));
        f.addOutput(y);
        f.addOutput(sum(mul(y, y), {0, 1}));
      },
      {{{random({14, 8}), random({8, 16}, 2), random({16, 8}, 3)}}});
}

// The longest part is as long as a block would be.
TEST(PartsOfGivenSizes, AlmostBlocks) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = inParts(input(f, {7, 6}), 0, ranks == 4 ? Sizes{1, 2, 2, 2} : Sizes{3, 4});
        f.addOutput(variance(x, {0}, 1, true));
        f.addOutput(variance(x, {0, 1}, 0, false));
        f.addOutput(softmax(x, 0));
      },
      {{{random({7, 6})}}});
}

// Several parts of a rank are one; loops of parts that nobody owns.
TEST(PartsOfGivenSizes, OuterHalfOfThemOwned) {
  std::vector<RankCall> calls;
  for (int64_t row = 0; row < 14; row++) {
    calls.push_back({{random({14, 6}), row}});
  }
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = input(f, {14, 6});
        Val* row = IrBuilder::create<Val>(DataType::Int);
        f.addInput(row);
        x->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
        x->partition(0, {1, 1, 2, 1, 3, 2, 4, 0});
        x->outer_split(0, ranks);
        x->axis(0)->parallelize(ParallelType::DIDx);
        f.addOutput(select(x, 0, row));
        f.addOutput(sum(x, {0}));
        f.addOutput(tanh(x));
      },
      calls);
}

TEST(PartsOfGivenSizes, OfOneElementOrNone) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        const auto only = [&](int64_t at, int64_t rows) {
          Sizes sizes(ranks, 0);
          sizes[at] = rows;
          return sizes;
        };
        TensorView* one = inParts(input(f, {1, 6}), 0, only(ranks - 1, 1));
        TensorView* none = inParts(input(f, {0, 6}), 0, only(0, 0));
        TensorView* all = inParts(input(f, {5, 6}), 0, only(1, 5));
        for (TensorView* x : {one, none, all}) {
          TensorView* whole = tanh(x);
          f.addOutput(whole);
          whole->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
          f.addOutput(sum(x, {0}));
          TensorView* columns = exp(x);
          f.addOutput(columns);
          cut(columns, 1, ranks);
          f.addOutput(pad(x, {1, 1, 1, 1}));
        }
      },
      {{{random({1, 6}), random({0, 6}), random({5, 6}, 2)}}});
}

std::vector<std::string> communicationsOf(const FusionExecutorCache& cache) {
  std::vector<std::string> out;
  for (const Expr* e : cache.planned()->exprs()) {
    if (e->kind() == ExprKind::Redistribute) {
      for (const CommStep& step : e->attributes().plan.value()) {
        out.push_back(step.toString());
      }
    }
  }
  return out;
}

// What each op costs, by the steps that are planned for it.
TEST(PartsOfGivenSizes, CommunicationIsWhatItTakes) {
  using Steps = std::vector<std::string>;
  const std::vector<std::pair<std::function<TensorView*(TensorView*)>, Steps>> cases = {
      {[](TensorView* x) { return tanh(x); }, {}},
      {[](TensorView* x) { return sum(x, {1}); }, {}},
      {[](TensorView* x) { return sum(x, {0}); }, {"all_reduce(x)"}},
      {[](TensorView* x) { return cut(tanh(x), 1, 4); }, {"all_to_all(x)"}},
      {[](TensorView* x) { return cut(tanh(x), 0, 4); }, {"transfer(x)"}},
      {[](TensorView* x) {
         return inParts(tanh(x), 0, {5, 4, 3, 2});
       },
       {"transfer(x)"}},
      {[](TensorView* x) {
         return inParts(tanh(x), 0, {2, 3, 4, 5});
       },
       {}},
  };
  for (size_t k = 0; k < cases.size(); k++) {
    runLoopback(4, [&](Communicator& comm) {
      auto fusion = std::make_unique<Fusion>();
      FusionGuard guard(fusion.get());
      TensorView* x = inParts(input(*fusion, {14, 8}), 0, {2, 3, 4, 5});
      fusion->addOutput(cases[k].first(x));
      FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .threads = 1});
      const Tensor whole = random({14, 8});
      const Tensor mine = shardTensor(whole, cache.fusion().inputs()[0]->asTensor(), comm.rank());
      EXPECT_EQ(mine.size(0), comm.rank() + 2);
      (void)cache.runFusionWithInputs({mine});
      EXPECT_EQ(communicationsOf(cache), cases[k].second) << "case " << k;
    });
  }
}

// Sizes that only a call knows: experts' rows.
TEST(PartsOfGivenSizes, MayBeInputs) {
  runLoopback(2, [&](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    Val* first = IrBuilder::create<Val>(DataType::Int);
    Val* second = IrBuilder::create<Val>(DataType::Int);
    fusion->addInput(first);
    fusion->addInput(second);
    TensorView* x = makeContigTensor(2);
    fusion->addInput(x);
    inParts(x, 0, {first->intExpr(), second->intExpr()});
    fusion->addOutput(sum(x, {0}));
    fusion->addOutput(mul(x, x));
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .threads = 1});
    for (const auto& [a, b] : std::vector<std::pair<int64_t, int64_t>>{{2, 5}, {5, 2}, {0, 7}, {2, 5}, {9, 1}}) {
      const Tensor whole = random({a + b, 4}, static_cast<uint64_t>(a));
      const int64_t begin = comm.rank() == 0 ? 0 : a;
      const int64_t end = comm.rank() == 0 ? a : a + b;
      std::vector<double> values = whole.toVector();
      const std::vector<double> mine(values.begin() + begin * 4, values.begin() + end * 4);
      const std::vector<Tensor> got = cache.runFusionWithInputs({a, b, Tensor::of(mine, {end - begin, 4})});
      for (int64_t c = 0; c < 4; c++) {
        double expected = 0;
        for (int64_t r = 0; r < a + b; r++) {
          expected += values[r * 4 + c];
        }
        EXPECT_NEAR(got[0].toVector()[c], expected, 1e-5);
      }
      EXPECT_EQ(got[1].size(0), end - begin);
    }
  });
}

// An expression of an input, and what it leaves of the dim: together they are a constant.
TEST(PartsOfGivenSizes, MayBeExpressions) {
  runLoopback(2, [&](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    Val* n = IrBuilder::create<Val>(DataType::Int);
    fusion->addInput(n);
    TensorView* x = inParts(input(*fusion, {14, 4}), 0, {n->intExpr(), 14 - n->intExpr()});
    fusion->addOutput(sum(x, {0}));
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .threads = 1});
    for (int64_t rows : {3, 14, 0, 7, 3}) {
      const int64_t mine = comm.rank() == 0 ? rows : 14 - rows;
      const Tensor ones = Tensor::full({mine, 4}, DataType::Float, 1);
      EXPECT_EQ(cache.runFusionWithInputs({rows, ones})[0].toVector(), std::vector<double>(4, 14));
    }
  });
}

// The rows of two experts, as the elements of an Int tensor.
std::unique_ptr<Fusion> rowsOfExperts() {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* counts = makeContigConcreteTensor({2}, DataType::Int);
  TensorView* x = makeContigTensor(2);
  fusion->addInput(counts);
  fusion->addInput(x);
  x->setDeviceMesh(DeviceMesh::createForNumDevices(2));
  x->partition(0, counts);
  x->axis(0)->parallelize(ParallelType::DIDx);
  fusion->addOutput(cut(tanh(x), 1, 2));
  fusion->addOutput(add(sum(x, {0}), castOp(DataType::Float, sum(counts, {0}))));
  return fusion;
}

TEST(PartsOfGivenSizes, MayBeTheElementsOfAnInput) {
  runLoopback(2, [&](Communicator& comm) {
    FusionExecutorCache cache(rowsOfExperts(), {.communicator = &comm, .threads = 1});
    for (const auto& [a, b] :
         std::vector<std::pair<int64_t, int64_t>>{{2, 5}, {5, 2}, {0, 7}, {2, 5}, {9, 1}, {2, 5}}) {
      const std::vector<double> values = random({a + b, 4}, static_cast<uint64_t>(a)).toVector();
      const int64_t rows = comm.rank() == 0 ? a : b;
      const auto first = values.begin() + (comm.rank() == 0 ? 0 : a * 4);
      const Tensor counts = Tensor::of({static_cast<double>(a), static_cast<double>(b)}, {2}, DataType::Int);
      const std::vector<Tensor> got =
          cache.runFusionWithInputs({counts, Tensor::of(std::vector<double>(first, first + rows * 4), {rows, 4})});
      ASSERT_TRUE(std::ranges::equal(got[0].sizes(), std::vector<int64_t>{a + b, 2}));
      for (int64_t r = 0; r < a + b; r++) {
        for (int64_t c = 0; c < 2; c++) {
          EXPECT_NEAR(got[0].toVector()[r * 2 + c], std::tanh(values[r * 4 + 2 * comm.rank() + c]), 1e-5);
        }
      }
      for (int64_t c = 0; c < 4; c++) {
        double expected = static_cast<double>(a + b);
        for (int64_t r = 0; r < a + b; r++) {
          expected += values[r * 4 + c];
        }
        EXPECT_NEAR(got[1].toVector()[c], expected, 1e-5);
      }
    }
    if (comm.rank() == 0) {
      const std::unique_ptr<Fusion> fusion = rowsOfExperts();
      EXPECT_NE(fusion->toString().find("partition(0, [T0.0, T0.1])"), std::string::npos) << fusion->toString();
      EXPECT_EQ(parseFusion(fusion->toString())->toString(), fusion->toString());
    }
  });
}

// Counts that ranks do not share, before there is a plan and when each has one of its own.
TEST(PartsOfGivenSizes, ElementsThatDifferBetweenRanksAreRefusedAlike) {
  for (const bool isWarm : {false, true}) {
    std::vector<std::string> said(2);
    runLoopback(2, [&](Communicator& comm) {
      FusionExecutorCache cache(rowsOfExperts(), {.communicator = &comm, .threads = 1});
      const auto call = [&](double a, double b) {
        const int64_t rows = static_cast<int64_t>(comm.rank() == 0 ? a : b);
        (void)cache.runFusionWithInputs({Tensor::of({a, b}, {2}, DataType::Int), random({rows, 4})});
      };
      if (isWarm) {
        call(3, 2);
        call(3, 4);
      }
      said[comm.rank()] = refusal([&] { comm.rank() == 0 ? call(3, 2) : call(3, 4); });
    });
    EXPECT_EQ(said[0], said[1]);
    EXPECT_NE(said[0].find("input 0 (T0"), std::string::npos) << said[0];
  }
}

TEST(PartsOfGivenSizes, RefusalsSayWhatIsMeant) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({14, 6});
  EXPECT_NE(refusal([&] {
              x->partition(0, {2, 3, 4});
            }).find("3 parts with 9 elements in total for dim"),
            std::string::npos);
  EXPECT_NE(refusal([&] { x->partition(0, {}); }).find("0 parts"), std::string::npos);
  EXPECT_NE(refusal([&] { x->partition(0, {-1, 15}); }).find("a part of size -1"), std::string::npos);
  EXPECT_NE(refusal([&] { x->outer_split(0, 2)->partition(0, {1, 1}); }).find("a part of a dim"), std::string::npos);
  TensorView* counts = makeContigTensor(1, DataType::Int);
  EXPECT_NE(refusal([&] { x->partition(0, counts); }).find("expected an element of an Int input"), std::string::npos);
  EXPECT_NE(refusal([&] { x->partition(5, {1, 1}); }).find("axis 5"), std::string::npos);
}

// An axis of another size than there are parts, counts that are not those of the call, an axis within the parts.
TEST(PartsOfGivenSizes, AllRanksRefuseAlike) {
  const auto texts = [](const std::function<void(TensorView*)>& place, int64_t rows) {
    std::vector<std::string> said(2);
    runLoopback(2, [&](Communicator& comm) {
      said[comm.rank()] = refusal([&] {
        auto fusion = std::make_unique<Fusion>();
        FusionGuard guard(fusion.get());
        TensorView* x = makeContigTensor(2);
        fusion->addInput(x);
        x->setDeviceMesh(DeviceMesh::createForNumDevices(2));
        place(x);
        fusion->addOutput(neg(x));
        FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .threads = 1});
        (void)cache.runFusionWithInputs({random({rows, 4})});
      });
    });
    EXPECT_EQ(said[0], said[1]);
    return said[0];
  };
  EXPECT_NE(texts(
                [](TensorView* x) {
                  x->partition(0, {1, 2, 3});
                  x->axis(0)->parallelize(ParallelType::DIDx);
                },
                3)
                .find("3"),
            std::string::npos);
  EXPECT_NE(texts(
                [](TensorView* x) {
                  x->partition(0, {4, 3});
                  x->axis(0)->parallelize(ParallelType::DIDx);
                },
                4)
                .find("T0"),
            std::string::npos);
  EXPECT_NE(texts(
                [](TensorView* x) {
                  x->partition(0, {2, 2, 0});
                  x->axis(1)->parallelize(ParallelType::DIDx);
                },
                4)
                .find("T0"),
            std::string::npos);
}

TEST(PartsOfGivenSizes, TextIsReadBack) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  Val* n = IrBuilder::create<Val>(DataType::Int);
  fusion->addInput(n);
  TensorView* x = inParts(input(*fusion, {14, 6}), 0, {2, 3, 4, 5});
  TensorView* y = makeContigTensor(1);
  fusion->addInput(y);
  inParts(y, 0, {n->intExpr(), 1, n->intExpr() * 2, 0});
  fusion->addOutput(neg(x));
  fusion->addOutput(neg(y));
  const std::string text = fusion->toString();
  EXPECT_NE(text.find("partition(0, [2, 3, 4, 5]) parallelize(0, DIDx) loop[DIDx{4}, 5, 6]"), std::string::npos)
      << text;
  EXPECT_EQ(parseFusion(text)->toString(), text);
  EXPECT_EQ(fusion->clone()->toString(), text);
  EXPECT_TRUE(verify(*fusion).empty());
}

}  // namespace

}  // namespace meshfuse
