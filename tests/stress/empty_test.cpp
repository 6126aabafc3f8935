// Tensors without elements, without dims, and programs without tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"
#include "stress/on_ranks.h"

namespace meshfuse {

namespace {

TensorView* symbolicOrConcrete(const std::vector<int64_t>& shape, bool symbolic, DataType type = DataType::Float) {
  TensorView* x = symbolic ? makeSymbolicTensor(std::ssize(shape), type) : makeContigConcreteTensor(shape, type);
  x->fusion().addInput(x);
  return x;
}

const std::vector<ReduceOp> kReductions = {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min};

TEST(Empty, EveryReductionOverEveryDim) {
  for (bool symbolic : {false, true}) {
    for (DataType type : {DataType::Float, DataType::Double, DataType::Int}) {
      expectAgrees(
          [=](Fusion& f) {
            TensorView* x = symbolicOrConcrete({3, 4, 0, 5}, symbolic, type);
            for (ReduceOp op : kReductions) {
              for (const std::vector<int64_t>& axes :
                   std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {3}, {2, 3}, {0, 1, 2, 3}}) {
                f.addOutput(reductionOp(op, x, axes));
                f.addOutput(reductionOp(op, x, axes, true));
              }
            }
          },
          {{random({3, 4, 0, 5}, 1, type)}});
    }
  }
}

// The first element of `op` over nothing.
double identity(const std::function<TensorView*(TensorView*)>& op, DataType type) {
  CheckedCache checked([&](Fusion& f) { f.addOutput(op(symbolicOrConcrete({2, 0}, false, type))); });
  EXPECT_EQ(checked.call({Tensor::empty({2, 0}, type)}), "");
  EXPECT_EQ(checked.results()[0].size(0), 2);
  return checked.results()[0].at({1});
}

TEST(Empty, Identities) {
  for (DataType type : {DataType::Float, DataType::Double, DataType::Half, DataType::BFloat16}) {
    EXPECT_EQ(identity([](TensorView* x) { return sum(x, {1}); }, type), 0);
    EXPECT_EQ(identity([](TensorView* x) { return prod(x, {1}); }, type), 1);
    EXPECT_EQ(identity([](TensorView* x) { return max(x, {1}); }, type), -kInf);
    EXPECT_EQ(identity([](TensorView* x) { return min(x, {1}); }, type), kInf);
    EXPECT_TRUE(std::isnan(identity([](TensorView* x) { return mean(x, {1}); }, type)));
  }
  EXPECT_EQ(identity([](TensorView* x) { return max(x, {1}); }, DataType::Int32), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(identity([](TensorView* x) { return min(x, {1}); }, DataType::Int32), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(identity([](TensorView* x) { return any(x, {1}); }, DataType::Bool), 0);
  EXPECT_EQ(identity([](TensorView* x) { return all(x, {1}); }, DataType::Bool), 1);
  EXPECT_EQ(identity([](TensorView* x) { return bitwise_and(x, {1}); }, DataType::Int), -1);
  EXPECT_EQ(identity([](TensorView* x) { return bitwise_or(x, {1}); }, DataType::Int), 0);
  EXPECT_EQ(identity([](TensorView* x) { return bitwise_xor(x, {1}); }, DataType::Int), 0);
}

TEST(Empty, ReductionsInTheMiddleOfAProgram) {
  for (bool symbolic : {false, true}) {
    expectAgrees(
        [=](Fusion& f) {
          TensorView* x = symbolicOrConcrete({3, 4, 0, 5}, symbolic);
          TensorView* y = symbolicOrConcrete({3, 4, 5}, symbolic);
          TensorView* s = sum(exp(x), {2});
          f.addOutput(tanh(add(s, y)));
          f.addOutput(softmax(add(s, y), 2));
          f.addOutput(mul(x, 2.0));
          f.addOutput(sum(add(s, y), {0, 1, 2}));
        },
        {{random({3, 4, 0, 5}), random({3, 4, 5}, 2)}});
  }
}

TEST(Empty, ThenFullThenEmptyAgain) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = symbolicOrConcrete({-1, -1}, true);
        f.addOutput(sum(add(x, 1.0), {1}));
        f.addOutput(softmax(x, 1));
        f.addOutput(neg(x));
      },
      {{random({4, 0})}, {random({4, 7})}, {random({0, 7})}, {random({0, 0})}, {random({4, 1})}, {random({4, 0})}});
}

