// How many kernels typical programs become, and what these move.
#include "segment/segment.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/ranges.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "segment/local_context.h"
#include "segment/traffic.h"

namespace meshfuse {

namespace {

TEST(Segmentation, PointwiseChainIsOneKernel) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        TensorView* b = input(f, {kColumns});
        f.addOutput(tanh_gelu(add(mul(x, 2.0), b)));
      },
      {random({kRows, kColumns}), random({kColumns})});
  EXPECT_EQ(t.steps, (Steps{"pointwise"}));
  EXPECT_EQ(t.readBytes, kBytes + kColumns * 4);
  EXPECT_EQ(t.writtenBytes, kBytes);
  EXPECT_EQ(t.arenaBytes, 0);
}

TEST(Segmentation, SoftmaxIsOneKernel) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        f.addOutput(softmax(input(f, {kRows, kColumns}), 1));
      },
      {random({kRows, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"normalization"}));
  EXPECT_EQ(t.readBytes, kBytes);
  EXPECT_EQ(t.writtenBytes, kBytes);
  EXPECT_EQ(t.arenaBytes, 0);
}

TEST(Segmentation, LayerNormOfAResidualIsOneKernel) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        TensorView* y = input(f, {kRows, kColumns});
        TensorView* w = input(f, {kColumns});
        TensorView* b = input(f, {kColumns});
        TensorView* residual = add(x, y);
        f.addOutput(residual);
        f.addOutput(layer_norm(residual, std::vector<int64_t>{kColumns}, w, b, 1e-5).output);
      },
      {random({kRows, kColumns}), random({kRows, kColumns}), random({kColumns}), random({kColumns})});
  EXPECT_EQ(t.steps, (Steps{"normalization"}));
  EXPECT_EQ(t.readBytes, 2 * kBytes + 2 * kColumns * 4);
  EXPECT_EQ(t.writtenBytes, 2 * kBytes);
  EXPECT_EQ(t.arenaBytes, 0);
}

// x is read once, and whole sets of elements that belong together stay in one kernel.
TEST(Segmentation, StatisticsAndExtremesAreOneKernel) {
  using Define = std::function<TensorView*(TensorView*)>;
  std::vector<Define> ops = {
      [](TensorView* x) { return variance(x, {1}); },
      [](TensorView* x) { return variance(x, {0}); },
      [](TensorView* x) { return standard_deviation(x, {}, 0); },
      [](TensorView* x) { return argmax(x, 1); },
      [](TensorView* x) { return argmin(x, 0); },
      [](TensorView* x) { return argmax(x); },
  };
  for (size_t k = 0; k < ops.size(); k++) {
    ProgramTraffic t = measure(
        [&](Fusion& f) {
          f.addOutput(ops[k](input(f, {kRows, kColumns})));
        },
        {random({kRows, kColumns})});
    EXPECT_EQ(t.steps, (Steps{"normalization"})) << k;
    EXPECT_EQ(t.readBytes, kBytes) << k;
    EXPECT_EQ(t.arenaBytes, 0) << k;
  }
}

TEST(Segmentation, ScansAndOrdersStandBetweenKernels) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        f.addOutput(mul(cumsum(exp(x), 1), 2.0));
        f.addOutput(neg(sort(x, 1).values));
      },
      {random({kRows, kColumns})});
  std::sort(t.steps.begin(), t.steps.end());
  EXPECT_EQ(t.steps, (Steps{"argsort", "pointwise", "pointwise", "scan"}));  // both readers share a kernel
}

// The kernel of a scan on a GPU reads the 16 bits that the kernel before it writes. The routine of a CPU reads Float.
TEST(Segmentation, CastsWaitForScansThatAreKernels) {
  for (const DeviceInfo& device : {DeviceInfo::hopper(), DeviceInfo{}}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = input(fusion, {kRows, kColumns}, DataType::BFloat16);
    TensorView* norm =
        layer_norm(castOp(DataType::Float, x), std::vector<int64_t>{kColumns}, nullptr, nullptr, 1e-5).output;
    TensorView* narrow = castOp(DataType::BFloat16, norm);
    TensorView* wide = castOp(DataType::Float, narrow);
    TensorView* sums = cumsum(wide, 1);
    fusion.addOutput(castOp(DataType::BFloat16, sums));
    const bool isGpu = device.target == tile::Target::Gpu;
    const std::vector<Segment> segments = segment(fusion, {.device = device});
    ASSERT_EQ(segments.size(), isGpu ? 2 : 3);
    EXPECT_EQ(segments[0].group.outputs, std::vector<TensorView*>{isGpu ? narrow : wide});
    EXPECT_EQ(segments[1].group.inputs, segments[0].group.outputs);
    EXPECT_TRUE(contains(segments[1].group.exprs, sums->definition()));
  }
}

