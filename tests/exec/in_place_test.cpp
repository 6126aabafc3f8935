// Results written into inputs while something else reads the old value.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "host/program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

// Calls with fresh copies of the arguments, twice.
void expectUpdates(const BuildFusion& build, const std::vector<Tensor>& inputs) {
  CheckedCache checked(build);
  for (int call = 0; call < 2; call++) {
    std::vector<Argument> arguments;
    for (const Tensor& t : inputs) {
      arguments.emplace_back(t.clone());
    }
    ASSERT_EQ(checked.call(arguments), "");
    const Fusion& fusion = checked.cache().fusion();
    for (size_t o = 0; o < fusion.outputs().size(); o++) {
      if (std::optional<int> in = fusion.aliasOf(static_cast<int>(o))) {
        EXPECT_EQ(checked.results()[o].data(), std::get<Tensor>(arguments[*in]).data());
      }
    }
  }
}

TEST(InPlace, BroadcastReadByAnotherResult) {
  for (bool boundary : {false, true}) {
    expectUpdates(
        [=](Fusion& f) {
          TensorView* x = stridedInput(f, {8});
          TensorView* y = stridedInput(f, {5, 8});
          TensorView* next = relu(x);
          f.addOutput(next);
          f.aliasOutputToInput(next, x);
          f.addOutput(add(boundary ? segment_set(x) : x, y));
        },
        {random({8}), random({5, 8}, 2)});
  }
}

TEST(InPlace, ReadElsewhereInTheSameKernel) {
  for (int reads = 0; reads < 5; reads++) {
    expectUpdates(
        [=](Fusion& f) {
          TensorView* x = stridedInput(f, {6, 6});
          TensorView* other = reads == 0   ? transpose(x)
                              : reads == 1 ? slice(pad(x, {1, 0}), {0, 0}, {6, 6})
                              : reads == 2 ? broadcast(sum(x, {1}), {false, true})
                              : reads == 3 ? softmax(x, 1)
                                           : cat({slice(x, {0, 3}, {6, 6}), slice(x, {0, 0}, {6, 3})}, 1);
          TensorView* next = add(x, other);
          f.addOutput(next);
          f.aliasOutputToInput(next, x);
        },
        {random({6, 6})});
  }
}

TEST(InPlace, LargeTransposedRead) {
  expectUpdates(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {150, 150});
        TensorView* next = transpose(x);
        f.addOutput(next);
        f.aliasOutputToInput(next, x);
      },
      {random({150, 150})});
}

TEST(InPlace, TwoInputsExchanged) {
  expectUpdates(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {40});
        TensorView* y = stridedInput(f, {40});
        TensorView* a = mul(y, 2.0);
        TensorView* b = neg(x);
        f.addOutput(a);
        f.addOutput(b);
        f.aliasOutputToInput(a, x);
        f.aliasOutputToInput(b, y);
      },
      {random({40}), random({40}, 2)});
}

TEST(InPlace, TwoInputsExchangedUnchanged) {
  expectUpdates(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {40});
        TensorView* y = stridedInput(f, {40});
        TensorView* a = set(y);
        TensorView* b = set(x);
        f.addOutput(a);
        f.addOutput(b);
        f.aliasOutputToInput(a, x);
        f.aliasOutputToInput(b, y);
      },
      {random({40}), random({40}, 2)});
}

TEST(InPlace, EachUpdateReadsBoth) {
  expectUpdates(
      [](Fusion& f) {
        TensorView* w = stridedInput(f, {7, 9});
        TensorView* m = stridedInput(f, {7, 9});
        TensorView* g = stridedInput(f, {7, 9});
        TensorView* momentum = add(mul(m, 0.9), add(g, mul(w, 0.01)));
        TensorView* next = sub(w, mul(momentum, 0.1));
        f.addOutput(momentum);
        f.addOutput(next);
        f.aliasOutputToInput(momentum, m);
        f.aliasOutputToInput(next, w);
        f.addOutput(sum(mul(w, m), {0, 1}));
      },
      {random({7, 9}), random({7, 9}, 2), random({7, 9}, 3)});
}

