#include "ops/indexing.h"

#include "base/error.h"
#include "ops/built.h"

namespace meshfuse {
namespace {

Tensor indices(std::vector<double> values, std::vector<int64_t> sizes) {
  return Tensor::of(values, std::move(sizes), DataType::Int);
}

TEST(Indexing, TakeAlongAxis) {
  Tensor x = counting({3, 4});
  Tensor index = indices({2, 0, 1, 1, 3, 0}, {3, 2});
  Tensor y = run1({x, index}, [](const Views& v) { return takeAlongAxis(v[0], v[1], 1); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{2, 0, 5, 5, 11, 8}));
  Tensor shared = indices({2, 0}, {2, 1});
  Tensor z = run1({x, shared}, [](const Views& v) { return takeAlongAxis(v[0], v[1], 0); });
  EXPECT_EQ(z.toVector(), (std::vector<double>{8, 9, 10, 11, 0, 1, 2, 3}));
  Tensor narrow = counting({3, 1});
  Tensor w = run1({narrow, indices({2, 1, 0, 0}, {1, 4})}, [](const Views& v) { return takeAlongAxis(v[0], v[1], 0); });
  EXPECT_EQ(w.toVector(), (std::vector<double>{2, 1, 0, 0}));
}

TEST(Indexing, Gather) {
  Tensor x = counting({3, 4});
  Tensor y = run1({x, indices({2, 0, 1, 1}, {2, 2})}, [](const Views& v) { return gather(v[0], 0, v[1]); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{8, 1, 4, 5}));
}

TEST(Indexing, IndexSelect) {
  Tensor x = counting({2, 3, 2});
  Tensor y = run1({x, indices({2, 2, 0, 1}, {4})}, [](const Views& v) { return index_select(v[0], 1, v[1]); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{2, 4, 2}));
  EXPECT_EQ(y.toVector(), (std::vector<double>{4, 5, 4, 5, 0, 1, 2, 3, 10, 11, 10, 11, 6, 7, 8, 9}));
  Tensor none = run1({x, indices({}, {0})}, [](const Views& v) { return index_select(v[0], 1, v[1]); });
  EXPECT_EQ(sizesOf(none), (std::vector<int64_t>{2, 0, 2}));
}

TEST(Indexing, Embedding) {
  Tensor weight = counting({4, 3}, DataType::BFloat16);
  Tensor y = run1({indices({3, 0, 1, 1}, {2, 2}).to(DataType::Int32), weight},
                  [](const Views& v) { return embedding_fwd(v[0], v[1]); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{2, 2, 3}));
  EXPECT_EQ(y.dtype(), DataType::BFloat16);
  EXPECT_EQ(y.toVector(), (std::vector<double>{9, 10, 11, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
}

TEST(Indexing, ScatterKeepsTheLastOfSeveral) {
  Tensor x = counting({2, 3});
  Tensor index = indices({2, 2, 0, 1, 1, 1, 0, 1}, {2, 4});
  Tensor src = Tensor::of({10, 11, 12, 13, 20, 21, 22, 23}, {2, 4});
  Tensor y = run1({x, index, src}, [](const Views& v) { return scatter(v[0], -1, v[1], v[2]); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{12, 13, 11, 22, 23, 5}));
  Tensor column = run1({x, indices({1, 0, 1, 0, 0, 0}, {2, 3}), Tensor::of({7, 8, 9, -7, -8, -9}, {2, 3})},
                       [](const Views& v) { return scatter(v[0], 0, v[1], v[2]); });
  EXPECT_EQ(column.toVector(), (std::vector<double>{-7, -8, -9, 7, 4, 9}));
  Tensor none = run1({x, indices({}, {2, 0}), Tensor::of({}, {2, 0})},
                     [](const Views& v) { return scatter(v[0], 1, v[1], v[2]); });
  EXPECT_EQ(none.toVector(), x.toVector());
}

TEST(Indexing, IndexPutAccumulateAddsAll) {
  Tensor x = counting({3, 2});
  Tensor value = Tensor::of({10, 20, 30, 40, 50, 60}, {3, 2});
  Tensor y =
      run1({x, indices({2, 0, 2}, {3}), value}, [](const Views& v) { return indexPutAccumulate(v[0], v[1], v[2]); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{30, 41, 2, 3, 64, 85}));
  Tensor grid = run1({counting({4}), indices({3, 3, 1, 3}, {2, 2}).to(DataType::Char), counting({2, 2})},
                     [](const Views& v) { return indexPutAccumulate(v[0], v[1], v[2]); });
  EXPECT_EQ(grid.toVector(), (std::vector<double>{0, 3, 2, 7}));
  Tensor one = run1({x, indices({1}, {}), Tensor::of({7, 8}, {2})},
                    [](const Views& v) { return indexPutAccumulate(v[0], v[1], v[2]); });
  EXPECT_EQ(one.toVector(), (std::vector<double>{0, 1, 9, 11, 4, 5}));
}

TEST(Indexing, EmbeddingBackwardAddsTheRowsOfEachWord) {
  const Tensor dy = Tensor::of({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  const Tensor index = indices({2, 0, 2, 3}, {2, 2});
  const Tensor dw = run1({dy, index}, [](const Views& v) { return embedding_backward(v[0], v[1], 5); });
  EXPECT_EQ(sizesOf(dw), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(dw.toVector(), (Row{3, 4, 0, 0, 6, 8, 7, 8, 0, 0}));
  const Tensor padded = run1({dy.to(DataType::Half), index.to(DataType::Int32)},
                             [](const Views& v) { return embedding_backward(v[0], v[1], 4, 2); });
  EXPECT_EQ(padded.dtype(), DataType::Half);
  EXPECT_EQ(padded.toVector(), (Row{3, 4, 0, 0, 0, 0, 7, 8}));
  EXPECT_THROW(run1({dy, index}, [](const Views& v) { return embedding_backward(v[0], v[1], 3); }), UserError);
  EXPECT_THROW(run1({dy, index}, [](const Views& v) { return embedding_backward(v[1], v[1], 3); }), UserError);
  EXPECT_THROW(run1({dy, index}, [](const Views& v) { return embedding_backward(v[0], v[1], v[1]); }), UserError);
}

TEST(Indexing, WrittenPositionsAreInRange) {
  for (double at : {-1.0, 3.0}) {
    const Tensor index = indices({0, at}, {2});
    for (const Define& define : {Define([](const Views& v) { return Views{scatter(v[0], 0, v[1], v[2])}; }),
                                 Define([](const Views& v) { return Views{indexPutAccumulate(v[0], v[1], v[2])}; })}) {
      EXPECT_THROW((void)runAs(Extents::Concrete, {counting({3}), index, counting({2})}, define), UserError);
      EXPECT_THROW((void)runAs(Extents::Symbolic, {counting({0}), index, counting({2})}, define), UserError);
    }
  }
}

TEST(Indexing, IndexComputedInTheSameFusion) {
  Tensor x = counting({5});
  Tensor y = run1({x}, [](const Views& v) {
    return index_select(v[0], 0, castOp(DataType::Int, mul(slice(v[0], {0}, {3}), 2.0)));
  });
  EXPECT_EQ(y.toVector(), (std::vector<double>{0, 2, 4}));
}

}  // namespace
}  // namespace meshfuse
