// Sums of rows and of columns in one kernel, against the reference interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "ops/factory.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"

namespace meshfuse {

namespace {

using BuildOutputs = std::function<std::vector<TensorView*>(const std::vector<TensorView*>&)>;
using InputShapes = std::vector<std::vector<int64_t>>;

void defineOutputs(Fusion& fusion, const InputShapes& shapes, const BuildOutputs& build, DataType type) {
  FusionGuard guard(&fusion);
  std::vector<TensorView*> ins;
  for (const std::vector<int64_t>& shape : shapes) {
    ins.push_back(makeContigConcreteTensor(shape, type));
    fusion.addInput(ins.back());
  }
  for (TensorView* out : build(ins)) {
    fusion.addOutput(out);
  }
}

// A GPU with so few multiprocessors that some hundred rows occupy it.
DeviceInfo smallGpu() {
  DeviceInfo device = DeviceInfo::hopper();
  device.gpu.processors = 4;
  return device;
}

int64_t elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// On a CPU, whose check it returns, and on a GPU, which reads no input twice.
KernelCheck checkColumns(const InputShapes& shapes, const BuildOutputs& build, DataType type = DataType::Float) {
  Fusion fusion;
  defineOutputs(fusion, shapes, build, type);
  std::vector<Argument> arguments;
  for (size_t i = 0; i < shapes.size(); i++) {
    arguments.emplace_back(randomTensor(shapes[i], type, i + 1, -2, 2));
  }
  const KernelCheck onGpu = checkKernel(fusion, smallGpu(), arguments);
  EXPECT_EQ(onGpu.difference, "");
  const int64_t most = elements(*std::ranges::max_element(shapes, {}, elements)) * dataTypeSize(type);
  for (size_t i = 0; i < shapes.size(); i++) {
    EXPECT_LE(onGpu.traffic.tensors[i].readBytes, most) << toString(onGpu.plan.program);
  }
  KernelCheck result = checkKernel(fusion, {}, arguments);
  EXPECT_EQ(result.difference, "");
  return result;
}

std::string refusedColumns(const InputShapes& shapes, const BuildOutputs& build, const DeviceInfo& device = {}) {
  Fusion fusion;
  defineOutputs(fusion, shapes, build, DataType::Float);
  return refusal(fusion, device);
}

std::vector<TensorView*> normBackward(const std::vector<TensorView*>& t, const std::vector<int64_t>& shape) {
  const BackwardNormResult g = layer_norm_backward(t[0], t[1], shape, t[2], t[3], t[4], t[4]);
  return {g.grad_input, g.grad_weight, g.grad_bias};
}

std::vector<TensorView*> bothSums(const std::vector<TensorView*>& t) { return {sum(t[0], {1}), sum(t[0], {0})}; }

TEST(Columns, NormBackwardIsOneKernel) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{256, 129}, {300, 200}, {1025, 144}, {260, 1500}}) {
    const KernelCheck c =
        checkColumns({{m, n}, {m, n}, {m, 1}, {m, 1}, {n}}, [n = n](const auto& t) { return normBackward(t, {n}); });
    EXPECT_EQ(c.plan.kind, "normalization");
    EXPECT_EQ(c.traffic.tensors[0].readBytes, 2 * m * n * 4);  // a sweep that sums, and one that stores
  }
}

TEST(Columns, RowsAndColumnsOfSeveralDims) {
  checkColumns({{5, 60, 12, 20}, {5, 60, 12, 20}, {5, 60, 1, 1}, {5, 60, 1, 1}, {12, 20}}, [](const auto& t) {
    return normBackward(t, {12, 20});
  });
}

TEST(Columns, SumsAloneReadOnce) {
  const KernelCheck c = checkColumns({{512, 300}}, bothSums);
  EXPECT_EQ(c.plan.kind, "reduction");
  EXPECT_EQ(c.traffic.tensors[0].readBytes, 512 * 300 * 4);
  checkColumns({{512, 300}}, [](const auto& t) -> std::vector<TensorView*> {  // in the other order, of other ops
    return {max(t[0], {0}), sum(mul(t[0], t[0]), {0}), neg(min(t[0], {1})), add(t[0], 1.0)};
  });
}

TEST(Columns, OfWhatWaitsForRows) {
  checkColumns({{300, 200}}, [](const auto& t) -> std::vector<TensorView*> {
    return {sum(sub(t[0], unsqueeze(max(t[0], {1}), 1)), {0})};
  });
  checkColumns({{300, 200}, {200}, {200}}, [](const auto& t) -> std::vector<TensorView*> {
    TensorView* y = layer_norm(t[0], {200}, t[1], t[2], 1e-5).output;
    return {y, sum(y, {0})};
  });
}

TEST(Columns, OpsAfterThem) {
  checkColumns(
      {{300, 200}, {200}},
      [](const auto& t) -> std::vector<TensorView*> {
        TensorView* columns = castOp(DataType::BFloat16, add(mul(sum(t[0], {0}), 0.5), t[1]));
        return {columns, castOp(DataType::BFloat16, sub(t[0], unsqueeze(sum(t[0], {1}), 1)))};
      },
      DataType::BFloat16);
}

TEST(Columns, OfATensorWithOneElementARow) {
  checkColumns({{300, 1}, {300, 200}}, [](const auto& t) -> std::vector<TensorView*> {
    return {sum(expand(t[0], {300, 200}), {0}), sum(t[1], {1})};
  });
}

