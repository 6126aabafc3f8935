// Programs of tensors that outgrow the caches, with several dims that no vector divides: their kernels run over flattened dims.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

struct LargeCase {
  std::vector<int64_t> sizes;
  DataType type = DataType::Float;
  std::function<TensorView*(TensorView*)> build;
};

std::vector<LargeCase> largeCases() {
  const auto negated = [](TensorView* x) { return neg(x); };
  return {
      {{23, 192, 235}, DataType::Float, negated},
      {{1, 3, 612, 601}, DataType::Float, negated},
      {{2, 3, 400, 301}, DataType::Double, negated},
      {{3, 5, 7, 11, 911}, DataType::Float, [](TensorView* x) { return castOp(DataType::Half, exp(x)); }},
      {{23, 192, 235}, DataType::BFloat16, [](TensorView* x) { return castOp(DataType::BFloat16, mul(x, 3.0)); }},
      {{23, 192, 235}, DataType::Float, [](TensorView* x) { return add(x, sum(x, {2}, true)); }},
      {{23, 192, 235}, DataType::Float, [](TensorView* x) { return add(x, transpose(x, 0, 0)); }},
      {{101, 103, 103},
       DataType::Float,
       [](TensorView* x) {
         return maximum(reshape(x, {101 * 103, 103}), 0.0);
       }},
      {{103, 103, 101},
       DataType::Float,
       [](TensorView* x) {
         return neg(permute(x, {1, 0, 2}));
       }},
      {{103, 103, 101},
       DataType::Float,
       [](TensorView* x) {
         return neg(slice(x, {0, 1, 2}, {103, 100, 99}));
       }},
  };
}

TEST(LargeOddShapes, RunAsTheReferenceDoes) {
  int64_t number = 0;
  for (const LargeCase& c : largeCases()) {
    SCOPED_TRACE("case " + std::to_string(number++));
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigConcreteTensor(c.sizes, c.type);
      fusion->addInput(x);
      fusion->addOutput(c.build(x));
    }
    const std::vector<Argument> inputs{randomTensor(c.sizes, c.type, 7, -2, 2)};
    const std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, inputs);
    FusionExecutorCache cache(std::move(fusion), {.sharePlans = false});
    EXPECT_EQ(compare(cache.runFusionWithInputs(inputs)[0], expected[0]).value_or(""), "");
  }
}

struct LargeLookup {
  std::vector<int64_t> index;
  std::vector<int64_t> table;
  std::vector<int64_t> other;  // added to the result
  std::function<TensorView*(TensorView* index, TensorView* table)> build;
};

// Kernels of lookups may fetch the rows that they read next.
TEST(LargeOddShapes, LookupsRunAsTheReferenceDoes) {
  const auto embedding = [](TensorView* index, TensorView* table) { return embedding_fwd(index, table); };
  const std::vector<LargeLookup> lookups = {
      {{1024},
       {2048, 30, 1},
       {2048, 1024, 1},
       [](TensorView* index, TensorView* table) { return index_select(table, 1, index); }},
      {{1024},
       {30, 1},
       {1030, 1024},
       [](TensorView* index, TensorView* table) { return squeeze(embedding_fwd(index, table), 1); }},
      {{1030}, {30, 1023}, {1030, 1023}, embedding},
      {{}, {30, 1024}, {1030, 1024}, embedding},
      {{7, 150}, {30, 1024}, {7, 150, 1024}, embedding},
      {{1030},
       {30, 1024},
       {1030, 1024},
       [](TensorView* index, TensorView* table) { return index_select(table, 0, index); }},
      {{30},
       {64, 100, 640},
       {64, 30, 640},
       [](TensorView* index, TensorView* table) { return index_select(table, 1, index); }},
  };
  int64_t number = 0;
  for (const LargeLookup& c : lookups) {
    SCOPED_TRACE("case " + std::to_string(number++));
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* index = makeContigConcreteTensor(c.index, DataType::Int);
      TensorView* table = makeContigConcreteTensor(c.table);
      TensorView* other = makeContigConcreteTensor(c.other);
      fusion->addInput(index);
      fusion->addInput(table);
      fusion->addInput(other);
      fusion->addOutput(add(c.build(index, table), other));
    }
    const std::vector<Argument> inputs{randomTensor(c.index, DataType::Int, 7, 0, 29),
                                       randomTensor(c.table, DataType::Float, 8, -2, 2),
                                       randomTensor(c.other, DataType::Float, 9, -2, 2)};
    const std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, inputs);
    FusionExecutorCache cache(std::move(fusion), {.sharePlans = false});
    EXPECT_EQ(compare(cache.runFusionWithInputs(inputs)[0], expected[0]).value_or(""), "");
  }
}

}  // namespace
}  // namespace meshfuse
