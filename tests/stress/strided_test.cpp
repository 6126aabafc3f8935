// Arguments that are not laid out, or not aligned, as those of the call before.
#include <gtest/gtest.h>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

// [rows, columns] in every layout that views can make.
std::vector<std::vector<Argument>> layoutsOf(int64_t rows, int64_t columns, DataType type = DataType::Float) {
  return {{random({rows, columns}, 1, type)},
          {random({1, columns}, 2, type).expand({rows, columns})},
          {random({rows, 1}, 3, type).expand({rows, columns})},
          {random({1, 1}, 4, type).expand({rows, columns})},
          {random({columns, rows}, 5, type).transpose(0, 1)},
          {random({rows, 2 * columns}, 6, type).slice(1, 0, 2 * columns, 2)},
          {random({2 * rows, columns}, 7, type).slice(0, 0, 2 * rows, 2)},
          {random({rows, columns + 1}, 8, type).slice(1, 1, columns + 1)},
          {random({columns, 2 * rows}, 9, type).slice(1, 1, 2 * rows, 2).transpose(0, 1)},
          {random({rows, columns}, 10, type)}};
}

using MakeInput = TensorView* (*)(int64_t, DataType);

TensorView* symbolic(int64_t dims, DataType type) { return makeSymbolicTensor(dims, type); }
TensorView* contiguous(int64_t dims, DataType type) { return makeContigTensor(dims, type); }

TEST(Strided, Pointwise) {
  for (MakeInput make : {symbolic, contiguous}) {
    expectAgrees(
        [=](Fusion& f) {
          TensorView* x = make(2, DataType::Float);
          f.addInput(x);
          f.addOutput(tanh_gelu(add(x, 1.0)));
          f.addOutput(set(x));
        },
        layoutsOf(12, 40));
  }
}

TEST(Strided, Reductions) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = symbolic(2, DataType::Float);
        f.addInput(x);
        f.addOutput(sum(x, {0}));
        f.addOutput(max(x, {1}));
        f.addOutput(sum(exp(x), {0, 1}));
      },
      layoutsOf(33, 70));
}

TEST(Strided, Normalizations) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = contiguous(2, DataType::Float);
        f.addInput(x);
        f.addOutput(softmax(x, 1));
        f.addOutput(softmax(x, 0));
        f.addOutput(layer_norm(x, 1, nullptr, nullptr, 1e-5).output);
      },
      layoutsOf(9, 130));
}

TEST(Strided, Contractions) {
  for (DataType type : {DataType::Float, DataType::Half, DataType::Double}) {
    expectAgrees(
        [=](Fusion& f) {
          TensorView* x = symbolic(2, type);
          f.addInput(x);
          f.addOutput(matmul(x, transpose(x)));
          f.addOutput(matmul(transpose(x), x));
          f.addOutput(linear(x, x));
        },
        layoutsOf(6, 17, type));
  }
}

TEST(Strided, ShapeOps) {
  expectAgrees(
      [](Fusion& f) {
        TensorView* x = symbolic(2, DataType::Float);
        f.addInput(x);
        f.addOutput(neg(transpose(x)));
        f.addOutput(reshape(x, {-1}));
        f.addOutput(cat({x, x}, 0));
        f.addOutput(pad(x, {1, 2}, 3.0));
        f.addOutput(slice(x, {1, 1}, {5, 9}));
        f.addOutput(bitCastOp(DataType::Int32, x));
        f.addOutput(reshape(transpose(x), {-1}));
      },
      layoutsOf(6, 20));
}

TEST(Strided, ResultsWrittenInPlace) {
  for (const std::vector<Argument>& arguments : layoutsOf(6, 20)) {
    const Tensor& x = std::get<Tensor>(arguments[0]);
    bool repeats = x.strides()[0] == 0 || x.strides()[1] == 0;
    auto build = [](Fusion& f) {
      TensorView* w = symbolic(2, DataType::Float);
      f.addInput(w);
      TensorView* next = mul(add(w, 1.0), 0.5);
      f.addOutput(next);
      f.aliasOutputToInput(next, w);
    };
    std::string error = errorOf([&] {
      CheckedCache checked(build);
      EXPECT_EQ(checked.call(arguments), "");
      EXPECT_EQ(checked.call(arguments), "");
    });
    EXPECT_EQ(error.starts_with("UserError: [run] input 0"), repeats)
        << error << " strides " << x.strides()[0] << ", " << x.strides()[1];
  }
}

// One type: aligned, then views that start 1 and 3 elements later, of every length.
void checkLengths(DataType type) {
  CheckedCache checked(
      [=](Fusion& f) {
        TensorView* x = makeContigTensor(1, type);
        TensorView* y = makeContigTensor(1, type);
        f.addInput(x);
        f.addInput(y);
        f.addOutput(type == DataType::Bool ? logical_and(x, y) : add(x, y));
      },
      {.verify = Verify::Off});
  Tensor a = random({40}, 1, type);
  Tensor b = random({40}, 2, type);
  for (int64_t n = 1; n <= 33; n++) {
    for (int64_t start : {0, 1, 3}) {
      EXPECT_EQ(checked.call({a.slice(0, start, start + n), b.slice(0, 0, n)}), "")
          << name(type) << " " << n << " from " << start;
    }
    EXPECT_EQ(checked.call({a.slice(0, 0, n), b.slice(0, 3, 3 + n)}), "") << name(type) << " " << n;
  }
}

TEST(Misaligned, Double) { checkLengths(DataType::Double); }
TEST(Misaligned, Float) { checkLengths(DataType::Float); }
TEST(Misaligned, Half) { checkLengths(DataType::Half); }
TEST(Misaligned, BFloat16) { checkLengths(DataType::BFloat16); }
TEST(Misaligned, Int) { checkLengths(DataType::Int); }
TEST(Misaligned, Int32) { checkLengths(DataType::Int32); }
TEST(Misaligned, Bool) { checkLengths(DataType::Bool); }

TEST(Misaligned, ReductionsAndNormalizations) {
  for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Double}) {
    CheckedCache checked([=](Fusion& f) {
      TensorView* x = makeContigTensor(2, type);
      f.addInput(x);
      f.addOutput(sum(x, {1}));
      f.addOutput(max(x, {0}));
      f.addOutput(softmax(x, 1));
    });
    Tensor base = random({1000}, 1, type);
    for (int64_t n : {1, 5, 16, 17, 33}) {
      for (int64_t start : {0, 1, 3}) {
        EXPECT_EQ(checked.call({base.slice(0, start, start + 7 * n).view({7, n})}), "")
            << name(type) << " " << n << " from " << start;
      }
    }
  }
}

}  // namespace

}  // namespace meshfuse
