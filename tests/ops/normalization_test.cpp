#include "ops/normalization.h"

#include <cmath>

#include "ops/built.h"

namespace meshfuse {
namespace {

Row softmaxOf(const Row& x) {
  Row y;
  double total = 0;
  for (double v : x) {
    y.push_back(std::exp(v));
    total += y.back();
  }
  for (double& v : y) {
    v /= total;
  }
  return y;
}

Row layerNormOf(const Row& x, const Row& weight, const Row& bias) {
  double mean = 0;
  double variance = 0;
  for (double v : x) {
    mean += v / static_cast<double>(x.size());
  }
  for (double v : x) {
    variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  }
  Row y;
  for (size_t k = 0; k < x.size(); k++) {
    y.push_back((x[k] - mean) / std::sqrt(variance + 1e-5) * weight[k] + bias[k]);
  }
  return y;
}

Row rmsNormOf(const Row& x, const Row& weight) {
  double square = 0;
  for (double v : x) {
    square += v * v / static_cast<double>(x.size());
  }
  Row y;
  for (size_t k = 0; k < x.size(); k++) {
    y.push_back(x[k] / std::sqrt(square + 1e-5) * weight[k]);
  }
  return y;
}

const Row kX = {0.5, -1.25, 2, 0.25, -0.75};
const Row kDy = {1, -0.5, 0.25, 2, -1.5};
const Row kWeight = {1.5, 0.5, -1, 2, 1};
const Row kBias = {0.1, 0.2, 0.3, 0.4, 0.5};

Tensor row(const Row& values) { return Tensor::of(values, {1, std::ssize(values)}, DataType::Double); }
Tensor flat(const Row& values) { return Tensor::of(values, {std::ssize(values)}, DataType::Double); }

TEST(Normalization, Softmax) {
  expectNear(run1({row(kX)}, [](const Views& v) { return softmax(v[0], -1); }), softmaxOf(kX), 1e-14);
  Tensor big = Tensor::of({1000, 1001, -1000}, {3});
  Row y = run1({big}, [](const Views& v) { return softmax(v[0], 0); }).toVector();
  EXPECT_NEAR(y[0], 1 / (1 + std::exp(1.0)), 1e-7);
  EXPECT_EQ(y[2], 0);
}

TEST(Normalization, SoftmaxOverAnOuterDim) {
  Tensor x = Tensor::of({1, 5, 2, 7}, {2, 2}, DataType::Double);
  expectNear(run1({x}, [](const Views& v) { return softmax(v[0], 0); }),
             {softmaxOf({1, 2})[0], softmaxOf({5, 7})[0], softmaxOf({1, 2})[1], softmaxOf({5, 7})[1]}, 1e-14);
}

TEST(Normalization, SoftmaxOfNanAndInfinities) {
  for (int where : {0, 1, 3}) {
    Row values = {1, 2, 3, 4};
    values[where] = kNan;
    for (double v : run1({flat(values)}, [](const Views& v) { return softmax(v[0], 0); }).toVector()) {
      EXPECT_TRUE(std::isnan(v));
    }
  }
  for (double v : run1({flat({-kInf, -kInf})}, [](const Views& v) { return softmax(v[0], 0); }).toVector()) {
    EXPECT_TRUE(std::isnan(v));
  }
  expectNear(run1({flat({-kInf, 0, 0})}, [](const Views& v) { return softmax(v[0], 0); }), {0, 0.5, 0.5}, 0);
  EXPECT_EQ(run1({flat({7})}, [](const Views& v) { return softmax(v[0], 0); }).item(), 1);
}

TEST(Normalization, LogSoftmaxAndBackwardForms) {
  Row expected = softmaxOf(kX);
  for (double& v : expected) {
    v = std::log(v);
  }
  expectNear(run1({row(kX)}, [](const Views& v) { return log_softmax(v[0], 1); }), expected, 1e-14);
  auto logOf = [](const Row& x) {
    Row y = softmaxOf(x);
    for (double& v : y) {
      v = std::log(v);
    }
    return y;
  };
  expectNear(run1({row(kX), row(kDy)}, [](const Views& v) { return softmax_backward(v[1], softmax(v[0], -1), -1); }),
             slopes(softmaxOf, kX, kDy), 1e-8);
  expectNear(
      run1({row(kX), row(kDy)}, [](const Views& v) { return log_softmax_backward(v[1], log_softmax(v[0], -1), -1); }),
      slopes(logOf, kX, kDy), 1e-8);
}

TEST(Normalization, LayerNorm) {
  std::vector<Tensor> out = run({row(kX), flat(kWeight), flat(kBias)}, [](const Views& v) {
    ForwardNormResult r = layer_norm(v[0], {5}, v[1], v[2], 1e-5);
    return Views{r.output, r.mean, r.invstd};
  });
  expectNear(out[0], layerNormOf(kX, kWeight, kBias), 1e-13);
  EXPECT_NEAR(out[1].item(), 0.15, 1e-15);
  EXPECT_EQ(sizesOf(out[2]), (std::vector<int64_t>{1, 1}));
}

TEST(Normalization, LayerNormBackward) {
  std::vector<Tensor> out = run({row(kX), row(kDy), flat(kWeight), flat(kBias)}, [](const Views& v) {
    ForwardNormResult f = layer_norm(v[0], {5}, v[2], v[3], 1e-5);
    BackwardNormResult b = layer_norm_backward(v[1], v[0], {5}, f.mean, f.invstd, v[2], v[3]);
    return Views{b.grad_input, b.grad_weight, b.grad_bias};
  });
  expectNear(out[0], slopes([](const Row& x) { return layerNormOf(x, kWeight, kBias); }, kX, kDy), 1e-8);
  expectNear(out[1], slopes([](const Row& w) { return layerNormOf(kX, w, kBias); }, kWeight, kDy), 1e-8);
  expectNear(out[2], kDy, 0);
}

TEST(Normalization, RmsNormAndBackward) {
  std::vector<Tensor> out = run({row(kX), row(kDy), flat(kWeight)}, [](const Views& v) {
    ForwardRMSNormResult f = rms_norm(v[0], {5}, v[2], 1e-5);
    BackwardRMSNormResult b = rms_norm_backward(v[1], v[0], {5}, f.invstd, v[2]);
    return Views{f.output, b.grad_input, b.grad_weight};
  });
  expectNear(out[0], rmsNormOf(kX, kWeight), 1e-13);
  expectNear(out[1], slopes([](const Row& x) { return rmsNormOf(x, kWeight); }, kX, kDy), 1e-8);
  expectNear(out[2], slopes([](const Row& w) { return rmsNormOf(kX, w); }, kWeight, kDy), 1e-8);
}

TEST(Normalization, GradientsSumOverBatchesAndMasksLeaveOut) {
  Tensor x = Tensor::of({1, 2, 3, 5, 8, 13}, {3, 2}, DataType::Double);
  std::vector<Tensor> out = run({x, flat({1, 1})}, [](const Views& v) {
    ForwardNormResult f = layer_norm(v[0], {2}, v[1], v[1], 1e-5);
    BackwardNormResult b = layer_norm_backward(v[0], v[0], {2}, f.mean, f.invstd, v[1], v[1], {false, false, true});
    EXPECT_EQ(b.grad_input, nullptr);
    EXPECT_EQ(b.grad_weight, nullptr);
    return Views{b.grad_bias};
  });
  EXPECT_EQ(out[0].toVector(), (Row{12, 20}));
}

TEST(Normalization, SixteenBitsGiveFloat) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeConcreteTensor({2, 4}, DataType::BFloat16);
  EXPECT_EQ(softmax(x, -1)->dtype(), DataType::Float);
  EXPECT_EQ(layer_norm(x, {4}, nullptr, nullptr, 1e-5).output->dtype(), DataType::Float);
}

}  // namespace
}  // namespace meshfuse
