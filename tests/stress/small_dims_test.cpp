// Dims of extent 1, by the dozen: padded, cut, broadcast and made.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

TEST(SmallDims, PadOfExtentOne) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {1, 5});
        TensorView* y = stridedInput(f, {4, 5});
        f.addOutput(pad(x, {0, 0, 1, 2}, 9.0));
        f.addOutput(add(pad(x, {0, 0, 1, 2}, 9.0), y));
        f.addOutput(mul(add(pad(x, {1, -1, 0, 0}), y), 2.0));
        f.addOutput(sum(pad(x, {2, 2, 0, 3}, 1.0), {0}));
        f.addOutput(softmax(pad(x, {0, 0, 2, 1}), 0));
      },
      {{random({1, 5}), random({4, 5}, 2)}});
}

TEST(SmallDims, PadOfBroadcastDims) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {5});
        TensorView* y = stridedInput(f, {4, 5});
        TensorView* column = broadcast(x, {true, false});
        f.addOutput(pad(column, {0, 0, 1, 2}, 3.0));
        f.addOutput(add(pad(column, {0, 0, 3, 0}), y));
        f.addOutput(pad(expand(column, {4, 5}), {1, 1, 1, 0}, -1.0));
        f.addOutput(add(column, pad(y, {0, 0, 0, 1})));
        f.addOutput(sum(pad(expand(column, {3, 5}), {0, 0, 1, 1}, 2.0), {0}));
      },
      {{random({5}), random({4, 5}, 2)}});
}

TEST(SmallDims, SliceOfExtentOneAndOfBroadcastDims) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {1, 5});
        TensorView* y = stridedInput(f, {4, 5});
        f.addOutput(slice(x, {0, 1}, {1, 4}));
        f.addOutput(add(slice(x, {0, 0}, {1, 5}), y));
        f.addOutput(slice(x, {1, 0}, {1, 5}));
        TensorView* wide = expand(x, {6, 5});
        f.addOutput(mul(slice(wide, {1, 0}, {5, 5}), y));
        f.addOutput(add(slice(wide, {2, 0}, {3, 5}), y));
        f.addOutput(
            add(slice(broadcast(x, {false, true, false}), {0, 0, 0}, {1, 1, 5}), broadcast(y, {true, false, false})));
      },
      {{random({1, 5}), random({4, 5}, 2)}});
}

TEST(SmallDims, CutToOneThenBroadcastAgain) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {4, 5});
        TensorView* row = pad(x, {0, 0, -1, -2});
        f.addOutput(add(row, x));
        f.addOutput(expand(row, {7, 5}));
        f.addOutput(mul(expand(pad(exp(x), {-4, 0}), {4, 3}), 2.0));
        f.addOutput(sum(add(row, x), {0}));
        TensorView* cell = pad(x, {-2, -2, -3, 0});
        f.addOutput(add(cell, x));
        f.addOutput(softmax(add(cell, x), 1));
        f.addOutput(pad(expand(row, {4, 5}), {1, 1}));
        f.addOutput(add(slice(x, {2, 0}, {3, 5}), x));
        f.addOutput(sub(x, pad(slice(x, {0, 4}, {4, 5}), {0, 0})));
      },
      {{random({4, 5})}});
}

TEST(SmallDims, CutToOneInSymbolicSizes) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeSymbolicTensor(2);
        f.addInput(x);
        TensorView* head = slice(x, {0, 0}, {1, 1000});
        f.addOutput(add(pad(x, {0, 0, 0, 1}), 1.0));
        f.addOutput(mul(head, 2.0));
        f.addOutput(sum(x, {0}, true));
      },
      {{random({4, 5})}, {random({1, 5})}, {random({4, 1})}, {random({1, 1})}, {random({0, 5})}});
}

TEST(SmallDims, SymbolicExtentsThatTurnOutOne) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = makeSymbolicTensor(3);
        TensorView* y = makeSymbolicTensor({-1, 1, -1});
        f.addInput(x);
        f.addInput(y);
        f.addOutput(sum(add(x, y), {1}));
        f.addOutput(softmax(x, 2));
        f.addOutput(permute(add(x, y), {2, 1, 0}));
      },
      {{random({3, 4, 5}), random({3, 1, 5}, 2)},
       {random({1, 4, 5}), random({1, 1, 5}, 2)},
       {random({3, 4, 1}), random({3, 1, 1}, 2)},
       {random({1, 1, 1}), random({1, 1, 1}, 2)}});
}

