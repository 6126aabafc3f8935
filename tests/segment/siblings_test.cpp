// Kernels that do not read each other: when they become one, what that saves, and why others stay apart.
#include <gtest/gtest.h>

#include <numeric>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "segment/traffic.h"

namespace meshfuse {

namespace {

std::string text(const std::vector<std::string>& lines) {
  return std::accumulate(lines.begin(), lines.end(), std::string(),
                         [](const std::string& a, const std::string& b) { return a + b + "\n"; });
}

TEST(Siblings, TwoResultsOfOneInputReadItOnce) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        f.addOutput(exp(x));
        f.addOutput(tanh(x));
      },
      {random({kRows, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"pointwise"}));
  EXPECT_EQ(t.readBytes, kBytes);
  EXPECT_EQ(t.writtenBytes, 2 * kBytes);
  EXPECT_NE(text(t.joins).find("both read T0"), std::string::npos) << text(t.joins);
}

TEST(Siblings, StrangersOfOneShapeShareALaunch) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        f.addOutput(exp(input(f, {kRows, kColumns})));
        f.addOutput(tanh(input(f, {kRows, kColumns})));
      },
      {random({kRows, kColumns}), random({kRows, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"pointwise"}));
  EXPECT_EQ(t.readBytes, 2 * kBytes);
  EXPECT_EQ(t.writtenBytes, 2 * kBytes);
  EXPECT_NE(text(t.joins).find("same loop, one launch less"), std::string::npos) << text(t.joins);
}

TEST(Siblings, StrangersOfOtherShapesStayApart) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        f.addOutput(exp(input(f, {kRows, kColumns})));
        f.addOutput(tanh(input(f, {kRows, kColumns + 1})));
      },
      {random({kRows, kColumns}), random({kRows, kColumns + 1})});
  EXPECT_EQ(t.steps.size(), 2u);
}

TEST(Siblings, RowsAndWhatIsOfTheSameRows) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        f.addOutput(sum(x, {1}));
        f.addOutput(exp(x));
      },
      {random({kRows, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"normalization"}));
  EXPECT_EQ(t.readBytes, kBytes);
  EXPECT_EQ(t.writtenBytes, kBytes + kRows * 4);
}

TEST(Siblings, RowsAndStrangersOfOneElementARowStayApart) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        f.addOutput(sum(input(f, {kRows, kColumns}), {1}));
        f.addOutput(exp(input(f, {kRows})));
      },
      {random({kRows, kColumns}), random({kRows})});
  EXPECT_EQ(t.steps.size(), 2u);
}

TEST(Siblings, ColumnSumsOfSeveralTensorsAreOneKernel) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* dy = input(f, {kRows, kColumns});
        TensorView* x = input(f, {kRows, kColumns});
        f.addOutput(sum(mul(dy, x), {0}));
        f.addOutput(sum(dy, {0}));
      },
      {random({kRows, kColumns}), random({kRows, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"reduction"}));
  EXPECT_EQ(t.readBytes, 2 * kBytes);
  EXPECT_EQ(t.writtenBytes, 2 * kColumns * 4);
}

ProgramTraffic ofLayerNormBackward(int64_t rows, int64_t columns) {
  return measure(
      [&](Fusion& f) {
        TensorView* dy = input(f, {rows, columns});
        TensorView* x = input(f, {rows, columns});
        TensorView* mean = input(f, {rows, 1});
        TensorView* invstd = input(f, {rows, 1});
        TensorView* w = input(f, {columns});
        TensorView* b = input(f, {columns});
        BackwardNormResult r = layer_norm_backward(dy, x, {columns}, mean, invstd, w, b, {true, true, true});
        f.addOutput(r.grad_input);
        f.addOutput(r.grad_weight);
        f.addOutput(r.grad_bias);
      },
      {random({rows, columns}), random({rows, columns}), random({rows, 1}), random({rows, 1}), random({columns}),
       random({columns})});
}

TEST(Siblings, LayerNormBackwardOfFewRowsIsARowKernelAndAColumnKernel) {
  const ProgramTraffic t = ofLayerNormBackward(kRows, kColumns);
  EXPECT_EQ(t.steps, (Steps{"normalization", "reduction"}));
  EXPECT_EQ(t.readBytes, 4 * kBytes + (2 * kRows + kColumns) * 4);
}