TEST(Segmentation, NormsByChannelAreOneKernel) {
  const std::vector<int64_t> shape = {4, 6, 8, 10};
  for (int norm = 0; norm < 6; norm++) {
    ProgramTraffic t = measure(
        [&](Fusion& f) {
          TensorView* x = input(f, shape);
          TensorView* w = input(f, {norm == 4 ? 10 : 6});
          if (norm == 0) {
            f.addOutput(batch_norm(x, w, w, nullptr, nullptr, true, 0.1, 1e-5).output);
          } else if (norm == 1) {
            f.addOutput(batch_norm(x, w, w, w, exp(w), false, 0.1, 1e-5).output);
          } else if (norm == 2) {
            f.addOutput(instance_norm(x, w, w, nullptr, nullptr, true, 0.1, 1e-5).output);
          } else if (norm == 3) {
            f.addOutput(group_norm(x, 3, nullptr, nullptr, 1e-5).output);
          } else if (norm == 4) {
            f.addOutput(batch_norm(x, w, w, nullptr, nullptr, true, 0.1, 1e-5, true).output);
          } else {
            f.addOutput(group_norm(x, 3, w, w, 1e-5).output);
          }
        },
        {random(shape), random({norm == 4 ? 10 : 6})});
    EXPECT_EQ(t.steps, (Steps{norm == 1 ? "pointwise" : "normalization"})) << norm;
    EXPECT_EQ(t.arenaBytes, 0) << norm;
  }
}

TEST(Segmentation, MlpIsTwoLibraryCallsWithOneKernelBetween) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        TensorView* w1 = input(f, {160, kColumns});
        TensorView* b1 = input(f, {160});
        TensorView* w2 = input(f, {kColumns, 160});
        f.addOutput(linear(tanh_gelu(linear(x, w1, b1)), w2));
      },
      {random({kRows, kColumns}), random({160, kColumns}), random({160}), random({kColumns, 160})});
  EXPECT_EQ(t.steps, (Steps{"linear", "pointwise", "linear"}));
  EXPECT_EQ(t.readBytes, kRows * 160 * 4);
  EXPECT_EQ(t.writtenBytes, kRows * 160 * 4);
}

TEST(Segmentation, EpilogueAfterALibraryCallIsOneKernel) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        TensorView* w = input(f, {kColumns, kColumns});
        TensorView* y = add(linear(x, w), x);
        f.addOutput(softmax(y, 1));
        f.addOutput(y);
      },
      {random({kRows, kColumns}), random({kColumns, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"linear", "normalization"}));
  EXPECT_EQ(t.readBytes, 2 * kBytes);
  EXPECT_EQ(t.writtenBytes, 2 * kBytes);
}

TEST(Segmentation, ReductionsOverTheSameDimsShareAKernel) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        f.addOutput(sum(x, {1}));
        f.addOutput(max(exp(x), {1}));
      },
      {random({kRows, kColumns})});
  EXPECT_LE(t.steps.size(), 2u);
  EXPECT_EQ(t.writtenBytes, 2 * kRows * 4);
  EXPECT_EQ(t.arenaBytes, 0);
}

TEST(Segmentation, ReductionsOfOneIntermediateShareAKernel) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = exp(input(f, {kRows, kColumns}));
        f.addOutput(sum(x, {1}));
        f.addOutput(max(x, {1}));
      },
      {random({kRows, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"reduction"}));
  EXPECT_EQ(t.readBytes, kBytes);
  EXPECT_EQ(t.writtenBytes, 2 * kRows * 4);
}

TEST(Segmentation, ReductionsOverOtherDimsSayWhyTheyAreApart) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = exp(input(f, {kRows, kColumns}));
        f.addOutput(sum(x, {0}));
        f.addOutput(sum(x, {1}));
      },
      {random({kRows, kColumns})});
  EXPECT_EQ(t.steps.size(), 2u);
  ASSERT_EQ(t.boundaries.size(), 1u);
  EXPECT_NE(t.boundaries[0].find("does not join: "), std::string::npos);
  EXPECT_NE(t.boundaries[0].find("reduces other dims"), std::string::npos) << t.boundaries[0];
}

TEST(Segmentation, SegmentSetIsABoundary) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        f.addOutput(exp(segment_set(neg(x))));
      },
      {random({kRows, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"pointwise", "pointwise"}));
  EXPECT_EQ(t.readBytes, 2 * kBytes);
  EXPECT_EQ(t.arenaBytes, kBytes);
}

