#include "errors/misuse.h"

namespace meshfuse {
namespace {

using Reduction = Misuse;

TEST_F(Reduction, Axes) {
  expectUserError([&] { sum(x, {2}); }, {"[sum]", "axis 2", "2 dims", "-2 to 1"});
  expectUserError([&] { max(x, {0, -2}); }, {"[max]", "axis 0", "twice"});
  expectUserError([&] { mean(zeroD, {1}); }, {"[mean]", "axis 1", "-1 to 0"});
  expectUserError([&] { sum(none, {0}); }, {"[sum]", "null"});
}

TEST_F(Reduction, Types) {
  expectUserError([&] { bitwise_or(x, {0}); }, {"[bitwise_or]", "floating", "expected integers or Bool"});
  expectUserError([&] { sum(x, {0}, false, DataType::Bool); }, {"[sum]", "Bool", "any or all"});
  expectUserError([&] { mean(x, {0}, false, DataType::Int); }, {"[mean]", "Int", "expected a floating type"});
  expectUserError([&] { reductionOp(ReduceOp::Sum, castOp(DataType::Half, x), {0}); },
                  {"[reductionOp]", "16 bits", "cast to Float"});
}

TEST_F(Reduction, SumTo) {
  expectUserError([&] { sum_to(x, {2}); }, {"[sum_to]", "dim 1", "extent 3", "size 2"});
  expectUserError([&] { sum_to(x, {1, 2, 3}); }, {"[sum_to]", "3 sizes", "at most one a dim"});
}

using Normalization = Misuse;

TEST_F(Normalization, Shapes) {
  expectUserError([&] { softmax(x, 2); }, {"[softmax]", "axis 2"});
  expectUserError([&] { layer_norm(x, {4}, nullptr, nullptr, 1e-5); }, {"[layer_norm]", "dim 1", "extent 3", "has 4"});
  expectUserError(
      [&] {
        layer_norm(x, {1, 2, 3}, nullptr, nullptr, 1e-5);
      },
      {"[layer_norm]", "3 trailing dims", "1 to 2"});
  expectUserError([&] { layer_norm(x, {3}, x, nullptr, 1e-5); }, {"[layer_norm]", "weight is", "last 1 dims"});
  expectUserError([&] { rms_norm(x, {3}, makeConcreteTensor({2}), 1e-5); }, {"[rms_norm]", "weight is", "[2]"});
  expectUserError([&] { layer_norm_backward(x, x, {3}, nullptr, x, nullptr, nullptr); },
                  {"[layer_norm_backward]", "mean is null"});
}

}  // namespace
}  // namespace meshfuse
