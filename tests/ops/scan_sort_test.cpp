#include "ops/scan_sort.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "interpret/bounds.h"
#include "ops/built.h"

namespace meshfuse {
namespace {

void expectSame(const Tensor& got, const Row& expected) {
  Row values = got.toVector();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t k = 0; k < expected.size(); k++) {
    EXPECT_TRUE(values[k] == expected[k] || (std::isnan(values[k]) && std::isnan(expected[k])))
        << "element " << k << " is " << values[k] << ", expected " << expected[k];
  }
}

TEST(Scan, SumsAndProducts) {
  Tensor x = doubles({1, 2, 3, 4, 5, 6}, {2, 3});
  expectSame(run1({x}, [](const Views& v) { return cumsum(v[0], 1); }), {1, 3, 6, 4, 9, 15});
  expectSame(run1({x}, [](const Views& v) { return cumsum(v[0], -2); }), {1, 2, 3, 5, 7, 9});
  expectSame(run1({x}, [](const Views& v) { return cumprod(v[0], 1); }), {1, 2, 6, 4, 20, 120});
  expectSame(run1({doubles({7}, {})}, [](const Views& v) { return cumsum(v[0], 0); }), {7});
  EXPECT_EQ(sizesOf(run1({doubles({}, {2, 0})}, [](const Views& v) { return cumsum(v[0], 1); })),
            (std::vector<int64_t>{2, 0}));
}

TEST(Scan, TypesAreThoseOfReductions) {
  Tensor x = doubles({1, 0, 3, 1}, {4});
  for (auto [type, result] : {std::pair{DataType::Half, DataType::Float},
                              {DataType::BFloat16, DataType::Float},
                              {DataType::Float, DataType::Float},
                              {DataType::Double, DataType::Double},
                              {DataType::Int32, DataType::Int},
                              {DataType::Int, DataType::Int}}) {
    Tensor y = run1({x.to(type)}, [](const Views& v) { return cumsum(v[0], 0); });
    EXPECT_EQ(y.dtype(), result);
    expectSame(y, {1, 1, 4, 5});
  }
  expectSame(run1({x.to(DataType::Bool)}, [](const Views& v) { return cumsum(v[0], 0); }), {1, 1, 2, 3});
  Tensor half = run1({x}, [](const Views& v) { return cumprod(v[0], 0, DataType::Half); });
  EXPECT_EQ(half.dtype(), DataType::Half);
  expectSame(half, {1, 0, 0, 0});
  EXPECT_EQ(run1({x}, [](const Views& v) { return cumsum(v[0], 0, DataType::Int32); }).dtype(), DataType::Int32);
}

TEST(Scan, OtherReductions) {
  Tensor x = doubles({1, 3, 2, kNan, 5}, {5});
  expectSame(run1({x}, [](const Views& v) { return scan(v[0], 0, ReduceOp::Max); }), {1, 3, 3, kNan, kNan});
  expectSame(run1({x}, [](const Views& v) { return scan(neg(v[0]), 0, ReduceOp::Min); }), {-1, -3, -3, kNan, kNan});
  Tensor n = Tensor::of(Row{6, 3, 5}, {3}, DataType::Int);
  expectSame(run1({n}, [](const Views& v) { return scan(v[0], 0, ReduceOp::And); }), {6, 2, 0});
  expectSame(run1({n}, [](const Views& v) { return scan(v[0], 0, ReduceOp::Or); }), {6, 7, 7});
  expectSame(run1({n}, [](const Views& v) { return scan(v[0], 0, ReduceOp::Xor); }), {6, 5, 0});
}

TEST(Order, NumbersBelowNanAndEqualOnesInTheirOrder) {
  Tensor x = doubles({2, kNan, -kInf, 2, kInf, 0.0, -0.0, kNan}, {8});
  std::vector<Tensor> up = run({x}, [](const Views& v) {
    SortResult r = sort(v[0]);
    return Views{r.values, r.indices, argsort(v[0], 0, false, true)};
  });
  expectSame(up[0], {-kInf, 0, 0, 2, 2, kInf, kNan, kNan});
  expectSame(up[1], {2, 5, 6, 0, 3, 4, 1, 7});
  expectSame(up[2], {2, 5, 6, 0, 3, 4, 1, 7});
  EXPECT_EQ(up[1].dtype(), DataType::Int);
  std::vector<Tensor> down = run({x}, [](const Views& v) {
    SortResult r = sort(v[0], 0, true);
    return Views{r.values, r.indices};
  });
  expectSame(down[0], {kNan, kNan, kInf, 2, 2, 0, 0, -kInf});
  expectSame(down[1], {1, 7, 4, 0, 3, 5, 6, 2});
}

TEST(Order, AlongAnyDimAndOfAnyType) {
  Tensor x = doubles({3, 1, 2, 1, 0, 1}, {3, 2});
  for (DataType type :
       {DataType::Double, DataType::Float, DataType::Half, DataType::BFloat16, DataType::Int, DataType::Int32}) {
    std::vector<Tensor> out = run({x.to(type)}, [](const Views& v) {
      SortResult columns = sort(v[0], 0);
      SortResult rows = sort(v[0], 1);
      return Views{columns.values, columns.indices, rows.values, rows.indices};
    });
    EXPECT_EQ(out[0].dtype(), type);
    expectSame(out[0], {0, 1, 2, 1, 3, 1});
    expectSame(out[1], {2, 0, 1, 1, 0, 2});
    expectSame(out[2], {1, 3, 1, 2, 0, 1});
    expectSame(out[3], {1, 0, 1, 0, 0, 1});
  }
  expectSame(run1({x.to(DataType::Bool)}, [](const Views& v) { return argsort(v[0], 0); }), {2, 0, 0, 1, 1, 2});
}

TEST(Order, SmallAndEmptyDims) {
  std::vector<Tensor> none = run({doubles({}, {2, 0})}, [](const Views& v) {
    SortResult r = sort(v[0], 1);
    TopKResult t = topk(v[0], 0, 1);
    return Views{r.values, r.indices, t.values};
  });
  for (const Tensor& t : none) {
    EXPECT_EQ(sizesOf(t), (std::vector<int64_t>{2, 0}));
  }
  EXPECT_EQ(sizesOf(run1({doubles({}, {0, 3})}, [](const Views& v) { return topk(v[0], 2, 1).indices; })),
            (std::vector<int64_t>{0, 2}));
  std::vector<Tensor> one = run({doubles({5}, {})}, [](const Views& v) {
    SortResult r = sort(v[0]);
    TopKResult t = topk(v[0], 1);
    return Views{r.values, r.indices, t.values, t.indices};
  });
  expectSame(one[0], {5});
  expectSame(one[1], {0});
  expectSame(one[2], {5});
  EXPECT_EQ(sizesOf(one[3]), (std::vector<int64_t>{}));
}

TEST(Order, TopK) {
  Tensor x = doubles({3, kNan, 1, 3, -1, 7, 7, 0}, {2, 4});
  for (int64_t k : {0, 1, 2, 4}) {
    std::vector<Tensor> out = run({x}, [&](const Views& v) {
      TopKResult most = topk(v[0], k);
      TopKResult least = topk(v[0], k, 1, false);
      return Views{most.values, most.indices, least.values, least.indices};
    });
    const std::vector<Row> whole = {
        {kNan, 3, 3, 1, 7, 7, 0, -1}, {1, 0, 3, 2, 1, 2, 3, 0}, {1, 3, 3, kNan, -1, 0, 7, 7}, {2, 0, 3, 1, 0, 3, 1, 2}};
    for (size_t o = 0; o < out.size(); o++) {
      Row expected;
      for (size_t row : {0, 1}) {
        expected.insert(expected.end(), whole[o].begin() + static_cast<int64_t>(row) * 4,
                        whole[o].begin() + static_cast<int64_t>(row) * 4 + k);
      }
      expectSame(out[o], expected);
      EXPECT_EQ(sizesOf(out[o]), (std::vector<int64_t>{2, k}));
    }
  }
  expectSame(run1({x}, [](const Views& v) { return topk(v[0], 1, 0).values; }), {3, kNan, 7, 3});
}

// Whose place is not certain has no bound, all others have that of a copy.
TEST(Order, BoundsOfComputedElements) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeConcreteTensor({5});
  fusion.addInput(x);
  TensorView* y = exp(x);
  SortResult r = sort(y);
  fusion.addOutput(r.indices);
  fusion.addOutput(r.values);
  const Tensor values = Tensor::of(Row{1, 3, 1 + 1e-7, 2, 0}, {5}, DataType::Float);
  std::vector<Argument> arguments = {values};
  std::vector<BoundedTensor> out = interpretWithBounds(fusion, arguments);
  EXPECT_EQ(out[0].value.toVector(), (Row{4, 0, 2, 3, 1}));
  Row certain;
  for (double e : out[0].error.toVector()) {
    certain.push_back(e == 0 ? 1 : 0);
  }
  EXPECT_EQ(certain, (Row{1, 0, 0, 1, 1}));
  EXPECT_EQ(out[0].uncertain, 2);
  Row errors = out[1].error.toVector();
  EXPECT_LT(errors[0], 1e-5);
  EXPECT_LT(errors[4], 1e-4);
}

