#include "ops/factory.h"

#include <cmath>

#include "ops/built.h"

namespace meshfuse {
namespace {

TEST(Factory, Constants) {
  EXPECT_EQ(run1({},
                 [](const Views&) {
                   return full({2, 2}, 2.5, DataType::Half);
                 })
                .toVector(),
            (std::vector<double>{2.5, 2.5, 2.5, 2.5}));
  EXPECT_EQ(run1({}, [](const Views&) { return full({}, 7, DataType::Int32); }).item(), 7);
  EXPECT_EQ(run1({}, [](const Views&) { return ones({2}, DataType::Bool); }).toVector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(run1({}, [](const Views&) { return zeros({0, 3}, DataType::Double); }).numel(), 0);
  Tensor x = counting({2, 3}, DataType::Int);
  Tensor y = run1({x}, [](const Views& v) { return full_like(v[0], -1); });
  EXPECT_EQ(y.toVector(), std::vector<double>(6, -1));
  EXPECT_EQ(y.dtype(), DataType::Int);
  EXPECT_EQ(run1({x}, [](const Views& v) { return full({size(v[0], 1)}, 1, DataType::Float); }).toVector(),
            (std::vector<double>{1, 1, 1}));
}

TEST(Factory, Sequences) {
  auto values = [](const std::function<TensorView*(const Views&)>& f) { return run1({}, f).toVector(); };
  EXPECT_EQ(values([](const Views&) { return iota(4, 3, -2); }), (std::vector<double>{3, 1, -1, -3}));
  EXPECT_EQ(values([](const Views&) { return arange(4); }), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(values([](const Views&) { return arange(2, 9, 3); }), (std::vector<double>{2, 5, 8}));
  EXPECT_EQ(values([](const Views&) { return arange(9, 2, -3); }), (std::vector<double>{9, 6, 3}));
  EXPECT_EQ(values([](const Views&) { return arange(5, 2); }), (std::vector<double>{}));
  EXPECT_EQ(values([](const Views&) { return arange(false, 3, true, DataType::Float); }),
            (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(values([](const Views&) { return arange(0, 1, 0.25, DataType::Float); }),
            (std::vector<double>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(values([](const Views&) { return eye(2, 3, DataType::Float); }), (std::vector<double>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(values([](const Views&) { return eye(2, DataType::Int); }), (std::vector<double>{1, 0, 0, 1}));
  Fusion fusion;
  FusionGuard guard(&fusion);
  EXPECT_EQ(eye(2, DataType::Int)->definition()->attributes().starts.size(), 2u) << "an offset a dim";
}

// Philox4x32-10 written anew from the paper's description; its known answers are below.
struct Philox {
  uint32_t counter[4];
  uint32_t key[2];

  void run() {
    for (int round = 0; round < 10; round++) {
      uint64_t a = uint64_t{0xD2511F53u} * counter[0];
      uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
      uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                          static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
      std::copy(next, next + 4, counter);
      key[0] += 0x9E3779B9u;
      key[1] += 0xBB67AE85u;
    }
  }
};

TEST(Random, PhiloxKnownAnswers) {
  // From the authors' kat_vectors: counter and key all zero, and all ones.
  Philox zero{{0, 0, 0, 0}, {0, 0}};
  zero.run();
  EXPECT_EQ(zero.counter[0], 0x6627e8d5u);
  EXPECT_EQ(zero.counter[3], 0x9b00dbd8u);
  Philox ones{{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}};
  ones.run();
  EXPECT_EQ(ones.counter[0], 0x408f276du);
}

TEST(Random, UniformIsPhiloxOfTheGlobalIndex) {
  const int64_t seed = 0x123456789abcdef;
  Tensor y = run1({}, [&](const Views&) { return rand({3, 5}, DataType::Float, seed, 40); });
  Tensor d = run1({}, [&](const Views&) { return rand({3, 5}, DataType::Double, seed, 40); });
  for (uint32_t i = 0; i < 15; i++) {
    Philox p{{i, 0, 40, 0}, {0x89abcdefu, 0x1234567u}};
    p.run();
    EXPECT_EQ(y.toVector()[i], static_cast<double>(p.counter[0] >> 8) / (1 << 24));
    uint64_t wide = (uint64_t{p.counter[1]} << 32 | p.counter[0]) >> 11;
    EXPECT_EQ(d.toVector()[i], std::ldexp(static_cast<double>(wide), -53));
  }
}

// Of 32768 numbers about 8 are nearer to 1 than to any other number of Half, and about 64 in BFloat16.
TEST(Random, UniformNumbersOfSixteenBitsAreBelowOne) {
  for (const auto& [type, largest] : {std::pair{DataType::Half, 1 - 0x1p-11}, {DataType::BFloat16, 1 - 0x1p-8}}) {
    const auto numbersOf = [](DataType t) { return run1({}, [&](const Views&) { return rand({32768}, t, 5); }); };
    const std::vector<double> got = numbersOf(type).toVector();
    const std::vector<double> rounded = numbersOf(DataType::Float).to(type).toVector();
    int64_t ones = 0;
    for (size_t i = 0; i < got.size(); i++) {
      EXPECT_EQ(got[i], std::min(rounded[i], largest));
      ones += rounded[i] == 1 ? 1 : 0;
    }
    EXPECT_GT(ones, 0);
  }
}

TEST(Random, EachOpHasItsOwnNumbersAndASeedRepeatsThem) {
  std::vector<Tensor> out = run({}, [](const Views&) {
    return Views{rand({8}, DataType::Float, 5), rand({8}, DataType::Float, 5)};
  });
  EXPECT_NE(out[0].toVector(), out[1].toVector());
  std::vector<Tensor> again = run({}, [](const Views&) {
    return Views{rand({8}, DataType::Float, 5), rand({8}, DataType::Float, 6)};
  });
  EXPECT_EQ(out[0].toVector(), again[0].toVector());
  EXPECT_NE(out[1].toVector(), again[1].toVector());
}

TEST(Random, MomentsAreThoseOfTheDistribution) {
  auto meanAndVariance = [](const Tensor& t) {
    double sum = 0, square = 0;
    for (double v : t.toVector()) {
      sum += v;
      square += v * v;
    }
    double n = static_cast<double>(t.numel());
    return std::pair(sum / n, square / n - sum / n * (sum / n));
  };
  const int64_t n = 20000;
  auto [mu, variance] = meanAndVariance(run1({}, [&](const Views&) { return randn({n}, DataType::Float, 3); }));
  EXPECT_NEAR(mu, 0, 0.03);
  EXPECT_NEAR(variance, 1, 0.05);
  auto [mu2, variance2] =
      meanAndVariance(run1({}, [&](const Views&) { return uniform({n}, 2.0, 6.0, DataType::Double, 3); }));
  EXPECT_NEAR(mu2, 4, 0.04);
  EXPECT_NEAR(variance2, 16.0 / 12, 0.05);
  auto [mu3, variance3] =
      meanAndVariance(run1({}, [&](const Views&) { return normal({n}, 1.0, 2.0, DataType::BFloat16, 4); }));
  EXPECT_NEAR(mu3, 1, 0.06);
  EXPECT_NEAR(variance3, 4, 0.2);
}

TEST(Random, LikeTakesShapeAndType) {
  Tensor x = counting({2, 3}, DataType::Half);
  Tensor y = run1({x}, [](const Views& v) { return rand_like(v[0], 9); });
  EXPECT_EQ(sizesOf(y), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(y.dtype(), DataType::Half);
}

TEST(Random, Dropout) {
  Tensor x = Tensor::full({10000}, DataType::Float, 3);
  std::vector<Tensor> out = run({x}, [](const Views& v) {
    ForwardDropoutResult r = dropout(v[0], 0.25);
    return Views{r.output, r.mask, dropout_backward(v[0], r.mask, 2.0)};
  });
  double kept = 0;
  for (int64_t i = 0; i < 10000; i++) {
    double mask = out[1].at({i});
    kept += mask;
    EXPECT_NEAR(out[0].at({i}), mask * 4, 1e-6);
    EXPECT_EQ(out[2].at({i}), mask * 6);
  }
  EXPECT_NEAR(kept / 10000, 0.75, 0.02);
  EXPECT_EQ(run1({Tensor::scalar(3)}, [](const Views& v) { return dropout(v[0], 1.0).output; }).item(), 0);
}

// The elements that dropout keeps are those whose uniform number, of the same seed, offset and ordinal, is below the probability.
TEST(Random, DropoutFollowsItsSource) {
  const Tensor x = Tensor::full({4096}, DataType::Float, 1);
  const auto masks = [&](int64_t seed, int64_t offset) {
    return run1({x}, [&](const Views& v) { return dropout(v[0], 0.5, RandomSource{seed, offset}).mask; }).toVector();
  };
  const auto numbers = [&](int64_t seed, int64_t offset) {
    std::vector<double> below;
    for (const double u : run1({x}, [&](const Views& v) { return rand_like(v[0], seed, offset); }).toVector()) {
      below.push_back(u < 0.5 ? 1 : 0);
    }
    return below;
  };
  EXPECT_EQ(masks(0, 0), run1({x}, [](const Views& v) { return dropout(v[0], 0.5).mask; }).toVector());
  for (const auto& [seed, offset] : {std::pair{0, 0}, {0, 1}, {7, 0}, {7, 5}}) {
    EXPECT_EQ(masks(seed, offset), numbers(seed, offset));
  }
  EXPECT_NE(masks(0, 0), masks(0, 1));
  EXPECT_NE(masks(0, 0), masks(7, 0));
}

// One fusion whose calls drop other elements, because the offset is an input.
TEST(Random, DropoutOfAnInputIsAnotherInEachCall) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(1);
  Val* step = IrBuilder::create<Val>(DataType::Int);
  fusion.addInput(x);
  fusion.addInput(step);
  const RandomSource source{3, step};
  TensorView* q = makeConcreteTensor({8, 8});
  fusion.addInput(q);
  fusion.addOutput(dropout(x, 0.5, source).mask);
  fusion.addOutput(dropout(x, 0.5, 2.0, source).mask);
  fusion.addOutput(sdpfa_fwd(q, q, q, 0.5, false, static_cast<Val*>(nullptr), source).dropout_mask);
  const auto call = [&](int64_t number) {
    std::vector<std::vector<double>> masks;
    for (const Tensor& t : interpret(fusion, {Tensor::full({512}, DataType::Float, 1), number, counting({8, 8})})) {
      masks.push_back(t.toVector());
    }
    return masks;
  };
  EXPECT_EQ(call(4), call(4));
  const auto first = call(4);
  const auto second = call(9);
  for (size_t k = 0; k < first.size(); k++) {
    EXPECT_NE(first[k], second[k]) << k;
  }
}

}  // namespace
}  // namespace meshfuse
