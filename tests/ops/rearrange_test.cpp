// flip, roll, triu and tril against their definitions, element by element.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/built.h"

namespace meshfuse {
namespace {

int64_t wrapped(int64_t i, int64_t n) { return ((i % n) + n) % n; }

TEST(Rearrange, FlipReversesDims) {
  const Tensor x = counting({2, 3, 4});
  const Tensor y = run1({x}, [](const Views& v) { return flip(v[0], {0, -1}); });
  const Tensor one = run1({x}, [](const Views& v) { return flip(v[0], {1}); });
  for (int64_t i = 0; i < 2; i++) {
    for (int64_t j = 0; j < 3; j++) {
      for (int64_t k = 0; k < 4; k++) {
        EXPECT_EQ(y.at({i, j, k}), x.at({1 - i, j, 3 - k}));
        EXPECT_EQ(one.at({i, j, k}), x.at({i, 2 - j, k}));
      }
    }
  }
  EXPECT_EQ(run1({x}, [](const Views& v) { return flip(v[0], {}); }).toVector(), x.toVector());
  EXPECT_EQ(sizesOf(run1({counting({0, 3})}, [](const Views& v) { return flip(v[0], {0}); })),
            (std::vector<int64_t>{0, 3}));
  EXPECT_THROW(run1({x}, [](const Views& v) { return flip(v[0], {0, -3}); }), UserError);
  EXPECT_THROW(run1({x}, [](const Views& v) { return flip(v[0], {3}); }), UserError);
}

TEST(Rearrange, RollMovesByShifts) {
  const Tensor x = counting({3, 5}, DataType::Half);
  for (const int64_t shift : {0, 1, -1, 2, 4, 5, -7, 12}) {
    const Tensor rows = run1({x}, [&](const Views& v) { return roll(v[0], {shift}, {0}); });
    const Tensor both = run1({x}, [&](const Views& v) { return roll(v[0], {shift, 2}, {-1, 0}); });
    const Tensor all = run1({x}, [&](const Views& v) { return roll(v[0], {shift}); });
    EXPECT_EQ(all.dtype(), DataType::Half);
    for (int64_t i = 0; i < 3; i++) {
      for (int64_t j = 0; j < 5; j++) {
        EXPECT_EQ(rows.at({wrapped(i + shift, 3), j}), x.at({i, j})) << shift;
        EXPECT_EQ(both.at({wrapped(i + 2, 3), wrapped(j + shift, 5)}), x.at({i, j})) << shift;
        const int64_t to = wrapped(i * 5 + j + shift, 15);
        EXPECT_EQ(all.at({to / 5, to % 5}), x.at({i, j})) << shift;
      }
    }
  }
  EXPECT_EQ(sizesOf(run1({counting({0, 3})}, [](const Views& v) { return roll(v[0], {2}, {0}); })),
            (std::vector<int64_t>{0, 3}));
  EXPECT_THROW(run1({x}, [](const Views& v) { return roll(v[0], {1, 2}, {0}); }), UserError);
  EXPECT_THROW(run1({x}, [](const Views& v) { return roll(v[0], {1, 2}); }), UserError);
  EXPECT_THROW(run1({x}, [](const Views& v) { return roll(v[0], {1}, {2}); }), UserError);
}

TEST(Rearrange, TrianglesKeepTheirSideOfADiagonal) {
  for (const DataType type : {DataType::Float, DataType::BFloat16, DataType::Char, DataType::Bool}) {
    const Tensor x = Tensor::full({2, 3, 4}, type, 1);
    for (const int64_t diagonal : {-3, -1, 0, 1, 2, 4}) {
      const Tensor upper = run1({x}, [&](const Views& v) { return triu(v[0], diagonal); });
      const Tensor lower = run1({x}, [&](const Views& v) { return tril(v[0], diagonal); });
      EXPECT_EQ(upper.dtype(), type);
      for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < 4; j++) {
          EXPECT_EQ(upper.at({1, i, j}), j - i >= diagonal ? 1 : 0) << diagonal;
          EXPECT_EQ(lower.at({1, i, j}), j - i <= diagonal ? 1 : 0) << diagonal;
        }
      }
    }
  }
  EXPECT_EQ(run1({Tensor::of({NAN, 1, 2, 3}, {2, 2})}, [](const Views& v) { return triu(v[0], 1); }).toVector(),
            (Row{0, 1, 0, 0}));
  EXPECT_THROW(run1({counting({3})}, [](const Views& v) { return triu(v[0]); }), UserError);
  EXPECT_THROW(run1({counting({3, 3})}, [](const Views& v) { return tril(v[0], 0.5); }), UserError);
  EXPECT_THROW(run1({counting({3, 3})}, [](const Views& v) { return tril(v[0], v[0]); }), UserError);
}

// torch.flip, roll, triu and tril, PyTorch 2.4.1
TEST(Rearrange, IsPyTorchs) {
  const Tensor x = counting({2, 3, 4});
  const auto of = [&](TensorView* (*define)(TensorView*)) {
    return run1({x}, [&](const Views& v) { return define(v[0]); }).toVector();
  };
  EXPECT_EQ(of([](TensorView* t) {
              return flip(t, {0, 2});
            }),
            (Row{15, 14, 13, 12, 19, 18, 17, 16, 23, 22, 21, 20, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8}));
  EXPECT_EQ(of([](TensorView* t) {
              return roll(t, {1, -5}, {2, 1});
            }),
            (Row{11, 8, 9, 10, 3, 0, 1, 2, 7, 4, 5, 6, 23, 20, 21, 22, 15, 12, 13, 14, 19, 16, 17, 18}));
  EXPECT_EQ(of([](TensorView* t) { return roll(t, {5}); }),
            (Row{19, 20, 21, 22, 23, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}));
  EXPECT_EQ(of([](TensorView* t) { return triu(t, 1); }),
            (Row{0, 1, 2, 3, 0, 0, 6, 7, 0, 0, 0, 11, 0, 13, 14, 15, 0, 0, 18, 19, 0, 0, 0, 23}));
  EXPECT_EQ(of([](TensorView* t) { return tril(t, -1); }),
            (Row{0, 0, 0, 0, 4, 0, 0, 0, 8, 9, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 20, 21, 0, 0}));
}

}  // namespace
}  // namespace meshfuse
