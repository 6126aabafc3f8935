// Programs with very many ops, inputs or outputs: each compiles, and its second call costs nothing new.
#include <gtest/gtest.h>

#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "sanitized.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

TensorView* chain(TensorView* x, int64_t length) {
  for (int64_t i = 0; i < length; i++) {
    switch (i % 4) {
      case 0:
        x = mul(x, 0.75);
        break;
      case 1:
        x = add(x, 0.5);
        break;
      case 2:
        x = neg(x);
        break;
      default:
        x = maximum(x, -4.0);
        break;
    }
  }
  return x;
}

void checkChain(int64_t length, int64_t kernels) {
  CheckedCache checked(
      [=](Fusion& f) {
        TensorView* x = makeContigTensor(1);
        f.addInput(x);
        f.addOutput(chain(x, length));
      },
      {.verify = Verify::Off});
  std::vector<Argument> inputs = {randomTensor({64}, DataType::Float, 1)};
  EXPECT_EQ(checked.call(inputs), "");
  EXPECT_EQ(checked.call(inputs), "");
  EXPECT_EQ(checked.cache().plansCompiled(), 1);
  EXPECT_LE(checked.cache().hostProgram()->steps.size(), kernels);
}

TEST(LongChain, OneHundredAndOneOps) { checkChain(101, 1); }
TEST(LongChain, OneThousandOps) { checkChain(1000, 10); }
TEST(LongChain, TenThousandOps) { checkChain(10000, 100); }

TEST(LongChain, ReadsItsFirstResultThroughout) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(1);
        f.addInput(x);
        TensorView* first = tanh(x);
        TensorView* y = first;
        for (int i = 0; i < 300; i++) {
          y = add(mul(y, 0.5), first);
        }
        f.addOutput(y);
      },
      {{randomTensor({100}, DataType::Float, 1)}});
}

TEST(LongChain, Diamonds) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(1);
        f.addInput(x);
        for (int i = 0; i < 60; i++) {
          x = mul(add(neg(x), abs(x)), 0.5);
        }
        f.addOutput(x);
      },
      {{randomTensor({100}, DataType::Float, 1)}});
}

TEST(LongChain, OfBroadcasts) {
  CheckedCache checked(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2);
        TensorView* b = makeContigTensor(1);
        f.addInput(x);
        f.addInput(b);
        for (int i = 0; i < (kSanitized ? 300 : 1000); i++) {
          x = i % 2 == 0 ? add(x, b) : mul(x, 0.5);
        }
        f.addOutput(x);
      },
      {.verify = Verify::Off});
  EXPECT_EQ(checked.call({randomTensor({6, 40}, DataType::Float, 1), randomTensor({40}, DataType::Float, 2)}), "");
  EXPECT_LE(checked.cache().hostProgram()->steps.size(), 4u);
}

TEST(LongChain, OfReductions) {
  CheckedCache checked(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2);
        f.addInput(x);
        for (int i = 0; i < 300; i++) {
          x = sub(mul(x, 0.5), mean(x, {1}, true));
        }
        f.addOutput(x);
      },
      {.verify = Verify::Off});
  EXPECT_EQ(checked.call({randomTensor({6, 40}, DataType::Float, 1)}), "");
}

TEST(ManySegments, OneHundredLayersOfReshapes) {
  CheckedCache checked(
      [](Fusion& f) {
        TensorView* x = makeContigConcreteTensor({12, 10});
        f.addInput(x);
        for (int i = 0; i < 100; i++) {
          x = i % 2 == 0 ? softmax(reshape(x, {10, 12}), 1) : softmax(reshape(transpose(x), {12, 10}), 0);
        }
        f.addOutput(x);
      },
      {.verify = Verify::Off});
  EXPECT_EQ(checked.call({randomTensor({12, 10}, DataType::Float, 1)}), "");
}

