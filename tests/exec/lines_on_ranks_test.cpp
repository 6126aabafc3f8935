// Scans and top-k along a cut dim, on ranks: with ops before and after, of any type, in programs that update their inputs, and for sizes
// that vary.
#include <gtest/gtest.h>

#include <cmath>

#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/on_ranks.h"

namespace meshfuse {
namespace {

TEST(LinesOnRanks, ScansOfEveryKindWithOpsBesideThem) {
  for (const DataType type : {DataType::Float, DataType::BFloat16, DataType::Double, DataType::Int}) {
    for (const int64_t width : {32, 29}) {
      for (const int dim : {0, 1}) {
        std::vector<int64_t> shape{6, 6};
        shape[dim] = width;
        expectAgreesOnRanks(
            [=](Fusion& f, int64_t ranks) {
              TensorView* x = makeConcreteTensor(shape, type);
              f.addInput(x);
              cut(x, dim, ranks);
              TensorView* before = mul(x, 0.5);
              f.addOutput(add(cumsum(before, dim), 1));
              f.addOutput(cumprod(x, dim));
              if (!isHalfPrecision(type)) {
                TensorView* most = scan(x, dim, ReduceOp::Max);
                f.addOutput(sub(x, most));
                f.addOutput(scan(neg(x), dim, ReduceOp::Min));
              }
              f.addOutput(sum(cumsum(x, dim), {1 - dim}));
            },
            {{{random(shape, 3, type)}}});
      }
    }
  }
}

// A program that updates what it reads, as training does: weights along the dim, and a running total for each line.
TEST(LinesOnRanks, ScansInProgramsThatUpdateTheirInputs) {
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* w = makeContigConcreteTensor({4, 24}, DataType::Int);
        TensorView* g = makeContigConcreteTensor({4, 24}, DataType::Int);
        TensorView* total = makeContigConcreteTensor({4}, DataType::Int);
        for (TensorView* in : {w, g, total}) {
          f.addInput(in);
        }
        cut(w, 1, ranks);
        cut(g, 1, ranks);
        TensorView* weights = sub(w, cumsum(mul(g, w), 1));
        TensorView* totals = add(total, sum(scan(w, 1, ReduceOp::Max), {1}));
        f.addOutput(weights);
        f.addOutput(totals);
        f.aliasOutputToInput(weights, w);
        f.aliasOutputToInput(totals, total);
      },
      {{{random({4, 24}, 1, DataType::Int), random({4, 24}, 2, DataType::Int), random({4}, 3, DataType::Int)}}});
}

TEST(LinesOnRanks, SizesThatVary) {
  const auto of = [](int64_t rows, int64_t width) {
    return RankCall{{random({rows, width}, static_cast<uint64_t>(rows))}};
  };
  expectAgreesOnRanks(
      [](Fusion& f, int64_t ranks) {
        TensorView* x = makeContigTensor(2);
        f.addInput(x);
        cut(x, 1, ranks);
        const TopKResult top = topk(x, 3, 1);
        for (TensorView* out : {cumsum(x, 1), top.values, top.indices}) {
          f.addOutput(out);
        }
      },
      {of(3, 40), of(5, 40), of(6, 40), of(4, 48), of(2, 47), of(1, 4), of(7, 3)});
}

// The class of the second call has blocks of fewer elements than candidates.
TEST(LinesOnRanks, BlocksOfAClassWithFewElements) {
  const auto of = [](int64_t width, DataType type) { return RankCall{{random({3, width}, 7, type)}}; };
  for (const DataType type : {DataType::Float, DataType::Int}) {
    expectAgreesOnRanks(
        [=](Fusion& f, int64_t ranks) {
          TensorView* x = makeContigTensor(2, type);
          f.addInput(x);
          cut(x, 1, ranks);
          const TopKResult top = topk(x, 5, 1, false);
          for (TensorView* out : {cumsum(x, 1), top.values, top.indices}) {
            f.addOutput(out);
          }
        },
        {of(252, type), of(240 + 36, type), of(24, type), of(12, type), of(300, type), of(8, type)});
  }
}

// Few different values, so that equal ones are on several ranks.
TEST(LinesOnRanks, TopKWithTies) {
  for (const DataType type : {DataType::Float, DataType::Half, DataType::Int32, DataType::Bool}) {
    for (const int64_t width : {64, 61}) {
      for (const int dim : {0, 1}) {
        std::vector<int64_t> shape{3, 3};
        shape[dim] = width;
        std::vector<double> values = randomTensor(shape, DataType::Double, 7, -2, 2).toVector();
        for (size_t k = 0; k < values.size(); k++) {
          values[k] = isFloatingPoint(type) && k % 23 == 3 ? kNan : std::round(values[k]);
        }
        expectAgreesOnRanks(
            [=](Fusion& f, int64_t ranks) {
              TensorView* x = makeConcreteTensor(shape, type);
              f.addInput(x);
              cut(x, dim, ranks);
              for (const bool largest : {false, true}) {
                const TopKResult top = topk(x, 5, dim, largest);
                f.addOutput(top.values);
                f.addOutput(top.indices);
              }
              f.addOutput(topk(x, 1, dim).indices);
            },
            {{{Tensor::of(values, shape, type)}}});
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
