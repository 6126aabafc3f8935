#include "interpret/interpret.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/text.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

// [[1, 2, 3], [4, 5, 6]] read in many ways
TEST(Interpret, ReadsAnyStrides) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(2);
  fusion.addInput(x);
  fusion.addOutput(sum(add(x, 1.0), {1}));
  Tensor base = Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(interpret(fusion, {base}).at(0).toVector(), (std::vector<double>{9, 18}));
  EXPECT_EQ(interpret(fusion, {base.transpose(0, 1)}).at(0).toVector(), (std::vector<double>{7, 9, 11}));
  EXPECT_EQ(interpret(fusion, {base.slice(1, 0, 3, 2)}).at(0).toVector(), (std::vector<double>{6, 12}));
  EXPECT_EQ(interpret(fusion, {base.slice(0, 1, 2).expand({4, 3})}).at(0).toVector(),
            (std::vector<double>{18, 18, 18, 18}));
}

TEST(Interpret, ShiftedBuffersOfEveryType) {
  for (DataType type :
       {DataType::Double, DataType::Float, DataType::Half, DataType::BFloat16, DataType::Int, DataType::Int32}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeSymbolicTensor(1, type);
    fusion.addInput(x);
    fusion.addOutput(mul(x, 2));
    for (int64_t length = 1; length <= 33; length++) {
      Tensor buffer = randomTensor({length + 3}, type, 7, -50, 50);
      for (int64_t shift : {0, 1, 3}) {
        Tensor part = buffer.slice(0, shift, shift + length);
        std::vector<double> doubled = part.toVector();
        for (double& v : doubled) {
          v *= 2;
        }
        EXPECT_EQ(interpret(fusion, {part}).at(0).toVector(), doubled);
      }
    }
  }
}

TEST(Interpret, EveryTensorById) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(1);
  TensorView* y = neg(x);
  TensorView* unused = exp(x);
  fusion.addInput(x);
  fusion.addOutput(mul(y, y));
  std::vector<Argument> inputs = {Tensor::of({1, 2}, {2})};
  std::map<int64_t, Tensor> all = interpretAll(fusion, inputs);
  EXPECT_EQ(all.at(x->id()).toVector(), (std::vector<double>{1, 2}));
  EXPECT_EQ(all.at(y->id()).toVector(), (std::vector<double>{-1, -2}));
  EXPECT_FALSE(all.contains(unused->id()));
}

TEST(Interpret, EmptyArraysOfLargeDimsTakeNoMemory) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(2);
  fusion.addInput(x);
  fusion.addOutput(permute(neg(x), {1, 0}));
  const int64_t large = int64_t{1} << 40;
  EXPECT_EQ(interpret(fusion, {Tensor::empty({large, 0}, DataType::Float)}).at(0).size(1), large);
}

// The dim of partial sums stands before the batches: [parts, batches, M, N].
TEST(Interpret, PartialProductsHaveBatches) {
  const std::unique_ptr<Fusion> fusion = parseFusion(R"(
fusion {
  mesh M0 {x: 2} [0, 1]
  T0 = input() : Float[3, 5, 8] contiguity[t, t, t] mesh M0 outer_split(2, 2) parallelize(2, DIDx) loop[3, 5, DIDx{2}, 4]
  T1 = input() : Float[3, 8, 4] contiguity[t, t, t] mesh M0 outer_split(1, 2) parallelize(1, DIDx) loop[3, DIDx{2}, 4, 4]
  T3 = matmul(T0, T1) : Float[p{2}, 3, 5, 4, r{4}] root[3, 5, 4, r{8}; outer_split(3, 2), reorder[3, 0, 1, 2, 4]] mesh M0 parallelize(0, DIDx) loop[pDIDx{2}, 3, 5, 4, r{4}]
  T2 = redistribute(T3, op=sum, dim=0) : Float[r{2}, 3, 5, 4] mesh M0
  output T2
}
)");
  EXPECT_EQ(verify(*fusion), std::vector<std::string>());
  const Tensor a = randomTensor({3, 5, 8}, DataType::Float, 1);
  const Tensor b = randomTensor({3, 8, 4}, DataType::Float, 2);
  const Tensor got = interpret(*fusion, {a, b}).at(0);
  for (int64_t i = 0; i < got.numel(); i++) {
    const int64_t batch = i / 20;
    const int64_t row = i / 4 % 5;
    const int64_t column = i % 4;
    double sum = 0;
    for (int64_t k = 0; k < 8; k++) {
      sum += a.at({batch, row, k}) * b.at({batch, k, column});
    }
    EXPECT_NEAR(got.at({batch, row, column}), sum, 1e-5);
  }
}

