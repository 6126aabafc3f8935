// Groups with a scan: which the template takes, and the results of their tile programs.
#include "schedule/scan.h"

#include <gtest/gtest.h>

#include "ops/activation.h"
#include "ops/factory.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/scan_sort.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"
#include "schedule/template.h"

namespace meshfuse {
namespace {

using Tensors = std::vector<TensorView*>;
using Shape = std::vector<int64_t>;
using BuildAll = std::function<Tensors(const Tensors&)>;

void run(const std::vector<Shape>& shapes, const BuildAll& build, DataType type = DataType::Float) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  Tensors ins;
  std::vector<Argument> arguments;
  for (size_t i = 0; i < shapes.size(); i++) {
    ins.push_back(makeContigConcreteTensor(shapes[i], type));
    fusion.addInput(ins.back());
    arguments.emplace_back(randomTensor(shapes[i], type, i + 1, -2, 2));
  }
  for (TensorView* out : build(ins)) {
    fusion.addOutput(out);
  }
  const KernelCheck check = checkKernel(fusion, DeviceInfo::hopper(), arguments);
  EXPECT_EQ(check.difference, "") << tile::toString(check.plan.program);
  EXPECT_EQ(check.plan.kind, "scan");
}

TEST(ScanTemplate, LinesOfAnyLengthAlongAnyDim) {
  for (const int64_t n : {2, 15, 16, 17, 33, 100, 1024, 4099, 8192, 8200}) {
    run({{3, n}}, [](const Tensors& t) { return Tensors{cumsum(t[0], 1)}; });
    run({{n, 3}}, [](const Tensors& t) { return Tensors{cumsum(t[0], 0)}; });
  }
  for (const int64_t dim : {0, 1, 2, 3}) {
    run({{5, 6, 7, 40}}, [=](const Tensors& t) { return Tensors{cumsum(t[0], dim)}; });
    run({{3, 20, 2, 3}}, [=](const Tensors& t) { return Tensors{cumsum(t[0], dim)}; });
  }
  run({{70000, 2}}, [](const Tensors& t) { return Tensors{cumsum(t[0], 1)}; });
}

TEST(ScanTemplate, WithWhatItReadsAndWhatReadsIt) {
  for (const int64_t dim : {0, 1}) {
    for (const DataType type : {DataType::Float, DataType::BFloat16, DataType::Half}) {
      run(
          {{40, 100}, {100}},
          [=](const Tensors& t) { return Tensors{maybeCastOp(type, mul(cumsum(exp(t[0]), dim), t[1]))}; }, type);
      run(
          {{40, 100}},
          [=](const Tensors& t) {
            TensorView* x = maybeCastOp(DataType::Float, t[0]);
            TensorView* z = cumsum(where(gt(x, 0.0), x, 0.0), dim);
            return Tensors{z, castOp(DataType::BFloat16, z), mul(z, x), castOp(DataType::BFloat16, x)};
          },
          type);
    }
    run({{40, 1}}, [=](const Tensors& t) { return Tensors{cumsum(expand(t[0], {40, 30}), dim)}; });
    run({{30}}, [=](const Tensors& t) {
      return Tensors{cumsum(expand(broadcast(t[0], {true, false}), {40, 30}), dim)};
    });
  }
}

TEST(ScanTemplate, OfOtherOpsAndTypes) {
  for (const DataType type : {DataType::Int, DataType::Int32}) {
    for (const ReduceOp op :
         {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::And, ReduceOp::Or, ReduceOp::Xor}) {
      for (const int64_t dim : {0, 1}) {
        run(
            {{40, 70}}, [=](const Tensors& t) { return Tensors{scan(t[0], dim, op)}; }, type);
      }
    }
  }
  for (const ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    run({{40, 70}}, [=](const Tensors& t) { return Tensors{scan(neg(t[0]), 1, op)}; });
  }
}

// A scan alone of what the template refuses is a call of the routine.
TEST(ScanTemplate, LeavesOthersToTheRoutine) {
  const auto judged = [](const Shape& shape, DataType type, const std::function<TensorView*(TensorView*)>& build,
                         const DeviceInfo& device = DeviceInfo::hopper()) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor(shape, type);
    fusion.addInput(x);
    fusion.addOutput(build(x));
    const Verdict verdict = judge(wholeGroup(fusion), device, allTemplates());
    return verdict.judgement == nullptr
               ? verdict.refusal
               : std::string(verdict.judgement->callsLibrary ? "library" : verdict.judgement->kind);
  };
  const auto sum = [](TensorView* x) { return cumsum(x, 1); };
  EXPECT_EQ(judged({4, 40}, DataType::Float, sum), "scan");
  EXPECT_EQ(judged({4, 40}, DataType::Float, sum, DeviceInfo{}), "library");
  EXPECT_EQ(judged({4, 40}, DataType::Double, sum), "library");
  EXPECT_EQ(judged({4, 1}, DataType::Float, sum), "library");
  EXPECT_EQ(judged({4, 40}, DataType::Float, [](TensorView* x) { return cumprod(x, 1); }), "library");
  EXPECT_EQ(judged({4, 40}, DataType::Short, [](TensorView* x) { return scan(x, 1, ReduceOp::Sum); }), "library");
  EXPECT_EQ(judged({4, 40}, DataType::Double, [](TensorView* x) { return neg(cumsum(x, 1)); }),
            "scan is a library call; sum of Double along a line is a library call");
  EXPECT_EQ(judged({4, 40}, DataType::Float, [](TensorView* x) { return cumsum(cumsum(x, 1), 0); }),
            "scan is a library call; a kernel has one scan");
  EXPECT_EQ(judged({4, 40}, DataType::Float,
                   [](TensorView* x) {
                     return permute(cumsum(x, 1), {1, 0});
                   }),
            "scan is a library call; permute is not computed in a kernel with a scan");
}

// Rows may have gaps between them; their elements are neighbours.
TEST(ScanTemplate, TakesLinesAsTheyLieInMemory) {
  const auto kindOf = [](const std::vector<int64_t>& strides) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor({20, 30});
    fusion.addInput(x);
    fusion.addOutput(cumsum(x, 1));
    Group group = wholeGroup(fusion);
    group.layouts[x->id()] = {{strides.begin(), strides.end()}, 64};
    const Verdict verdict = judge(group, DeviceInfo::hopper(), allTemplates());
    return std::string(verdict.judgement->callsLibrary ? "library" : verdict.judgement->kind);
  };
  EXPECT_EQ(kindOf({64, 1}), "scan");
  EXPECT_EQ(kindOf({1, 20}), "library");
  EXPECT_EQ(kindOf({60, 2}), "library");
}

}  // namespace
}  // namespace meshfuse
