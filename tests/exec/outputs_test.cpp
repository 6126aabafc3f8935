// Outputs that are no plain results: inputs, views, one tensor twice, nothing at all.
#include <gtest/gtest.h>

#include "host/program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

TEST(Outputs, ThatAreInputsAreCopies) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = stridedInput(f, {4, 5});
    f.addOutput(x);
    f.addOutput(neg(x));
  });
  Tensor x = random({4, 5});
  for (const Tensor& t : {x, random({5, 4}, 2).transpose(0, 1), random({4, 10}, 3).slice(1, 0, 10, 2)}) {
    EXPECT_EQ(checked.call({t}), "");
    EXPECT_NE(checked.results()[0].data(), t.data());
    EXPECT_TRUE(checked.results()[0].isContiguous());
  }
}

TEST(Outputs, ListedTwice) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = stridedInput(f, {4, 5});
    TensorView* y = exp(x);
    f.addOutput(y);
    f.addOutput(y);
    f.addOutput(sum(y, {0}));
  });
  EXPECT_EQ(checked.call({random({4, 5})}), "");
  EXPECT_NE(checked.results()[0].data(), checked.results()[1].data());
}

TEST(Outputs, ThatAreViewsOfInputsAndOfEachOther) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = stridedInput(f, {4, 6});
    TensorView* y = reshape(x, {24});
    TensorView* z = neg(x);
    f.addOutput(y);
    f.addOutput(reshape(y, {2, 12}));
    f.addOutput(z);
    f.addOutput(reshape(z, {3, 8}));
    f.addOutput(unsqueeze(z, 0));
    f.addOutput(bitCastOp(DataType::Int32, z));
    f.addOutput(set(z));
  });
  for (const Tensor& t : {random({4, 6}), random({6, 4}, 2).transpose(0, 1)}) {
    EXPECT_EQ(checked.call({t}), "");
    for (size_t i = 0; i < checked.results().size(); i++) {
      for (size_t j = 0; j < i; j++) {
        EXPECT_NE(checked.results()[i].data(), checked.results()[j].data()) << i << " and " << j;
      }
    }
  }
}

TEST(Outputs, ViewsOfLibraryResults) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = stridedInput(f, {6, 6});
    TensorView* y = matmul(x, x);
    f.addOutput(reshape(y, {36}));
    f.addOutput(transpose(y));
    f.addOutput(reshape(matmul(y, x), {4, 9}));
  });
  EXPECT_EQ(checked.call({random({6, 6})}), "");
}

TEST(Outputs, UpdatesWrittenThroughViews) {
  for (bool strided : {false, true}) {
    CheckedCache checked([](Fusion& f) {
      TensorView* w = stridedInput(f, {4, 6});
      TensorView* x = stridedInput(f, {24});
      TensorView* next = reshape(mul(x, 2.0), {4, 6});
      f.addOutput(next);
      f.aliasOutputToInput(next, w);
      TensorView* v = stridedInput(f, {6, 6});
      TensorView* product = reshape(matmul(v, v), {6, 6});
      f.addOutput(product);
      f.aliasOutputToInput(product, v);
    });
    Tensor w = strided ? random({6, 4}).transpose(0, 1) : random({4, 6});
    Tensor v = strided ? random({6, 6}, 2).transpose(0, 1) : random({6, 6}, 2);
    EXPECT_EQ(checked.call({w, random({24}, 3), v}), "");
    EXPECT_EQ(checked.call({w, random({24}, 4), v}), "");
    EXPECT_EQ(checked.results()[0].data(), w.data());
  }
}

TEST(Outputs, InputPassedThroughToAnotherInput) {
  CheckedCache checked([](Fusion& f) {
    TensorView* x = stridedInput(f, {4, 6});
    TensorView* y = stridedInput(f, {4, 6});
    TensorView* copy = set(x);
    f.addOutput(copy);
    f.aliasOutputToInput(copy, y);
    f.addOutput(add(x, y));
  });
  Tensor x = random({4, 6});
  Tensor y = random({4, 6}, 2);
  EXPECT_EQ(checked.call({x, y}), "");
  EXPECT_EQ(y.toVector(), x.toVector());
}

TEST(Outputs, UnusedInputsAndNoOutputs) {
  CheckedCache unused([](Fusion& f) {
    (void)stridedInput(f, {3});
    TensorView* x = stridedInput(f, {4});
    Val* s = IrBuilder::create<Val>(DataType::Double);
    f.addInput(s);
    f.addOutput(neg(x));
  });
  EXPECT_EQ(unused.call({random({3}), random({4}), 1.0}), "");
  CheckedCache nothing([](Fusion& f) { (void)stridedInput(f, {3}); });
  EXPECT_EQ(nothing.call({random({3})}), "");
  std::vector<Tensor> none;
  nothing.cache().run(std::vector<Argument>{random({3})}, none);
}

TEST(Outputs, OfEveryType) {
  for (const DataTypeInfo& type : kDataTypes) {
    CheckedCache checked([&](Fusion& f) {
      TensorView* x = stridedInput(f, {3, 7}, type.type);
      f.addOutput(set(x));
      f.addOutput(transpose(x));
      f.addOutput(cat({x, x}, 1));
      f.addOutput(pad(x, {1, 2}, 1.0));
      for (const DataTypeInfo& to : kDataTypes) {
        f.addOutput(castOp(to.type, x));
      }
    });
    EXPECT_EQ(checked.call({random({3, 7}, 1, type.type)}), "") << type.name;
  }
}

}  // namespace

}  // namespace meshfuse