// Three results, each of any of the three inputs and perhaps of the result before it; two of them replace inputs. One kernel may
// compute all three, in any order.
TEST(InPlace, AnyResultReadsAnyOldValue) {
  constexpr int kInputs = 3;
  for (int sets = 0; sets < 4 * 7 * 7 * 7; sets++) {
    const std::array<int, kInputs> reads = {1 + sets % 7, 1 + sets / 7 % 7, 1 + sets / 49 % 7};  // bit k: input k
    const int links = sets / 343;  // bit r: result r + 1 reads result r
    expectUpdates(
        [&](Fusion& f) {
          std::vector<TensorView*> inputs;
          for (int k = 0; k < kInputs; k++) {
            inputs.push_back(stridedInput(f, {12}));
          }
          std::vector<TensorView*> results;
          for (int r = 0; r < kInputs; r++) {
            TensorView* result = r > 0 && (links >> (r - 1) & 1) != 0 ? neg(results[r - 1]) : nullptr;
            for (int k = 0; k < kInputs; k++) {
              if ((reads[r] >> k & 1) != 0) {
                result = result == nullptr ? mul(inputs[k], 1.5 + r) : sub(result, inputs[k]);
              }
            }
            results.push_back(result);
          }
          std::array<int, kInputs> order = {0, 1, 2};
          for (int step = sets % 6; step > 0; step--) {
            std::ranges::next_permutation(order);
          }
          for (const int r : order) {
            f.addOutput(results[r]);
          }
          f.aliasOutputToInput(results[0], inputs[0]);
          f.aliasOutputToInput(results[1], inputs[1]);
        },
        {random({12}), random({12}, 2), random({12}, 3)});
  }
}

TEST(InPlace, InputIsAlsoAnOutput) {
  std::string error = errorOf([] {
    expectUpdates(
        [](Fusion& f) {
          TensorView* x = stridedInput(f, {12});
          TensorView* next = add(x, 1.0);
          f.addOutput(next);
          f.aliasOutputToInput(next, x);
          f.addOutput(set(x));
        },
        {random({12})});
  });
  EXPECT_EQ(error, "");
}

TEST(InPlace, ResultIsReadByLaterKernels) {
  expectUpdates(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {5, 30});
        TensorView* next = add(softmax(x, 1), x);
        f.addOutput(next);
        f.aliasOutputToInput(next, x);
        f.addOutput(sum(mul(next, x), {0}));
        f.addOutput(softmax(next, 0));
      },
      {random({5, 30})});
}

TEST(InPlace, ContractionIntoAnOperandAndIntoAStrangersMemory) {
  for (bool transposed : {false, true}) {
    Tensor x = random({6, 6});
    Tensor y = random({6, 6}, 2);
    CheckedCache checked([](Fusion& f) {
      TensorView* a = stridedInput(f, {6, 6});
      TensorView* b = stridedInput(f, {6, 6});
      TensorView* p = matmul(a, b);
      TensorView* q = matmul(b, a);
      f.addOutput(p);
      f.addOutput(q);
      f.aliasOutputToInput(p, a);
      f.aliasOutputToInput(q, b);
    });
    EXPECT_EQ(checked.call({transposed ? x.transpose(0, 1) : x, transposed ? y.transpose(0, 1) : y}), "");
    CheckedCache stranger([](Fusion& f) {
      TensorView* a = stridedInput(f, {6, 6});
      TensorView* b = stridedInput(f, {6, 6});
      TensorView* c = stridedInput(f, {6, 6});
      TensorView* p = matmul(a, b);
      f.addOutput(p);
      f.aliasOutputToInput(p, c);
    });
    Tensor z = random({6, 6}, 3);
    EXPECT_EQ(stranger.call({x, y, transposed ? z.transpose(0, 1) : z}), "");
  }
}

TEST(InPlace, StridedMemoryOfEveryWriter) {
  Tensor base = random({8, 10}, 5);
  for (int writer = 0; writer < 6; writer++) {
    CheckedCache checked([=](Fusion& f) {
      TensorView* x = stridedInput(f, {4, 5});
      TensorView* w = stridedInput(f, {4, 5});
      TensorView* next = writer == 0   ? add(w, x)
                         : writer == 1 ? set(x)
                         : writer == 2 ? softmax(x, 1)
                         : writer == 3 ? add(w, sum(x, {1}, true))
                         : writer == 4 ? cumsum(x, 1)
                                       : mul(cumsum(x, 1), 2.0);
      f.addOutput(next);
      f.aliasOutputToInput(next, w);
    });
    Tensor w = base.clone().slice(0, 0, 8, 2).slice(1, 0, 10, 2);
    EXPECT_EQ(checked.call({random({4, 5}), w}), "") << writer;
    EXPECT_EQ(checked.call({random({4, 5}, 2), w}), "") << writer;
  }
}

