// Ops that are compositions, compiled: against the interpreter, with symbolic sizes.
#include <gtest/gtest.h>

#include <cmath>

#include "base/ranges.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"
#include "stress/on_ranks.h"

namespace meshfuse {
namespace {

// Rows and columns, long and short, of several types.
TEST(ComposedOps, StatisticsAndExtremes) {
  for (DataType type : {DataType::Float, DataType::Double, DataType::Half, DataType::Int}) {
    for (std::vector<int64_t> sizes : {std::vector<int64_t>{5, 300}, {70, 3, 9}, {1, 1}, {33, 1}}) {
      Tensor x = randomTensor(sizes, type, 3, -4, 4);
      auto build = [&](bool inner) {
        return [&, inner](Fusion& f) {
          TensorView* t = makeSymbolicTensor(sizes, type);
          f.addInput(t);
          int64_t dim = inner ? -1 : 0;
          VarMeanResult both = variance_mean(t, {dim}, 0, true);
          f.addOutput(both.var);
          f.addOutput(both.mean);
          f.addOutput(argmax(t, dim));
          f.addOutput(argmin(t));
          WelfordResult w = Welford(t, {});
          f.addOutput(w.var_sum);
          f.addOutput(w.n);
        };
      };
      expectAgrees(build(true), {{x}});
      expectAgrees(build(false), {{x}});
    }
  }
}

// Rows that no thread computes alone: they are fewer than threads may be, and longer than a second cache.
TEST(ComposedOps, FewLongRows) {
  for (int64_t rows : {1, 3}) {
    expectAgrees(
        [](Fusion& f) {
          TensorView* x = makeContigTensor(2);
          f.addInput(x);
          f.addOutput(softmax(x, 1));
          f.addOutput(layer_norm(x, 1, nullptr, nullptr, 1e-5).output);
          f.addOutput(variance(x, {1}));
          f.addOutput(argmax(x, 1));
        },
        {{randomTensor({rows, 300'001}, DataType::Float, 3, -4, 4)}});
  }
}

// Sums of rows and of columns that a CPU makes in one kernel, with the same bits on any number of threads.
TEST(ComposedOps, SumsOfRowsAndColumns) {
  for (DataType type : {DataType::Float, DataType::BFloat16}) {
    for (const auto& size : {std::pair<int64_t, int64_t>{300, 200}, {600, 150}}) {
      const int64_t m = size.first;
      const int64_t n = size.second;
      const std::vector<Argument> inputs = {randomTensor({m, n}, type, 1, -2, 2), randomTensor({m, n}, type, 2, -2, 2),
                                            randomTensor({m, 1}, type, 3, -1, 1), randomTensor({m, 1}, type, 4, 1, 2),
                                            randomTensor({n}, type, 5, -1, 1)};
      const auto build = [&](Fusion& f) {
        std::vector<TensorView*> t;
        for (const Argument& in : inputs) {
          const std::span<const int64_t> sizes = std::get<Tensor>(in).sizes();
          t.push_back(makeSymbolicTensor(std::vector<int64_t>(sizes.begin(), sizes.end()), type));
          f.addInput(t.back());
        }
        const BackwardNormResult g = layer_norm_backward(t[0], t[1], std::vector<int64_t>{n}, t[2], t[3], t[4], t[4]);
        for (TensorView* out : {g.grad_input, g.grad_weight, g.grad_bias}) {
          f.addOutput(castOp(type, out));
        }
      };
      std::vector<std::vector<double>> ofOneThread;
      for (int64_t threads : {1, 2, 3}) {
        CheckedCache checked(build, {.threads = threads});
        EXPECT_EQ(checked.call(inputs), "") << threads << " threads";
        const auto values = mapped(checked.results(), [](const Tensor& r) { return r.toVector(); });
        ofOneThread = threads == 1 ? values : ofOneThread;
        EXPECT_EQ(values, ofOneThread) << threads << " threads";
      }
    }
  }
}

TEST(ComposedOps, ChannelNorms) {
  for (DataType type : {DataType::Float, DataType::Half}) {
    for (std::vector<int64_t> sizes : {std::vector<int64_t>{4, 6, 40}, {3, 6, 5, 4}, {2, 6, 1}, {1, 6, 3}}) {
      for (int norm = 0; norm < 4; norm++) {
        Tensor x = randomTensor(sizes, type, 3, -4, 4);
        Tensor w = randomTensor({sizes[1]}, type, 5, -1, 1);
        expectAgrees(
            [&](Fusion& f) {
              TensorView* t = makeContigTensor(static_cast<int>(sizes.size()), type);
              TensorView* weight = makeContigTensor(1, type);
              f.addInput(t);
              f.addInput(weight);
              ForwardNormResult r = norm == 0 ? batch_norm(t, weight, weight, nullptr, nullptr, true, 0.1, 1e-3)
                                    : norm == 1
                                        ? batch_norm(t, weight, weight, weight, mul(weight, weight), false, 0.1, 1e-3)
                                    : norm == 2 ? instance_norm(t, weight, weight, nullptr, nullptr, true, 0.1, 1e-3)
                                                : group_norm(t, 3, weight, weight, 1e-3);
              f.addOutput(castOp(type, r.output));
              BackwardNormResult b =
                  norm == 0   ? batch_norm_backward(sin(t), t, weight, nullptr, nullptr, r.mean, r.invstd, true, 1e-3)
                  : norm == 1 ? batch_norm_backward(sin(t), t, weight, weight, mul(weight, weight), nullptr, nullptr,
                                                    false, 1e-3)
                  : norm == 2
                      ? instance_norm_backward(sin(t), t, weight, nullptr, nullptr, r.mean, r.invstd, true, 1e-3)
                      : group_norm_backward(sin(t), t, 3, r.mean, r.invstd, weight);
              f.addOutput(b.grad_input);
              f.addOutput(b.grad_weight);
              f.addOutput(b.grad_bias);
            },
            {{x, w}});
      }
    }
  }
}

// Inputs of a fusion hold the new statistics after the call, cast back to their type.
TEST(ComposedOps, RunningStatisticsChangeInPlace) {
  Tensor x = randomTensor({6, 4, 8}, DataType::Float, 1, -2, 3);
  std::vector<double> mean(4, 0);
  std::vector<double> squares(4, 0);
  for (int64_t i = 0; i < x.numel(); i++) {
    mean[i / 8 % 4] += x.toVector()[i] / 48;
  }
  for (int64_t i = 0; i < x.numel(); i++) {
    auto c = static_cast<size_t>(i / 8 % 4);
    squares[c] += std::pow(x.toVector()[i] - mean[c], 2);
  }
  for (DataType type : {DataType::Float, DataType::Half}) {
    CheckedCache checked([&](Fusion& f) {
      TensorView* t = makeContigTensor(3);
      TensorView* runningMean = makeContigTensor(1, type);
      TensorView* runningVariance = makeContigTensor(1, type);
      for (TensorView* in : {t, runningMean, runningVariance}) {
        f.addInput(in);
      }
      f.addOutput(batch_norm(t, nullptr, nullptr, castOp(DataType::Float, runningMean),
                             castOp(DataType::Float, runningVariance), true, 0.5, 1e-3)
                      .output);
    });
    Tensor runningMean = Tensor::of({1, 1, 1, 1}, {4}, type);
    Tensor runningVariance = Tensor::of({2, 2, 2, 2}, {4}, type);
    ASSERT_EQ(checked.call({x, runningMean, runningVariance}), "");
    double tolerance = type == DataType::Half ? 2e-3 : 1e-6;
    for (int64_t c = 0; c < 4; c++) {
      auto k = static_cast<size_t>(c);
      EXPECT_NEAR(runningMean.at({c}), 0.5 + 0.5 * mean[k], tolerance);
      EXPECT_NEAR(runningVariance.at({c}), 1 + 0.5 * squares[k] / 47, tolerance);
    }
  }
}

// The mesh axis cuts a kept dim or a reduced dim: the numbers are the same.
TEST(ComposedOps, OnRanks) {
  const Tensor rows = randomTensor({8, 4, 12}, DataType::Float, 4, -2, 2);
  const Tensor weight = randomTensor({4}, DataType::Float, 5, -1, 1);
  for (int dim = 0; dim < 3; dim++) {
    expectAgreesOnRanks(
        [=](Fusion& f, int64_t ranks) {
          TensorView* x = makeConcreteTensor({8, 4, 12});
          f.addInput(x);
          for (int along = 0; along < 3; along++) {
            f.addOutput(argmax(x, along));
            f.addOutput(variance(x, {along}));
          }
          f.addOutput(argmin(x));
          f.addOutput(Welford(x, {0, 2}).var_sum);
          cut(x, dim, ranks);
        },
        {{{rows}}});
    expectAgreesOnRanks(
        [=](Fusion& f, int64_t ranks) {
          TensorView* x = makeConcreteTensor({8, 4, 12});
          TensorView* w = makeConcreteTensor({4});
          f.addInput(x);
          f.addInput(w);
          TensorView* y = batch_norm(x, w, w, nullptr, nullptr, true, 0.1, 1e-3).output;
          y = add(y, instance_norm(x, w, w, nullptr, nullptr, true, 0.1, 1e-3).output);
          f.addOutput(add(y, group_norm(x, 4, w, w, 1e-3).output));
          cut(x, dim, ranks);
        },
        {{{rows, weight}}});
  }
}

}  // namespace
}  // namespace meshfuse