TEST(SmallDims, EightDimsSixOfThemOne) {
  std::vector<std::vector<int64_t>> shapes = {
      {1, 1, 5, 1, 1, 7, 1, 1}, {5, 1, 1, 1, 1, 1, 1, 7}, {1, 1, 1, 1, 1, 1, 5, 7}, {5, 7, 1, 1, 1, 1, 1, 1}};
  for (const std::vector<int64_t>& shape : shapes) {
    for (bool symbolic : {false, true}) {
      Tensor a = random(shape);
      Tensor b = random({35}, 2).view(shape);
      expectAgrees(
          [&](Fusion& f) {
            TensorView* x = symbolic ? makeSymbolicTensor(8) : makeConcreteTensor(shape);
            TensorView* y = symbolic ? makeSymbolicTensor(8) : makeConcreteTensor(shape);
            f.addInput(x);
            f.addInput(y);
            f.addOutput(tanh(add(x, y)));
            f.addOutput(sum(mul(x, y), {0, 2, 4, 6}));
            f.addOutput(sum(x, {1, 3, 5, 7}, true));
            f.addOutput(neg(permute(x, {7, 0, 6, 1, 5, 2, 4, 3})));
            f.addOutput(softmax(x, 5));
            f.addOutput(max(x, {0, 1, 2, 3, 4, 5, 6, 7}));
            f.addOutput(reshape(add(x, 1.0), {35}));
            if (!symbolic) {
              f.addOutput(mul(squeeze(x), 2.0));
              f.addOutput(add(broadcast(squeeze(x), {true, false, true, false, true}), 1.0));
            }
          },
          {{a, b}, {a, random({35}, 3).view(shape)}});
    }
  }
}

TEST(SmallDims, EightDimsBroadcastAgainstEachOther) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {1, 3, 1, 1, 1, 4, 1, 1});
        TensorView* y = stridedInput(f, {2, 1, 1, 1, 1, 1, 1, 5});
        TensorView* both = mul(x, y);
        f.addOutput(both);
        f.addOutput(sum(both, {0, 5}));
        f.addOutput(sum(both, {1, 7}));
        f.addOutput(softmax(both, 7));
        f.addOutput(pad(both, {0, 0, 1, 1}, 3.0));
        f.addOutput(slice(both, {0, 1, 0, 0, 0, 1, 0, 2}, {2, 2, 1, 1, 1, 2, 1, 3}));
      },
      {{random({1, 3, 1, 1, 1, 4, 1, 1}), random({2, 1, 1, 1, 1, 1, 1, 5}, 2)}});
}

TEST(SmallDims, CatOfExtentOne) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {1, 5});
        TensorView* y = stridedInput(f, {3, 5});
        f.addOutput(cat({x, y, x}, 0));
        f.addOutput(sum(cat({x, y}, 0), {0}));
        f.addOutput(add(cat({x, x, x}, 0), y));
        f.addOutput(cat({x}, 0));
        f.addOutput(cat({expand(x, {3, 5}), y}, 1));
      },
      {{random({1, 5}), random({3, 5}, 2)}});
}

TEST(SmallDims, RepeatAndReshape) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = stridedInput(f, {1, 5});
        f.addOutput(repeat(x, {3, 2}));
        f.addOutput(reshape(x, {5, 1, 1}));
        f.addOutput(add(reshape(x, {5, 1}), x));
        f.addOutput(reshape(expand(x, {4, 5}), {20}));
      },
      {{random({1, 5})}});
}

// Dims of unknown size reshaped to ones: right if there is one element, else refused at the call.
TEST(SmallDims, UnknownSizesReshapedToOnes) {
  using Sizes = std::vector<int64_t>;
  for (const int64_t rank : {1, 2}) {
    for (const Sizes& to : {Sizes{}, Sizes{1}, Sizes{1, 1}, Sizes{1, 1, 1}, Sizes{1, -1}, Sizes{-1, 1, 1}}) {
      const std::string what = fmt::format("{} dims to {}", rank, fmt::join(to, ", "));
      const bool open = std::ranges::find(to, -1) != to.end();
      const std::string error = errorOf([&] {
        CheckedCache checked([&](Fusion& f) {
          TensorView* x = makeSymbolicTensor(rank);
          f.addInput(x);
          TensorView* y = reshape(x, to);
          f.addOutput(neg(y));
          f.addOutput(open ? exp(y)
                           : mul(y, full({3}, 2.0, DataType::Float)));  // a dim of unknown size stretches to none
          f.addOutput(sum(reshape(y, Sizes{-1}), {0}));
        });
        EXPECT_EQ(checked.call({random(Sizes(rank, 1))}), "") << what;
        if (!open) {
          const std::string refused = errorOf([&] { (void)checked.call({random(Sizes(rank, 2))}); });
          EXPECT_EQ(refused.find("UserError: "), 0u) << what << ": " << refused;
        }
      });
      EXPECT_EQ(error, "") << what;
    }
  }
}

}  // namespace

}  // namespace meshfuse