TEST(Indexing, Select) {
  Tensor x = counting({3, 4});
  for (int64_t at : {0, 2, -1, -3}) {
    double row = static_cast<double>(at < 0 ? at + 3 : at);
    Tensor y = run1({x}, [&](const Views& v) { return select(v[0], 0, at); });
    expectSame(y, {row * 4, row * 4 + 1, row * 4 + 2, row * 4 + 3});
    EXPECT_EQ(sizesOf(y), (std::vector<int64_t>{4}));
  }
  for (DataType type : {DataType::Int, DataType::Int32}) {
    Tensor index = Tensor::of(Row{-2}, {}, type);
    expectSame(run1({x, index}, [](const Views& v) { return select(v[0], -1, v[1]); }), {2, 6, 10});
  }
  expectSame(run1({counting({3})}, [](const Views& v) { return select(v[0], 0, 1); }), {1});
  EXPECT_EQ(sizesOf(run1({counting({0, 3})}, [](const Views& v) { return select(v[0], 1, 1); })),
            (std::vector<int64_t>{0}));
}

TEST(Indexing, SelectByANumberOfTheCall) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(2);
  Val* at = fusion.inputScalar(DataType::Int);
  fusion.addInput(x);
  fusion.addInput(at);
  fusion.addOutput(select(x, 1, at));
  EXPECT_EQ(parseFusion(fusion.toString())->toString(), fusion.toString());
  for (int64_t k : {0, 3, -4}) {
    std::vector<Argument> arguments = {counting({2, 4}), k};
    double from = static_cast<double>(k < 0 ? k + 4 : k);
    expectSame(interpret(fusion, arguments).at(0), {from, from + 4});
  }
  for (int64_t k : {4, -5}) {
    std::vector<Argument> arguments = {counting({2, 4}), k};
    EXPECT_THROW((void)interpret(fusion, arguments), UserError);
  }
}

}  // namespace
}  // namespace meshfuse
