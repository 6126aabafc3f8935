#include "ops/channel_norms.h"

#include <cmath>
#include <functional>

#include "ops/built.h"

namespace meshfuse {
namespace {

// x[n][c][s] with double loops, whatever the layout.
struct Problem {
  int64_t n, c, s;
  Row x, weight, bias;
};

constexpr double kEps = 1e-3;

Problem problem(int64_t n, int64_t c, int64_t s) {
  Problem p{n, c, s, {}, {}, {}};
  for (int64_t i = 0; i < n * c * s; i++) {
    p.x.push_back(std::sin(1.7 * static_cast<double>(i)) * 2 + 0.3 * static_cast<double>(i % 5));
  }
  for (int64_t i = 0; i < c; i++) {
    p.weight.push_back(0.5 + static_cast<double>(i));
    p.bias.push_back(0.25 * static_cast<double>(i) - 1);
  }
  return p;
}

// Which statistic an element belongs to: of batch norm its channel, of instance norm its channel of its n, ...
using SetOf = std::function<int64_t(int64_t n, int64_t c)>;

struct Normalized {
  Row y, mean, variance, invstd;
  std::vector<int64_t> count;
};

Normalized normalizedOf(const Problem& p, const SetOf& setOf, int64_t sets) {
  Normalized r;
  r.mean.assign(sets, 0);
  r.variance.assign(sets, 0);
  r.count.assign(sets, 0);
  auto each = [&](const std::function<void(size_t at, size_t set, size_t channel)>& visit) {
    for (int64_t n = 0; n < p.n; n++) {
      for (int64_t c = 0; c < p.c; c++) {
        for (int64_t s = 0; s < p.s; s++) {
          visit((n * p.c + c) * p.s + s, setOf(n, c), c);
        }
      }
    }
  };
  each([&](size_t at, size_t set, size_t) {
    r.mean[set] += p.x[at];
    r.count[set]++;
  });
  for (size_t k = 0; k < r.mean.size(); k++) {
    r.mean[k] /= static_cast<double>(r.count[k]);
  }
  each([&](size_t at, size_t set, size_t) { r.variance[set] += std::pow(p.x[at] - r.mean[set], 2); });
  for (size_t k = 0; k < r.mean.size(); k++) {
    r.variance[k] /= static_cast<double>(r.count[k]);
    r.invstd.push_back(1 / std::sqrt(r.variance[k] + kEps));
  }
  r.y.resize(p.x.size());
  each([&](size_t at, size_t set, size_t c) {
    r.y[at] = (p.x[at] - r.mean[set]) * r.invstd[set] * p.weight[c] + p.bias[c];
  });
  return r;
}

Normalized batchOf(const Problem& p) {
  return normalizedOf(
      p, [](int64_t, int64_t c) { return c; }, p.c);
}
Normalized instanceOf(const Problem& p) {
  return normalizedOf(
      p, [&](int64_t n, int64_t c) { return n * p.c + c; }, p.n * p.c);
}
Normalized groupOf(const Problem& p, int64_t groups) {
  return normalizedOf(
      p, [&, groups](int64_t n, int64_t c) { return n * groups + c / (p.c / groups); }, p.n * groups);
}

Tensor xOf(const Problem& p) { return doubles(p.x, {p.n, p.c, p.s}); }

// [N, C, S] with the channels last.
Row channelsLast(const Problem& p, const Row& x) {
  Row y;
  for (int64_t n = 0; n < p.n; n++) {
    for (int64_t s = 0; s < p.s; s++) {
      for (int64_t c = 0; c < p.c; c++) {
        y.push_back(x[(n * p.c + c) * p.s + s]);
      }
    }
  }
  return y;
}

TEST(BatchNorm, TrainingAndRunningStatistics) {
  Problem p = problem(3, 4, 5);
  Normalized expected = batchOf(p);
  Row oldMean = {1, 2, 3, 4};
  Row oldVariance = {4, 3, 2, 1};
  for (bool last : {false, true}) {
    Tensor x = last ? doubles(channelsLast(p, p.x), {3, 5, 4}) : xOf(p);
    std::vector<Tensor> out =
        run({x, doubles(p.weight, {4}), doubles(p.bias, {4}), doubles(oldMean, {4}), doubles(oldVariance, {4})},
            [&](const Views& v) {
              ForwardNormResult r = batch_norm(v[0], v[1], v[2], v[3], v[4], true, 0.1, kEps, last);
              return Views{r.output, r.mean, r.invstd};
            });
    ASSERT_EQ(out.size(), 5u);  // the running ones first
    expectNear(out[2], last ? channelsLast(p, expected.y) : expected.y, 1e-12);
    expectNear(out[3], expected.mean, 1e-14);
    expectNear(out[4], expected.invstd, 1e-12);
    for (size_t c = 0; c < 4; c++) {
      EXPECT_NEAR(out[0].toVector()[c], 0.9 * oldMean[c] + 0.1 * expected.mean[c], 1e-14);
      EXPECT_NEAR(out[1].toVector()[c], 0.9 * oldVariance[c] + 0.1 * expected.variance[c] * 15 / 14, 1e-13);
    }
  }
}

TEST(BatchNorm, Inference) {
  Problem p = problem(2, 3, 4);
  Row mean = {0.5, -1, 2};
  Row variance = {2, 0.25, 1};
  Row expected = p.x;
  for (size_t i = 0; i < expected.size(); i++) {
    size_t c = i / 4 % 3;
    expected[i] = (p.x[i] - mean[c]) / std::sqrt(variance[c] + kEps) * p.weight[c] + p.bias[c];
  }
  Tensor y = run1({xOf(p), doubles(p.weight, {3}), doubles(p.bias, {3}), doubles(mean, {3}), doubles(variance, {3})},
                  [](const Views& v) {
                    ForwardNormResult r = batch_norm(v[0], v[1], v[2], v[3], v[4], false, 0.1, kEps);
                    EXPECT_EQ(r.mean, nullptr);
                    EXPECT_EQ(r.invstd, nullptr);
                    return r.output;
                  });
  expectNear(y, expected, 1e-13);
}

TEST(InstanceNorm, OwnAndRunningStatistics) {
  Problem p = problem(2, 3, 7);
  Normalized expected = instanceOf(p);
  std::vector<Tensor> out =
      run({xOf(p), doubles(p.weight, {3}), doubles(p.bias, {3}), doubles({1, 2, 3}, {3}), doubles({3, 2, 1}, {3})},
          [&](const Views& v) {
            ForwardNormResult r = instance_norm(v[0], v[1], v[2], v[3], v[4], true, 0.25, kEps);
            return Views{r.output, r.mean, r.invstd};
          });
  expectNear(out[2], expected.y, 1e-12);
  expectNear(out[3], expected.mean, 1e-14);
  expectNear(out[4], expected.invstd, 1e-12);
  EXPECT_EQ(sizesOf(out[3]), (std::vector<int64_t>{2, 3}));
  for (size_t c = 0; c < 3; c++) {
    EXPECT_NEAR(out[0].toVector()[c],
                0.75 * static_cast<double>(c + 1) + 0.25 * (expected.mean[c] + expected.mean[3 + c]) / 2, 1e-14);
    EXPECT_NEAR(
        out[1].toVector()[c],
        0.75 * (3 - static_cast<double>(c)) + 0.25 * (expected.variance[c] + expected.variance[3 + c]) / 2 * 7 / 6,
        1e-13);
  }
  // by the running ones it is batch_norm
  std::vector<Tensor> same = run({xOf(p), doubles({1, 2, 3}, {3}), doubles({3, 2, 1}, {3})}, [](const Views& v) {
    return Views{instance_norm(v[0], nullptr, nullptr, v[1], v[2], false, 0.1, kEps).output,
                 batch_norm(v[0], nullptr, nullptr, v[1], v[2], false, 0.1, kEps).output};
  });
  EXPECT_EQ(same[0].toVector(), same[1].toVector());
}

TEST(GroupNorm, Groups) {
  Problem p = problem(2, 6, 5);
  for (int64_t groups : {1, 2, 3, 6}) {
    Normalized expected = groupOf(p, groups);
    std::vector<Tensor> out = run({xOf(p), doubles(p.weight, {6}), doubles(p.bias, {6})}, [&](const Views& v) {
      ForwardNormResult r = group_norm(v[0], groups, v[1], v[2], kEps);
      return Views{r.output, r.mean, r.invstd};
    });
    expectNear(out[0], expected.y, 1e-12);
    EXPECT_EQ(sizesOf(out[0]), (std::vector<int64_t>{2, 6, 5}));
    expectNear(out[1], expected.mean, 1e-13);
    expectNear(out[2], expected.invstd, 1e-12);
    EXPECT_EQ(sizesOf(out[1]), (std::vector<int64_t>{2, groups}));
  }
}

TEST(ChannelNorms, Backward) {
  Problem p = problem(2, 4, 3);
  Row dy;
  for (size_t i = 0; i < p.x.size(); i++) {
    dy.push_back(std::cos(static_cast<double>(i)));
  }
  for (int norm = 0; norm < 3; norm++) {
    std::vector<Tensor> out =
        run({xOf(p), doubles(p.weight, {4}), doubles(p.bias, {4}), doubles(dy, {2, 4, 3})}, [&](const Views& v) {
          ForwardNormResult y;
          BackwardNormResult b;
          if (norm == 0) {
            y = batch_norm(v[0], v[1], v[2], nullptr, nullptr, true, 0.1, kEps);
            b = batch_norm_backward(v[3], v[0], v[1], nullptr, nullptr, y.mean, y.invstd, true, kEps);
          } else if (norm == 1) {
            y = instance_norm(v[0], v[1], v[2], nullptr, nullptr, true, 0.1, kEps);
            b = instance_norm_backward(v[3], v[0], v[1], nullptr, nullptr, y.mean, y.invstd, true, kEps);
          } else {
            y = group_norm(v[0], 2, v[1], v[2], kEps);
            b = group_norm_backward(v[3], v[0], 2, y.mean, y.invstd, v[1]);
          }
          return Views{b.grad_input, b.grad_weight, b.grad_bias};
        });
    auto slopesOf = [&](Row Problem::*part) {
      auto f = [&](const Row& values) {
        Problem q = p;
        q.*part = values;
        return norm == 0 ? batchOf(q).y : norm == 1 ? instanceOf(q).y : groupOf(q, 2).y;
      };
      return slopes(f, p.*part, dy);
    };
    expectNear(out[0], slopesOf(&Problem::x), 1e-7);
    expectNear(out[1], slopesOf(&Problem::weight), 1e-7);
    expectNear(out[2], slopesOf(&Problem::bias), 1e-7);
  }
}

TEST(ChannelNorms, BackwardByRunningStatistics) {
  Problem p = problem(2, 2, 3);
  Row dy(12, 1.5);
  std::vector<Tensor> out =
      run({xOf(p), doubles(p.weight, {2}), doubles({1, 2}, {2}), doubles({4, 9}, {2}), doubles(dy, {2, 2, 3})},
          [](const Views& v) {
            BackwardNormResult b =
                batch_norm_backward(v[4], v[0], v[1], v[2], v[3], nullptr, nullptr, false, 0.0, {true, false, true});
            EXPECT_EQ(b.grad_weight, nullptr);
            return Views{b.grad_input, b.grad_bias};
          });
  expectNear(out[0], {0.375, 0.375, 0.375, 0.75, 0.75, 0.75, 0.375, 0.375, 0.375, 0.75, 0.75, 0.75}, 1e-15);
  expectNear(out[1], {9, 9}, 1e-15);
}

TEST(ChannelNorms, SixteenBitsGiveFloat) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeConcreteTensor({2, 4, 3}, DataType::BFloat16);
  EXPECT_EQ(batch_norm(x, nullptr, nullptr, nullptr, nullptr, true, 0.1, kEps).output->dtype(), DataType::Float);
  EXPECT_EQ(group_norm(x, 2, nullptr, nullptr, kEps).mean->dtype(), DataType::Float);
}

}  // namespace
}  // namespace meshfuse