TEST(InPlace, OutputFedBackAsInput) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* state = stridedInput(*fusion, {16});
    TensorView* x = stridedInput(*fusion, {16});
    TensorView* next = add(mul(state, 0.5), x);
    fusion->addOutput(next);
    fusion->aliasOutputToInput(next, state);
    fusion->addOutput(sub(next, state));
  }
  FusionExecutorCache cache(std::move(fusion));
  Tensor state = Tensor::zeros({16}, DataType::Float);
  Tensor x = Tensor::full({16}, DataType::Float, 1);
  double expected = 0;
  for (int step = 0; step < 5; step++) {
    std::vector<Tensor> out = cache.runFusionWithInputs({state, x});
    double before = expected;
    expected = expected * 0.5 + 1;
    EXPECT_EQ(out[0].at({3}), expected);
    EXPECT_EQ(out[1].at({3}), expected - before);
    state = out[0];
    x = Tensor::full({16}, DataType::Float, 1);
  }
  EXPECT_EQ(cache.plansCompiled(), 1);
}

TEST(InPlace, PlainOutputFedBackAsInput) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* state = stridedInput(*fusion, {16});
    fusion->addOutput(add(mul(state, 0.5), 1.0));
  }
  FusionExecutorCache cache(std::move(fusion));
  Tensor state = Tensor::zeros({16}, DataType::Float);
  double expected = 0;
  for (int step = 0; step < 5; step++) {
    Tensor next = cache.runFusionWithInputs({state})[0];
    EXPECT_EQ(state.at({5}), expected) << "the input changed";
    expected = expected * 0.5 + 1;
    EXPECT_EQ(next.at({5}), expected);
    state = next;
  }
}

// -- arguments that share memory ---------------------------------------------------------------------------------------------

BuildFusion scaledInPlace(double factor) {
  return [=](Fusion& f) {
    TensorView* w = stridedInput(f, {4, 4});
    TensorView* x = stridedInput(f, {4, 4});
    TensorView* next = add(mul(w, factor), x);
    f.addOutput(next);
    f.aliasOutputToInput(next, w);
    f.addOutput(sum(x, {0}));
  };
}

TEST(SharedMemory, OneTensorAsTwoArgumentsOneOfThemUpdated) {
  CheckedCache checked(scaledInPlace(0.5));
  Tensor t = random({4, 4});
  EXPECT_EQ(errorOf([&] {
              (void)checked.cache().runFusionWithInputs({t, t});
            }),
            "UserError: [run] input 0 and input 1 share memory, and output 0 is written there; pass a "
            "copy, see "
            "Tensor::clone");
  EXPECT_NE(errorOf([&] {
              (void)checked.cache().runFusionWithInputs({t, t.transpose(0, 1)});
            }).find("share memory"),
            std::string::npos);
  Tensor before = t.clone();
  EXPECT_EQ(t.toVector(), before.toVector());
  EXPECT_EQ(checked.call({t, random({4, 4}, 2)}), "");
}

TEST(SharedMemory, ViewsOfOneBufferThatDoNotMeet) {
  CheckedCache checked(scaledInPlace(0.5));
  Tensor base = random({4, 8});
  EXPECT_EQ(checked.call({base.slice(1, 0, 4), base.slice(1, 4, 8)}), "");
  EXPECT_EQ(checked.call({base.slice(1, 0, 8, 2), base.slice(1, 1, 8, 2)}), "");
  EXPECT_NE(errorOf([&] {
              (void)checked.cache().runFusionWithInputs({base.slice(1, 0, 4), base.slice(1, 3, 7)});
            }).find("share memory"),
            std::string::npos);
}

TEST(SharedMemory, ReadTwiceIsFine) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = stridedInput(f, {4, 4});
    TensorView* y = stridedInput(f, {4, 4});
    f.addOutput(mul(x, transpose(y)));
  });
  Tensor t = random({4, 4});
  EXPECT_EQ(checked.call({t, t}), "");
  EXPECT_EQ(checked.call({t, t.transpose(0, 1)}), "");
}

TEST(SharedMemory, OverlappingWindowsAreNoPlaceForAResult) {
  CheckedCache checked([](Fusion& f) {
    TensorView* w = stridedInput(f, {4, 4});
    TensorView* next = add(w, 1.0);
    f.addOutput(next);
    f.aliasOutputToInput(next, w);
  });
  Tensor base = random({64});
  std::string error = errorOf([&] { (void)checked.cache().runFusionWithInputs({base.asStrided({4, 4}, {2, 1})}); });
  EXPECT_TRUE(error.starts_with("UserError: [run] input 0 (T0)")) << error;
  EXPECT_NE(error.find("strides [2, 1]"), std::string::npos) << error;
  EXPECT_EQ(checked.call({base.asStrided({4, 4}, {5, 1})}), "");
  EXPECT_EQ(checked.call({base.asStrided({4, 4}, {1, 4})}), "");
}

}  // namespace

}  // namespace meshfuse
