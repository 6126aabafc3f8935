// Ports of test_multidevice_matmul.cpp: products of cut matrices.
#include "nvfuser_shape/port.h"

namespace meshfuse {
namespace {

class PortsOfMatmul : public PortTest {};

TensorView* half(Fusion& f, const std::vector<int64_t>& shape) {
  TensorView* tv = makeContigTensor(std::ssize(shape), DataType::Half);
  f.addInput(tv);
  return tv;
}

std::vector<Argument> halves(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return {random(a, 1, DataType::Half), random(b, 2, DataType::Half)};
}

// A product of broadcast factors, summed: rows are cut, nothing is communicated.
TEST_F(PortsOfMatmul, ProductsAndASumOverRows) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* a = half(f, {d, 8, 16});
      TensorView* b = half(f, {12, 16});
      TensorView* rows = broadcast(a, {false, false, true, false});
      TensorView* columns = broadcast(b, {true, true, false, false});
      TensorView* products = mul(rows, columns);
      TensorView* c = sum(products, {-1});
      f.addOutput(c);
      for (TensorView* tv : {a, rows, products, c}) {
        bindDim(tv, 0, d);
      }
      b->setDeviceMesh(a->getDeviceMesh());
      allocateLoops(c);
    };
    return Port{build, halves({d, 8, 16}, {12, 16}), kNoSteps,
                [](const auto& cache, const auto&) { EXPECT_EQ(kernelsOf(cache), 1); }};
  });
}

// Rows are cut; the result stays cut, or is gathered.
TEST_F(PortsOfMatmul, RowsOfTheFirstMatrix) {
  for (const bool gathers : {false, true}) {
    runPort([=](int64_t d) {
      const auto build = [=](Fusion& f) {
        TensorView* a = half(f, {d, 8, 16});
        TensorView* b = half(f, {12, 16});
        TensorView* c = matmul(a, transpose(b, 0, 1));
        bindDim(a, 0, d);
        bindDim(c, 0, d);
        b->setDeviceMesh(a->getDeviceMesh());
        if (gathers) {
          c = set(c);
          c->setDeviceMesh(a->getDeviceMesh());
        } else {
          allocateLoops(c);
        }
        f.addOutput(c);
      };
      return Port{build, halves({d, 8, 16}, {12, 16}), gathers ? std::vector<std::string>{"all-gather"} : kNoSteps};
    });
  }
}

// Columns of the first and rows of the second matrix are cut, as a dim of their own that a sum removes.
TEST_F(PortsOfMatmul, TheSummedDim) {
  for (const bool scatters : {false, true}) {
    runPort([=](int64_t d) {
      const auto build = [=](Fusion& f) {
        TensorView* a = half(f, {d, 16, 8 * d});
        TensorView* b = half(f, {d, 16, 12});
        TensorView* rows = transpose(a, 1, 2);
        TensorView* products = matmul(rows, b);
        std::vector<TensorView*> cut = {a, b, rows, products};
        if (scatters) {
          cut.push_back(reshape(products, {d, 8 * d, 12}, {d, d, 8, 12}));
        }
        for (TensorView* tv : cut) {
          bindDim(tv, 0, d);
        }
        TensorView* c = sum(cut.back(), {0});
        c->setDeviceMesh(a->getDeviceMesh());
        if (scatters) {
          c->axis(1)->parallelize(ParallelType::DIDx);  // axis 0 is the reduced dim
        }
        f.addOutput(c);
      };
      return Port{build, halves({d, 16, 8 * d}, {d, 16, 12}), {{scatters ? "reduce-scatter" : "all-reduce"}}};
    });
  }
}

TEST_F(PortsOfMatmul, PassesPreserveShardings) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* x = makeContigTensor(2);
      TensorView* w = makeContigTensor(3);
      f.addInput(x);
      f.addInput(w);
      TensorView* turned = transpose(w, 1, 2);
      TensorView* product = matmul(x, turned);
      TensorView* back = transpose(product, 1, 2);
      f.addOutput(back);
      for (TensorView* tv : {w, turned, product, back}) {
        bindDim(tv, 0, d);
      }
      x->setDeviceMesh(w->getDeviceMesh());
    };
    return Port{build, {random({12, 48}, 1), random({d, 36, 48}, 2)}, kNoSteps, [](const auto& cache, const auto&) {
                  EXPECT_EQ(cache.outputSharding(0).substr(0, 5), "S0(x)");
                }};
  });
}

TEST_F(PortsOfMatmul, OnlyTheWeightIsAnnotated) {
  runPort([](int64_t d) {
    const auto build = [=](Fusion& f) {
      TensorView* x = makeContigTensor(2);
      TensorView* w = makeContigTensor(3);
      f.addInput(x);
      f.addInput(w);
      f.addOutput(matmul(x, w));
      bindDim(w, 0, d);
      x->setDeviceMesh(w->getDeviceMesh());
    };
    return Port{build, {random({2, 3}, 1), random({d, 3, 5}, 2)}, kNoSteps, [](const auto& cache, const auto&) {
                  EXPECT_EQ(cache.outputSharding(0).substr(0, 5), "S0(x)");
                }};
  });
}

// No rFactor by hand: the sum over the cut dim becomes a local product and an all-reduce. The length of the sequence may change.
TEST_F(PortsOfMatmul, RowParallelLinear) {
  for (const int64_t s : {4, 8, 16}) {
    runPort([=](int64_t d) {
      const auto build = [=](Fusion& f) {
        TensorView* x = makeContigConcreteTensor({-1, -1, 12});
        TensorView* w = makeContigConcreteTensor({12, 12});
        f.addInput(x);
        f.addInput(w);
        f.addOutput(linear(x, w));
        splitDim(x, -1, d);
        splitDim(w, -1, d);
      };
      return Port{build, {random({1, s, 12}, 1), random({12, 12}, 2)}, {{"all-reduce"}}};
    });
  }
}

}  // namespace
}  // namespace meshfuse