// Each rank holds a part of the table: the interpreter takes whole programs.
TEST(Interpret, PartialSumsOfIndexedRowsAreRefused) {
  const std::unique_ptr<Fusion> fusion = parseFusion(R"(
fusion {
  mesh M0 {x: 2} [0, 1]
  T0 = input() : Int[5] contiguity[t] mesh M0
  T1 = input() : Float[8, 4] contiguity[t, t] mesh M0 outer_split(0, 2) parallelize(0, DIDx) loop[DIDx{2}, 4, 4]
  T3 = embedding(T0, T1, starts=[0], flags=[f]) : Float[p{2}, 5, 4, r{4}] root[5, 4, r{8}; outer_split(2, 2), reorder[2, 0, 1, 3]] mesh M0 parallelize(0, DIDx) loop[pDIDx{2}, 5, 4, r{4}]
  T2 = redistribute(T3, op=sum, dim=0) : Float[r{2}, 5, 4] mesh M0
  output T2
}
)");
  EXPECT_EQ(verify(*fusion), std::vector<std::string>());
  const std::vector<Argument> inputs = {Tensor::of({2, 0, 1, 3, 0}, {5}, DataType::Int),
                                        randomTensor({8, 4}, DataType::Float, 1)};
  EXPECT_THROW((void)interpret(*fusion, inputs), UserError);
}

// A rank's part of 10 rows, as its place on two mesh axes says.
TEST(Interpret, PartialSumsOverTwoMeshAxesAreRefused) {
  const std::unique_ptr<Fusion> fusion = parseFusion(R"(
fusion {
  mesh M0 {y: 2, x: 2} [0, 1, 2, 3]
  T0 = input() : Float[10, 4] contiguity[t, t] mesh M0 outer_split(0, 4) outer_split(0, 2) parallelize(0, DIDy) parallelize(1, DIDx) loop[DIDy{2}, DIDx{2}, 3, 4]
  T2 = reduce(T0, op=sum) : Float[p{4}, r{3}, 4] root[r{10}, 4; outer_split(0, 4), outer_split(0, 2), merge(0)] mesh M0 outer_split(0, 2) parallelize(0, DIDy) parallelize(1, DIDx) loop[DIDy{2}, DIDx{2}, r{3}, 4]
  T1 = redistribute(T2, op=sum, dim=0) : Float[r{4}, 4] mesh M0
  output T1
}
)");
  EXPECT_EQ(verify(*fusion), std::vector<std::string>());
  try {
    (void)interpret(*fusion, {randomTensor({10, 4}, DataType::Float, 1)});
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "[reduce] a dim of T2 results from a merge or a resize, expected dims that result from splits; "
                 "interpret the program "
                 "before its sums are partial");
  }
}