TEST(ManyInputs, SumOfTwoHundred) {
  std::vector<Argument> inputs;
  for (uint64_t i = 0; i < 200; i++) {
    inputs.emplace_back(randomTensor({33}, DataType::Float, i));
  }
  expectAgrees(
      [](Fusion& f) {
        TensorView* total = nullptr;
        for (int i = 0; i < 200; i++) {
          TensorView* x = makeContigTensor(1);
          f.addInput(x);
          total = total == nullptr ? x : add(total, x);
        }
        f.addOutput(total);
      },
      {inputs});
}

TEST(ManyInputs, CatOfOneHundred) {
  std::vector<Argument> inputs;
  for (uint64_t i = 0; i < 100; i++) {
    inputs.emplace_back(randomTensor({3, static_cast<int64_t>(i % 4)}, DataType::Float, i));
  }
  expectAgrees(
      [&](Fusion& f) {
        std::vector<TensorView*> all;
        for (const Argument& a : inputs) {
          const Tensor& t = std::get<Tensor>(a);
          all.push_back(makeContigConcreteTensor({t.size(0), t.size(1)}));
          f.addInput(all.back());
        }
        f.addOutput(cat(all, 1));
      },
      {inputs});
}

TEST(ManyOutputs, OptimiserOverFiveHundredTensors) {
  constexpr int64_t kTensors = 500;
  CheckedCache checked(
      [](Fusion& f) {
        Val* rate = IrBuilder::create<Val>(DataType::Double);
        f.addInput(rate);
        for (int64_t i = 0; i < kTensors; i++) {
          std::vector<int64_t> shape = {3 + i % 5, 8};
          TensorView* w = makeContigConcreteTensor(shape);
          TensorView* g = makeContigConcreteTensor(shape);
          TensorView* m = makeContigConcreteTensor(shape);
          f.addInput(w);
          f.addInput(g);
          f.addInput(m);
          TensorView* momentum = add(mul(m, 0.9), g);
          TensorView* next = sub(w, mul(momentum, rate));
          f.addOutput(next);
          f.addOutput(momentum);
          f.aliasOutputToInput(next, w);
          f.aliasOutputToInput(momentum, m);
        }
      },
      {.verify = Verify::Off});
  std::vector<Argument> inputs = {0.125};
  for (int64_t i = 0; i < kTensors; i++) {
    for (uint64_t k = 0; k < 3; k++) {
      inputs.emplace_back(randomTensor({3 + i % 5, 8}, DataType::Float, static_cast<uint64_t>(i) * 3 + k));
    }
  }
  EXPECT_EQ(checked.call(inputs), "");
  EXPECT_EQ(checked.call(inputs), "");
  EXPECT_EQ(checked.cache().plansCompiled(), 1);
  EXPECT_EQ(checked.results()[2].data(), std::get<Tensor>(inputs[4]).data());
}

TEST(ManyOutputs, EveryStepOfAChain) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2);
        f.addInput(x);
        for (int i = 0; i < 100; i++) {
          x = i % 10 == 9 ? softmax(x, 1) : add(mul(x, 0.5), 1.0);
          f.addOutput(x);
        }
      },
      {{randomTensor({4, 9}, DataType::Float, 1)}});
}

TEST(ManySegments, TwentyLayers) {
  CheckedCache checked(
      [](Fusion& f) {
        TensorView* x = makeContigConcreteTensor({6, 16});
        TensorView* w = makeContigConcreteTensor({16, 16});
        f.addInput(x);
        f.addInput(w);
        for (int i = 0; i < 20; i++) {
          x = add(x, tanh_gelu(linear(layer_norm(x, 1, nullptr, nullptr, 1e-5).output, w)));
        }
        f.addOutput(x);
      },
      {.verify = Verify::Off});
  EXPECT_EQ(
      checked.call({randomTensor({6, 16}, DataType::Float, 1), randomTensor({16, 16}, DataType::Float, 2, -0.1, 0.1)}),
      "");
  EXPECT_LE(checked.cache().hostProgram()->steps.size(), 61u);
}

}  // namespace

}  // namespace meshfuse