TEST(Empty, Normalizations) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = symbolicOrConcrete({-1, -1}, true);
        f.addOutput(softmax(x, 0));
        f.addOutput(log_softmax(x, 1));
        f.addOutput(layer_norm(x, 1, nullptr, nullptr, 1e-5).output);
        f.addOutput(rms_norm(x, 1, nullptr, 1e-5).output);
      },
      {{random({0, 5})}, {random({5, 0})}, {random({3, 5})}});
}

TEST(Empty, Contractions) {
  for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Double}) {
    for (const auto& [m, k, n] :
         std::vector<std::array<int64_t, 3>>{{3, 0, 4}, {0, 3, 4}, {3, 4, 0}, {0, 0, 0}, {1, 0, 1}}) {
      expectAgrees(
          [=, m = m, k = k, n = n](Fusion& f) {
            TensorView* a = symbolicOrConcrete({m, k}, false, type);
            TensorView* b = symbolicOrConcrete({k, n}, false, type);
            TensorView* w = symbolicOrConcrete({n, k}, false, type);
            TensorView* bias = symbolicOrConcrete({n}, false, type);
            f.addOutput(matmul(a, b));
            f.addOutput(linear(a, w, bias));
            f.addOutput(relu(linear(a, w)));
          },
          {{random({m, k}, 1, type), random({k, n}, 2, type), random({n, k}, 3, type), random({n}, 4, type)}});
    }
  }
}

TEST(Empty, CatSliceAndPad) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = symbolicOrConcrete({3, 0}, false);
        TensorView* y = symbolicOrConcrete({3, 4}, false);
        TensorView* both = cat({x, y}, 1);
        f.addOutput(tanh(both));
        f.addOutput(sum(cat({y, x, y, x}, 1), {1}));
        TensorView* nothing = slice(exp(y), {0, 2}, {3, 2});
        f.addOutput(nothing);
        f.addOutput(add(cat({nothing, y}, 1), 1.0));
        f.addOutput(cat({nothing, neg(x)}, 1));
        f.addOutput(mul(pad(nothing, {1, 2}, 7.0), 2.0));
        f.addOutput(pad(x, {2, 0, 1, 1}, -1.0));
        TensorView* cut = pad(y, {-2, -2});
        f.addOutput(exp(cut));
        f.addOutput(sum(cut, {1}));
        f.addOutput(sum(pad(cut, {0, 3}, 2.0), {0, 1}));
      },
      {{random({3, 0}), random({3, 4}, 2)}});
}

TEST(Empty, WindowsOfSymbolicSizes) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = symbolicOrConcrete({-1, -1}, true);
        TensorView* head = slice(x, {0, 0}, {100, 2});
        TensorView* tail = slice(x, {0, 2}, {100, 100});
        f.addOutput(cat({neg(tail), exp(head)}, 1));
        f.addOutput(sum(tail, {1}));
        f.addOutput(pad(tail, {1, 1}));
      },
      {{random({3, 5})}, {random({3, 2})}, {random({3, 1})}, {random({3, 0})}, {random({0, 5})}});
}

TEST(Empty, ShapeOps) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = symbolicOrConcrete({3, 0, 4}, false);
        f.addOutput(reshape(x, {0, 12}));
        f.addOutput(neg(permute(x, {2, 0, 1})));
        f.addOutput(add(expand(unsqueeze(x, 0), {5, 3, 0, 4}), 1.0));
        f.addOutput(sum(reshape(x, {12, 0}), {1}));
        f.addOutput(castOp(DataType::Int, x));
      },
      {{random({3, 0, 4})}});
}

TEST(Empty, Indexing) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* table = symbolicOrConcrete({5, 4}, false);
        TensorView* none = symbolicOrConcrete({0}, false, DataType::Int);
        f.addOutput(neg(index_select(table, 0, none)));
        f.addOutput(sum(index_select(table, 0, none), {0}));
        f.addOutput(embedding_fwd(none, table));
      },
      {{random({5, 4}), Tensor::empty({0}, DataType::Int)}});
}

TEST(Empty, InPlace) {
  CheckedCache checked([](Fusion& f) {
    TensorView* w = symbolicOrConcrete({0, 3}, false);
    TensorView* next = add(w, 1.0);
    f.addOutput(next);
    f.aliasOutputToInput(next, w);
  });
  Tensor w = Tensor::empty({0, 3}, DataType::Float);
  EXPECT_EQ(checked.call({w}), "");
  EXPECT_EQ(checked.call({w}), "");
}