TEST(Segmentation, ShapeOpsAreInsideKernels) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        TensorView* y = cat({slice(x, {0, 0}, {kRows, 30}), pad(slice(x, {0, 40}, {kRows, 60}), {5, 5})}, 1);
        f.addOutput(exp(transpose(reshape(y, {kRows, 6, 10}), 0, 1)));
      },
      {random({kRows, kColumns})});
  EXPECT_EQ(t.steps, (Steps{"pointwise"}));
  EXPECT_EQ(t.readBytes, kRows * 50 * 4);
  EXPECT_EQ(t.writtenBytes, kRows * 60 * 4);
}

TEST(Segmentation, ViewsOfResultsCostNothing) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        TensorView* w = input(f, {40, 40});
        f.addOutput(exp(linear(reshape(linear(reshape(x, {kRows * 2, 40}), w), {kRows, 2, 40}), w)));
      },
      {random({kRows, kColumns}), random({40, 40})});
  EXPECT_LE(t.steps.size(), 4u);
  EXPECT_EQ(t.steps.back(), "pointwise");
}

TEST(Segmentation, SmallSharedTensorsAreNotWrittenForTheirReaders) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {kRows, kColumns});
        TensorView* b = castOp(DataType::Float, input(f, {kColumns}, DataType::BFloat16));
        f.addOutput(sum(mul(x, b), {1}));
        f.addOutput(sum(add(x, b), {0}));
      },
      {random({kRows, kColumns}), random({kColumns}, 1, DataType::BFloat16)});
  EXPECT_EQ(t.steps.size(), 2u);
  EXPECT_EQ(t.arenaBytes, 0);
  EXPECT_EQ(t.readBytes, 2 * (kBytes + kColumns * 2));
}

// Both products and the sum read the one tensor that the first kernel writes, in 16 bits.
TEST(Segmentation, ResultsBetweenKernelsAreWrittenOnceInTheirNarrowType) {
  constexpr DataType kType = DataType::BFloat16;
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = castOp(kType, mul(input(f, {kRows, kColumns}, kType), 2.0));
        TensorView* a = linear(x, input(f, {kColumns, kColumns}, kType));
        TensorView* b = linear(x, input(f, {kColumns, kColumns}, kType));
        f.addOutput(add(add(x, a), b));
      },
      {random({kRows, kColumns}, 1, kType), random({kColumns, kColumns}, 2, kType),
       random({kColumns, kColumns}, 3, kType)});
  EXPECT_EQ(t.steps, (Steps{"pointwise", "linear", "linear", "pointwise"}));
  EXPECT_EQ(t.writtenBytes, kBytes / 2 + kBytes);  // of kernels
  EXPECT_EQ(t.readBytes, 4 * kBytes / 2);
}

TEST(Segmentation, UpdatesOfOneShapeAndOfMany) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        for (int i = 0; i < 6; i++) {
          TensorView* w = input(f, {10 + i, 8});
          TensorView* g = input(f, {10 + i, 8});
          TensorView* next = sub(w, mul(g, 0.5));
          f.addOutput(next);
          f.aliasOutputToInput(next, w);
        }
      },
      [] {
        std::vector<Argument> inputs;
        for (int i = 0; i < 6; i++) {
          inputs.emplace_back(random({10 + i, 8}));
          inputs.emplace_back(random({10 + i, 8}));
        }
        return inputs;
      }());
  EXPECT_LE(t.steps.size(), 6u);
  EXPECT_EQ(t.arenaBytes, 0);
  EXPECT_EQ(t.writtenBytes, t.readBytes / 2);
}

TEST(Segmentation, ContractionOfIntegersIsOneReductionKernel) {
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {5, 7}, DataType::Int);
        TensorView* y = input(f, {7, 6}, DataType::Int);
        f.addOutput(neg(matmul(x, y)));
      },
      {random({5, 7}, 1, DataType::Int), random({7, 6}, 1, DataType::Int)});
  EXPECT_EQ(t.steps, (Steps{"reduction"}));
  EXPECT_EQ(t.readBytes, (5 * 7 + 7 * 6) * 8);
  EXPECT_EQ(t.writtenBytes, 5 * 6 * 8);
}

TEST(Segmentation, NothingWaitsForItself) {
  // y joins the kernel of x's exponential only if the library call between them is not waited for
  ProgramTraffic t = measure(
      [](Fusion& f) {
        TensorView* x = input(f, {16, 16});
        TensorView* a = exp(x);
        TensorView* b = linear(a, x);
        f.addOutput(add(neg(a), b));
        f.addOutput(sum(a, {0}));
      },
      {random({16, 16})});
  EXPECT_EQ(std::count(t.steps.begin(), t.steps.end(), "linear"), 1);
  EXPECT_LE(t.steps.size(), 4u);
}

}  // namespace

}  // namespace meshfuse