// Sizes that differ only at run time: what follows a tensor in memory is not read.
TEST(Interpret, ReadsNothingOutsideOfATensor) {
  const auto error = [](const char* text, const std::vector<Argument>& inputs) -> std::string {
    try {
      (void)interpret(*parseFusion(text), inputs);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  const Tensor four = randomTensor({4}, DataType::Float, 1);
  const Tensor eight = randomTensor({8}, DataType::Float, 2);
  const char* const moved = R"(
fusion {
  mesh M0 {x: 2} [0, 1]
  T0 = input() : Float[i0] contiguity[t] mesh M0 outer_split(0, 2) parallelize(0, DIDx)
  T1 = input() : Float[i1] contiguity[t] mesh M0
  T2 = redistribute(T0) : Float[i1] mesh M0
  output T2
}
)";
  EXPECT_EQ(error(moved, {eight, eight}), "");
  EXPECT_NE(error(moved, {four, eight}).find("T0 has sizes [4], its redistribution T2 [8]"), std::string::npos)
      << error(moved, {four, eight});
  EXPECT_NE(error(moved, {eight, four}).find("T0 has sizes [8], its redistribution T2 [4]"), std::string::npos);
  const char* const sliced = R"(
fusion {
  T0 = input() : Float[i0] contiguity[t]
  T1 = input() : Float[i1] contiguity[t]
  T2 = slice(T0, starts=[0], stops=[i1], steps=[1]) : Float[i1]
  output T2
}
)";
  EXPECT_EQ(error(sliced, {eight, four}), "");
  EXPECT_NE(error(sliced, {four, eight}).find("elements 0 to 7 of dim 0 of T0 are read, which has 4"),
            std::string::npos)
      << error(sliced, {four, eight});
}

// The verifier cannot tell that i0 is not 3.
TEST(Interpret, ExtentsThatDisagreeOnceTheyAreKnownAreRefused) {
  const std::vector<std::string> ops = {"broadcast(T0, flags=[f, t]) : Float[3, b{1}]",
                                        "squeeze(T2, flags=[f, t]) : Float[3]", "cat(T0, T0, dim=0) : Float[7]",
                                        "set(T0) : Float[3]"};
  for (const std::string& op : ops) {
    const std::string text =
        "fusion {\n  T0 = input() : Float[i0] contiguity[t]\n  T1 = input() : Float[i1, 2] contiguity[t, t]\n"
        "  T2 = input() : Float[i2, b{1}] contiguity[t, t]\n  T3 = " +
        op + "\n  output T3\n}\n";
    const std::unique_ptr<Fusion> fusion = parseFusion(text);
    const auto withSizes = [&](int64_t n) {
      return interpret(*fusion, {Tensor::full({n}, DataType::Float, 1), Tensor::full({n, 2}, DataType::Float, 1),
                                 Tensor::full({n, 1}, DataType::Float, 1)});
    };
    for (const int64_t n : {2, 4}) {
      EXPECT_THROW((void)withSizes(n), UserError) << op;
    }
    if (op.find("cat") == std::string::npos) {
      EXPECT_EQ(withSizes(3).at(0).numel() % 3, 0) << op;
    }
  }
}

TEST(Interpret, NoInputsAndInputsAsOutputs) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(0);
  fusion.addInput(x);
  fusion.addOutput(x);
  fusion.addOutput(full({2}, 3, DataType::Int));
  std::vector<Tensor> out = interpret(fusion, {Tensor::scalar(5)});
  EXPECT_EQ(out.at(0).item(), 5);
  EXPECT_EQ(out.at(1).toVector(), (std::vector<double>{3, 3}));
}

TEST(Interpret, ShardingsChangeNothing) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeConcreteTensor({4, 2});
  fusion.addInput(x);
  TensorView* y = sum(x, {0});
  fusion.addOutput(y);
  Tensor data = Tensor::of({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  x->setDeviceMesh(DeviceMesh::createForNumDevices(2));
  x->outer_split(0, 2);
  x->axis(0)->parallelize(ParallelType::DIDx);
  EXPECT_EQ(interpret(fusion, {data}).at(0).toVector(), (std::vector<double>{16, 20}));
}

// [4] summed in two parts of two, then the parts combined.
TEST(Interpret, PartialSumsAreCombined) {
  Fusion fusion;
  TensorView* x = makeConcreteTensor(fusion, {4, 3});
  fusion.addInput(x);
  TensorView* parts =
      fusion.tensorFromRoot(DataType::Float, {{4, IterType::Reduction}, {3}}, [](Fusion& f, const auto& root) {
        auto [outer, inner] = f.idSplit(root[0], 2, false, IterType::Iteration);
        return std::vector<IterDomain*>{f.idPartial(outer, ReduceOp::Sum), inner, root[1]};
      });
  ExprAttributes attributes;
  attributes.reduce = ReduceOp::Sum;
  fusion.addExpr(ExprKind::Reduce, {x}, {parts}, attributes);
  TensorView* whole = fusion.tensor(DataType::Float, {{3}});
  fusion.addExpr(ExprKind::Redistribute, {parts}, {whole}, attributes);
  fusion.addOutput(parts);
  fusion.addOutput(whole);
  Tensor data = Tensor::of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {4, 3});
  std::vector<Tensor> out = interpret(fusion, {data});
  EXPECT_EQ(out.at(0).toVector(), (std::vector<double>{3, 5, 7, 15, 17, 19}));
  EXPECT_EQ(out.at(1).toVector(), (std::vector<double>{18, 22, 26}));
}