// Two stages, an output of the first sweep, and columns of the last.
TEST(Columns, LateOnesBesideEarlyOutputs) {
  const KernelCheck c = checkColumns({{300, 200}}, [](const auto& t) -> std::vector<TensorView*> {
    TensorView* centered = sub(t[0], max(t[0], {1}, true));
    TensorView* scale = sum(mul(centered, centered), {1}, true);
    return {add(t[0], 1.0), sum(div(centered, scale), {0})};
  });
  EXPECT_EQ(c.plan.kind, "normalization");
}

TEST(Columns, ASumOfSumsOfRowsBesideThem) {
  checkColumns({{300, 200}}, [](const auto& t) -> std::vector<TensorView*> {
    return {add(sum(t[0], {0}), sum(sum(t[0], {1}), {0}))};
  });
}

void expectHas(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ColumnsRefuse, RowsThatAreFewNarrowOrLong) {
  const std::string both = "reduces other dims than the reductions before it, and one kernel of both needs ";
  EXPECT_EQ(refusedColumns({{256, 200}}, bothSums), "");
  expectHas(refusedColumns({{100, 200}}, bothSums), both + "at least 256 rows");
  expectHas(refusedColumns({{4096, 64}}, bothSums), both + "rows of more than 128 elements");
  const std::string cache = " bytes of cache for a row and the sums, more than 524288";
  expectHas(refusedColumns({{256, 1 << 18}}, bothSums), cache);
  expectHas(refusedColumns({{256, 100'000}}, bothSums), cache);  // the row alone would have room
}

TEST(ColumnsRefuse, RowsThatLeaveAGpuIdleOrItsRegisters) {
  const DeviceInfo gpu = DeviceInfo::hopper();
  const std::string needs = "one kernel of both needs ";
  EXPECT_EQ(refusedColumns({{1056, 4096}}, bothSums, gpu), "");
  expectHas(refusedColumns({{1024, 4096}}, bothSums, gpu),
            needs + "rows for 67584 threads of the GPU, they are enough for 65536");
  EXPECT_EQ(refusedColumns({{8192, 8192}}, bothSums, gpu), "");
  expectHas(refusedColumns({{8192, 65536}}, bothSums, gpu), needs + "rows and sums that stay in registers");
}

// Vectors of 32 bytes are 16 elements of 16 bits.
TEST(Columns, OfRowsThatArchitecturesReadInWiderVectors) {
  for (const char* const architecture : {"sm_90a", "sm_100"}) {
    Fusion fusion;
    const auto sums = [](const std::vector<TensorView*>& t) { return bothSums({castOp(DataType::Float, t[0])}); };
    defineOutputs(fusion, {{8192, 2048}}, sums, DataType::BFloat16);
    EXPECT_EQ(refusal(fusion, DeviceInfo::ofArchitecture(architecture).value()), "") << architecture;
  }
}

TEST(ColumnsRefuse, SizesThatVary) {
  for (const std::vector<int64_t>& shape : InputShapes{{-1, -1}, {256, -1}, {-1, 200}}) {
    expectHas(refusedColumns({shape}, bothSums), "one kernel of both needs sizes with known bounds");
  }
}

// The first choice of axes would read the permuted operand across its rows, and others have rows in two pieces.
TEST(ColumnsRefuse, RowsOfSeveralDimsWithAPermutedOperand) {
  const auto sums = [](TensorView* x) -> std::vector<TensorView*> { return {sum(x, {1, 2}), sum(x, {0})}; };
  EXPECT_EQ(refusedColumns({{300, 12, 20}}, [&](const auto& t) { return sums(t[0]); }), "");
  expectHas(refusedColumns({{300, 12, 20}, {300, 20, 12}},
                           [&](const auto& t) {
                             return sums(add(t[0], permute(t[1], {0, 2, 1})));
                           }),
            "one kernel of both needs operands that all lie along the rows");
}

TEST(ColumnsRefuse, WhatGoesBackToRows) {
  const std::string refusal = refusedColumns({{256, 200}}, [](const auto& t) -> std::vector<TensorView*> {
    return {sub(t[0], sum(t[0], {0})), sum(t[0], {1})};
  });
  expectHas(refusal, "combines sums over other dims with whole rows");
  const auto ofASquare = [](const auto& t) -> std::vector<TensorView*> {
    return {add(sum(t[0], {1}), sum(t[0], {0}))};
  };
  EXPECT_NE(refusedColumns({{300, 300}}, ofASquare), "");
}

// The sum of one row w exists while rows are read; what follows from columns is computed after them.
TEST(ColumnsRefuse, WhatAlsoReadsASumOfOneRow) {
  const std::vector<BuildOutputs> programs = {
      [](const auto& t) -> std::vector<TensorView*> {
        return {mul(sum(mul(t[0], t[1]), {0}), sum(mul(t[1], t[1]), {0}))};
      },
      [](const auto& t) -> std::vector<TensorView*> {
        return {div(sum(mul(t[0], t[1]), {0}), sqrt(sum(mul(t[1], t[1]), {0})))};
      },
      [](const auto& t) -> std::vector<TensorView*> {
        TensorView* p = div(t[1], sum(t[1], {0}));
        return {mul(sum(mul(t[0], p), {0}), p)};
      },
  };
  for (const BuildOutputs& program : programs) {
    expectHas(refusedColumns({{300, 200}, {200}}, program), "combines sums over other dims with whole rows");
  }
}

TEST(ColumnsRefuse, ASumOfTheirs) {
  const std::string refusal = refusedColumns({{256, 200}}, [](const auto& t) -> std::vector<TensorView*> {
    return {sum(sum(t[0], {0}), {0}), sum(t[0], {1})};
  });
  EXPECT_FALSE(refusal.empty());
}

}  // namespace

}  // namespace meshfuse
