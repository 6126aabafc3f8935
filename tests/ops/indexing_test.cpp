#include "ops/indexing.h"

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

TEST(Indexing, IndexComputedInTheSameFusion) {
  Tensor x = counting({5});
  Tensor y = run1({x}, [](const Views& v) {
    return index_select(v[0], 0, castOp(DataType::Int, mul(slice(v[0], {0}, {3}), 2.0)));
  });
  EXPECT_EQ(y.toVector(), (std::vector<double>{0, 2, 4}));
}

}  // namespace
}  // namespace meshfuse