TEST(Interpret, CastsInTheMiddleAreKept) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(1);
  fusion.addInput(x);
  TensorView* back = castOp(DataType::Float, castOp(DataType::BFloat16, x));
  fusion.addOutput(eq(back, x));
  fusion.addOutput(floor(back));
  std::vector<Tensor> out = interpret(fusion, {Tensor::of({1.0, 0.999, 2.001}, {3})});
  EXPECT_EQ(out.at(0).toVector(), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(out.at(1).toVector(), (std::vector<double>{1, 1, 2}));
}

// [n, 2] stretched threefold, transposed, and laid out as [2n, 3].
TEST(Interpret, ExpandReshapeTransposeReshape) {
  for (int64_t n : {1, 10, 640}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeConcreteTensor({n, 2});
    fusion.addInput(x);
    TensorView* wide = expand(broadcast(x, {false, false, true}), {n, 2, 3});
    fusion.addOutput(reshape(transpose(reshape(wide, {2 * n, 3}), 0, 1), {2 * n, 3}));
    Tensor data = randomTensor({n, 2}, DataType::Float, 3);
    std::vector<double> flat = data.toVector();
    std::vector<double> expected;
    for (int64_t copy = 0; copy < 3; copy++) {
      expected.insert(expected.end(), flat.begin(), flat.end());
    }
    EXPECT_EQ(interpret(fusion, {data}).at(0).toVector(), expected);
  }
}

TEST(Interpret, AnIndexOutOfRangeIsRefused) {
  for (DataType type : {DataType::Int, DataType::Int32}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* index = makeSymbolicTensor(1, type);
    fusion.addInput(index);
    TensorView* checked = checked_index(index, 4);
    EXPECT_EQ(checked->dtype(), type);
    fusion.addOutput(checked);
    EXPECT_EQ(verify(*parseFusion(fusion.toString())), std::vector<std::string>{});
    EXPECT_EQ(interpret(fusion, {Tensor::of({3, 0, 2}, {3}, type)}).at(0).toVector(), (std::vector<double>{3, 0, 2}));
    for (double bad : {-1., 4., 1073741824.}) {
      std::string error;
      try {
        (void)interpret(fusion, {Tensor::of({3, bad, 2}, {3}, type)});
      } catch (const UserError& e) {
        error = e.what();
      }
      EXPECT_EQ(error, fmt::format("[checked_index] index {0} is out of range for an extent of 4; give 0 <= index < 4",
                                   static_cast<int64_t>(bad)));
    }
  }
}

TEST(Interpret, EightDims) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeConcreteTensor({1, 1, 2, 1, 1, 3, 1, 1});
  fusion.addInput(x);
  fusion.addOutput(sum(permute(x, {7, 6, 5, 4, 3, 2, 1, 0}), {2}));
  Tensor data = Tensor::of({0, 1, 2, 3, 4, 5}, {1, 1, 2, 1, 1, 3, 1, 1});
  EXPECT_EQ(interpret(fusion, {data}).at(0).toVector(), (std::vector<double>{3, 12}));
}

}  // namespace
}  // namespace meshfuse
