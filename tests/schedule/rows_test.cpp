// Every structure of the row kernels against the reference interpreter, on a CPU and on a GPU described by DeviceInfo.
#include <gtest/gtest.h>

#include "ops/activation.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"

namespace meshfuse {

namespace {

using Build = std::function<TensorView*(const std::vector<TensorView*>&)>;

class Rows : public ::testing::TestWithParam<tile::Target> {
 protected:
  static DeviceInfo device() { return GetParam() == tile::Target::Cpu ? DeviceInfo{} : DeviceInfo::hopper(); }

  // `build` over inputs of the given shapes; returns the check of its one kernel.
  static KernelCheck run(const std::vector<std::vector<int64_t>>& shapes, const Build& build,
                         DataType type = DataType::Float) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    std::vector<TensorView*> ins;
    std::vector<Argument> arguments;
    for (size_t i = 0; i < shapes.size(); i++) {
      ins.push_back(makeContigConcreteTensor(shapes[i], type));
      fusion.addInput(ins.back());
      arguments.emplace_back(randomTensor(shapes[i], type, i + 1, -2, 2));
    }
    fusion.addOutput(build(ins));
    KernelCheck result = checkKernel(fusion, device(), arguments);
    EXPECT_EQ(result.difference, "");
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(Device, Rows, ::testing::Values(tile::Target::Cpu, tile::Target::Gpu),
                         [](const auto& p) { return p.param == tile::Target::Cpu ? "Cpu" : "Gpu"; });

TEST_P(Rows, Pointwise) {
  for (int64_t n : {1, 3, 16, 33, 64, 129, 1000}) {
    run({{n}, {n}}, [](const auto& t) { return add(mul(t[0], t[1]), 1.0); });
    run({{7, n}, {n}}, [](const auto& t) { return tanh(add(t[0], t[1])); });
  }
}

TEST_P(Rows, PointwiseReadsEachInputOnce) {
  KernelCheck c = run({{64, 48}, {48}}, [](const auto& t) { return tanh_gelu(add(t[0], t[1])); });
  EXPECT_EQ(c.traffic.tensors[0].distinctReadBytes, 64 * 48 * 4);
  EXPECT_EQ(c.traffic.tensors[2].distinctWrittenBytes, 64 * 48 * 4);
}

TEST_P(Rows, ShapeOpsOnlyMovePositions) {
  run({{4, 6, 5}}, [](const auto& t) { return add(permute(t[0], {2, 0, 1}), 1.0); });
  run({{4, 6}}, [](const auto& t) { return neg(reshape(t[0], {3, 8})); });
  run({{4, 9}}, [](const auto& t) { return neg(slice(t[0], {1, 2}, {4, 8})); });
  run({{4, 5}}, [](const auto& t) { return neg(pad(t[0], {2, 3, 1, 0}, 7.0)); });
  run({{4, 5}, {4, 3}}, [](const auto& t) { return exp(cat({t[0], t[1]}, 1)); });
  run({{5}}, [](const auto& t) { return mul(expand(unsqueeze(t[0], 0), {3, 5}), 2.0); });
}

TEST_P(Rows, InnerReduction) {
  for (int64_t n : {1, 5, 16, 100, 257, 1500}) {
    KernelCheck c = run({{9, n}}, [](const auto& t) { return sum(exp(t[0]), {1}); });
    EXPECT_EQ(c.plan.kind, "reduction");
    run({{9, n}}, [](const auto& t) { return max(t[0], {1}); });
  }
  run({{3, 4, 20}}, [](const auto& t) { return sum(t[0], {0, 2}); });
}

TEST_P(Rows, OuterReduction) {
  for (int64_t n : {1, 5, 16, 100, 257, 1500}) {
    run({{37, n}}, [](const auto& t) { return add(sum(t[0], {0}), 1.0); });
  }
  run({{3, 40, 20}}, [](const auto& t) { return min(t[0], {1}); });
}

TEST_P(Rows, FullReduction) {
  run({{100}}, [](const auto& t) { return sum(t[0], {0}); });
  run({{70000}}, [](const auto& t) { return mul(sum(t[0], {0}), 0.5); });
  run({{2, 70000}}, [](const auto& t) { return sum(t[0], {1}); });
  run({{300, 400}}, [](const auto& t) { return sum(t[0], {0, 1}); });
  run({{20000, 40}}, [](const auto& t) { return sum(t[0], {0}); });
}

TEST_P(Rows, Softmax) {
  for (int64_t n : {1, 7, 64, 129, 1000, 2500}) {
    KernelCheck c = run({{5, n}}, [](const auto& t) { return softmax(t[0], 1); });
    EXPECT_EQ(c.plan.kind, "normalization");
  }
  run({{6, 33}}, [](const auto& t) { return softmax(t[0], 0); });
  run({{2, 40, 33}}, [](const auto& t) { return log_softmax(t[0], 1); });
}

TEST_P(Rows, LayerNorm) {
  for (int64_t n : {4, 100, 600, 1025}) {
    run({{5, n}, {n}, {n}},
        [n](const auto& t) { return layer_norm(t[0], std::vector<int64_t>{n}, t[1], t[2], 1e-5).output; });
  }
}

TEST_P(Rows, HalfPrecision) {
  for (DataType type : {DataType::Half, DataType::BFloat16}) {
    run(
        {{5, 100}}, [=](const auto& t) { return castOp(type, softmax(t[0], 1)); }, type);
    run(
        {{5, 100}, {100}}, [=](const auto& t) { return castOp(type, tanh_gelu(add(t[0], t[1]))); }, type);
    run(
        {{4, 5}, {4, 3}},
        [](const auto& t) {
          return cat({t[0], t[1]}, 1);
        },
        type);
  }
}

TEST_P(Rows, RandomNumbersOfOneAndOfTwoWords) {
  for (DataType type : {DataType::Float, DataType::Double}) {
    run(
        {{7, 9}},
        [=](const auto&) {
          return rand({7, 9}, type, 3, 5);
        },
        type);
    run(
        {{7, 9}},
        [=](const auto& t) {
          return add(t[0], randn({7, 9}, type, 3, 5));
        },
        type);
  }
}

TEST_P(Rows, VectorsOfBytes) {
  run({{2, 16}}, [](const auto&) { return all(lt(rand({2, 16}, DataType::Float), 0.5), {0}); });
  run(
      {{40, 16}}, [](const auto& t) { return any(t[0], {0}); }, DataType::Bool);
  run(
      {{8192}}, [](const auto& t) { return logical_not(t[0]); }, DataType::Bool);
  run(
      {{2048, 16}, {16}}, [](const auto& t) { return logical_xor(t[0], t[1]); }, DataType::Bool);
}

TEST_P(Rows, StridedInputs) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeConcreteTensor({6, 10});
  fusion.addInput(x);
  fusion.addOutput(add(x, 1.0));
  Tensor base = randomTensor({10, 20}, DataType::Float, 3);
  for (const Tensor& t : {base.slice(0, 0, 6).slice(1, 0, 20, 2), base.slice(1, 3, 9).transpose(0, 1),
                          randomTensor({1, 10}, DataType::Float, 4).expand({6, 10})}) {
    EXPECT_EQ(checkKernel(fusion, device(), {t}).difference, "");
  }
}

// A CPU has no kernel of whole rows for them: it would run on one thread for each row.
TEST(RowsRefuse, FewRowsThatDoNotStayInTheCache) {
  const DeviceInfo cpu{.l2Bytes = 1 << 20};
  const auto refusalOf = [&](std::vector<int64_t> shape) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor(std::move(shape));
    fusion.addInput(x);
    fusion.addOutput(softmax(x, 1));
    return refusal(fusion, cpu);
  };
  EXPECT_NE(refusalOf({2, 1 << 18}).find("2 rows of 1048576 bytes are shared out"), std::string::npos);
  EXPECT_EQ(refusalOf({2, 1 << 17}), "");
  EXPECT_EQ(refusalOf({16, 1 << 18}), "");
}

// All parts store what they sum; the last one stores the sums.
TEST(RowsOnCpu, PartsOfFewRowsStoreTheirElements) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 70'001}, {3, 100'000}}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor(shape);
    fusion.addInput(x);
    TensorView* e = exp(x);
    fusion.addOutput(e);
    fusion.addOutput(sum(e, {1}));
    const KernelCheck c = checkKernel(fusion, {}, {randomTensor(shape, DataType::Float, 1, -2, 2)});
    EXPECT_EQ(c.difference, "");
    ASSERT_EQ(c.plan.program.grid.size(), 1);
    EXPECT_GT(c.plan.program.grid[0].count.constValue(), shape[0]);
  }
}

TEST(RowsRefuse, SayWhy) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({6, 10});
  fusion.addInput(x);
  fusion.addOutput(sum(x, {0}));
  fusion.addOutput(sum(x, {1}));
  EXPECT_NE(refusal(fusion, {}).find("reduces other dims"), std::string::npos) << refusal(fusion, {});
}

}  // namespace

}  // namespace meshfuse