TEST(Siblings, LayerNormBackwardOfManyRowsIsOneKernel) {
  const ProgramTraffic t = ofLayerNormBackward(256, 200);
  EXPECT_EQ(t.steps, (Steps{"normalization"}));
  EXPECT_EQ(t.readBytes, (2 * 256 * 200 + 2 * 256 + 200) * 4);
}

TEST(Siblings, ATransposedCopyIsNotWrittenAcrossRows) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        f.addOutput(exp(x));
        f.addOutput(neg(transpose(x, 0, 1)));
      },
      {random({kRows, kColumns})});
  EXPECT_EQ(t.steps.size(), 2u);
  EXPECT_NE(text(t.boundaries).find("would be accessed across its rows"), std::string::npos) << text(t.boundaries);
}

TEST(Siblings, AKernelThatWaitsForTheOtherStaysAfterIt) {
  // the second exponential waits for the first by way of the library call: no kernel holds both
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {16, 16});
        TensorView* w = input(f, {16, 16});
        f.addOutput(exp(linear(exp(x), w)));
      },
      {random({16, 16}), random({16, 16})});
  EXPECT_EQ(t.steps, (Steps{"pointwise", "linear", "pointwise"}));
}

TEST(Siblings, KernelsBesideALibraryCallJoin) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {16, 16});
        TensorView* w = input(f, {16, 16});
        TensorView* y = exp(x);
        f.addOutput(linear(y, w));
        f.addOutput(neg(x));
        f.addOutput(sum(x, {1}));
      },
      {random({16, 16}), random({16, 16})});
  EXPECT_EQ(t.steps, (Steps{"normalization", "linear"})) << text(t.boundaries);
}

constexpr int64_t kLarge = 1 << 18;  // elements: 1 MiB, so that a dozen of them are in no cache

TEST(Siblings, LargeStrangersStayApart) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        f.addOutput(neg(input(f, {kLarge})));
        f.addOutput(abs(input(f, {kLarge})));
      },
      {Tensor::zeros({kLarge}, DataType::Float), Tensor::zeros({kLarge}, DataType::Float)});
  EXPECT_EQ(t.steps.size(), 2u);
  EXPECT_NE(text(t.boundaries).find("their memory traffic costs more than the launch"), std::string::npos)
      << text(t.boundaries);
}

TEST(Siblings, NoKernelRunsOverMoreTensorsThanPrefetchersFollow) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kLarge});
        for (int i = 0; i < 12; i++) {
          f.addOutput(add(x, input(f, {kLarge})));
        }
      },
      std::vector<Argument>(13, Tensor::zeros({kLarge}, DataType::Float)));
  EXPECT_EQ(t.steps.size(), 2u) << text(t.joins);
  EXPECT_NE(text(t.boundaries).find("more than the limit of one loop, 16"), std::string::npos) << text(t.boundaries);
}

TEST(Siblings, UpdatesInPlaceStayInPlace) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* g = input(f, {kRows, kColumns});
        for (int i = 0; i < 2; i++) {
          TensorView* w = input(f, {kRows, kColumns});
          TensorView* next = sub(w, g);
          f.addOutput(next);
          f.aliasOutputToInput(next, w);
        }
        f.addOutput(sum(g, {1}));
      },
      {random({kRows, kColumns}), random({kRows, kColumns}), random({kRows, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"reduction", "pointwise"})) << text(t.joins);
  EXPECT_EQ(t.arenaBytes, 0);
  EXPECT_EQ(t.readBytes, 4 * kBytes);
}

TEST(Siblings, WhatReadsAnUpdatedInputIsNotBesideTheUpdate) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* w = input(f, {kRows, kRows});
        TensorView* next = mul(w, 0.5);
        f.addOutput(next);
        f.aliasOutputToInput(next, w);
        f.addOutput(sum(w, {1}));
      },
      {random({kRows, kRows})});
  EXPECT_EQ(t.steps.size(), 2u);
  EXPECT_EQ(t.arenaBytes, 0);
  EXPECT_NE(text(t.boundaries).find("T0 could not be updated in place any more"), std::string::npos)
      << text(t.boundaries);
}

}  // namespace

}  // namespace meshfuse