TEST(NoDims, ElementwiseAndReductions) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = symbolicOrConcrete({}, false);
        TensorView* y = symbolicOrConcrete({4, 5}, false);
        f.addOutput(add(x, 1.0));
        f.addOutput(mul(tanh(x), y));
        f.addOutput(add(sum(y, {0, 1}), x));
        f.addOutput(expand(broadcast(x, {true, true}), {2, 3}));
        f.addOutput(reshape(x, {1, 1}));
        f.addOutput(neg(squeeze(slice(y, {1, 2}, {2, 3}))));
        f.addOutput(castOp(DataType::Int, x));
        f.addOutput(where(gt(x, 0.0), y, neg(y)));
      },
      {{random({}), random({4, 5}, 2)}});
}

TEST(NoDims, ReductionsOverNoDimAndOverDimZero) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = symbolicOrConcrete({}, false);
        f.addOutput(sum(x, std::vector<int64_t>{}));
        f.addOutput(max(x, std::vector<int64_t>{}, true));
      },
      {{random({})}});
  for (bool keep : {false, true}) {
    std::string error = errorOf([&] {
      CheckedCache checked([&](Fusion& f) { f.addOutput(sum(symbolicOrConcrete({}, false), {0}, keep)); });
      EXPECT_EQ(checked.call({random({})}), "");
      EXPECT_EQ(checked.results()[0].dim(), 0);
    });
    EXPECT_EQ(error, "");
  }
}

TEST(NoDims, ContractionsToOneElement) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* a = symbolicOrConcrete({7}, false);
        TensorView* b = symbolicOrConcrete({7}, false);
        f.addOutput(matmul(a, b));
        f.addOutput(add(linear(a, b), matmul(a, b)));
      },
      {{random({7}), random({7}, 2)}});
}

// A dim that two axes cut, in each order of blocks and cycles: without elements every rank's part is empty, one element is on one rank.
TEST(Empty, OneDimOverTwoAxes) {
  for (const bool firstInner : {false, true}) {
    for (const bool secondInner : {false, true}) {
      expectAgreesOnRanks(
          [=](Fusion& f, int64_t ranks) {
            TensorView* x = makeSymbolicTensor({-1, 6});
            TensorView* w = makeContigConcreteTensor({6, 4});
            f.addInput(x);
            f.addInput(w);
            x->setDeviceMesh(DeviceMesh::createForShape({ranks / 2, 2}));
            x->split(0, ranks / 2, firstInner);
            x->axis(firstInner ? 1 : 0)->parallelize(ParallelType::DIDy);
            const int64_t rest = firstInner ? 0 : 1;
            x->split(rest, 2, secondInner);
            x->axis(secondInner ? rest + 1 : rest)->parallelize(ParallelType::DIDx);
            f.addOutput(neg(x));
            f.addOutput(max(x, {1}));
            f.addOutput(sum(x, {0}));
            f.addOutput(matmul(x, w));
            f.addOutput(cat({x, neg(x)}, 0));
          },
          {{{random({8, 6}), random({6, 4}, 2)}},
           {{random({0, 6}), random({6, 4}, 2)}},
           {{random({1, 6}), random({6, 4}, 2)}}});
    }
  }
}

TEST(NoTensorInput, Factories) {
  expectAgrees(
      [](Fusion& f) {
        f.addOutput(full({3, 4}, 2.5, DataType::Float));
        f.addOutput(add(iota(10), 5));
        f.addOutput(sum(eye(6, DataType::Double), {0}));
        f.addOutput(softmax(rand({4, 9}, DataType::Float, 3, 1), 1));
        f.addOutput(randn({5}, DataType::Half, 3, 2));
        f.addOutput(matmul(ones({3, 4}, DataType::Float), full({4, 2}, 0.5, DataType::Float)));
        f.addOutput(zeros({0, 2}, DataType::Float));
        f.addOutput(full({}, 1, DataType::Int));
      },
      {{}});
}

TEST(NoTensorInput, ScalarsAsArguments) {
  expectAgrees(
      [](Fusion& f) {
        Val* d = IrBuilder::create<Val>(DataType::Double);
        Val* n = IrBuilder::create<Val>(DataType::Int);
        f.addInput(d);
        f.addInput(n);
        f.addOutput(mul(full({2, 3}, d, DataType::Float), 2.0));
        f.addOutput(add(iota(7), n));
        f.addOutput(full({4}, add(mul(d, d), 1.0), DataType::Double));
      },
      {{0.25, int64_t{3}}, {-1.5, int64_t{-9}}, {kInf, int64_t{0}}});
}

}  // namespace

}  // namespace meshfuse
