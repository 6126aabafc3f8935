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
                  {"[reductionOp]", "16-bit elements", "cast to Float"});
}

TEST_F(Reduction, SumTo) {
  expectUserError([&] { sum_to(x, {2}); }, {"[sum_to]", "dim 1", "extent 3", "size 2"});
  expectUserError([&] { sum_to(x, {1, 2, 3}); }, {"[sum_to]", "3 sizes", "at most one for each dim"});
}

TEST_F(Reduction, Statistics) {
  expectUserError([&] { variance(x, {2}); }, {"[variance]", "axis 2", "-2 to 1"});
  expectUserError([&] { standard_deviation(x, {0}, -1); }, {"[standard_deviation]", "correction is -1", "0 or more"});
  expectUserError([&] { variance_mean(none, {0}); }, {"[variance_mean]", "null"});
  expectUserError([&] { Welford(x, {0}, x); }, {"[Welford]", "init_avg alone", "or none"});
  expectUserError([&] { Welford(x, {0}, x, x, 1); }, {"[Welford]", "[2, 3]", "number of dims", "[3]"});
  expectUserError([&] { argmax(x, 2); }, {"[argmax]", "axis 2", "-2 to 1"});
  expectUserError([&] { argmin(makeConcreteTensor({4, 0}), 1); }, {"[argmin]", "dim 1", "[4, 0]", "no elements"});
}

TEST_F(Reduction, AlongADim) {
  expectUserError([&] { cumsum(x, 2); }, {"[cumsum]", "axis 2", "-2 to 1"});
  expectUserError([&] { cumsum(none, 0); }, {"[cumsum]", "null"});
  expectUserError([&] { cumprod(x, 0, DataType::Bool); }, {"[cumprod]", "Bool", "ReduceOp::Or"});
  expectUserError([&] { scan(castOp(DataType::Half, x), 0, ReduceOp::Sum); },
                  {"[scan]", "sum is not defined for Half", "cast"});
  expectUserError([&] { scan(x, 0, ReduceOp::And); }, {"[scan]", "and is not defined for Float"});
  expectUserError([&] { scan(gt(x, 0), 0, ReduceOp::Max); }, {"[scan]", "max is not defined for Bool"});
  expectUserError([&] { sort(x, -3); }, {"[sort]", "axis -3", "-2 to 1"});
  expectUserError([&] { argsort(none); }, {"[argsort]", "null"});
  expectUserError([&] { topk(x, 4); }, {"[topk]", "k is 4", "dim 1", "extent 3"});
  expectUserError([&] { topk(x, -1); }, {"[topk]", "k is -1", "0 or more"});
  expectUserError([&] { topk(x, 1.5); }, {"[topk]", "k is no integer"});
  expectUserError([&] { topk(zeroD, 0); }, {"[topk]", "k is 0", "ask for 1"});
  expectUserError([&] { select(x, 0, 2); }, {"[select]", "index 2", "dim 0", "-2 to 1"});
  expectUserError([&] { select(x, 2, 0); }, {"[select]", "axis 2"});
  expectUserError([&] { select(x, 0, 0.5); }, {"[select]", "no integer"});
  expectUserError([&] { select(x, 0, n); }, {"[select]", "[2, 3]", "index_select"});
  expectUserError([&] { select(zeroD, 0, 0); }, {"[select]", "no dims"});
}

using Normalization = Misuse;

TEST_F(Normalization, Channels) {
  TensorView* i = makeConcreteTensor({2, 4, 3});
  TensorView* three = makeConcreteTensor({3});
  TensorView* c = makeConcreteTensor({4});
  fusion.addInput(c);
  auto batch = [&](TensorView* t, TensorView* w, TensorView* mean, TensorView* var, bool training) {
    batch_norm(t, w, nullptr, mean, var, training, 0.1, 1e-5);
  };
  expectUserError([&] { batch(three, none, none, none, true); }, {"[batch_norm]", "[3] has 1 dims", "2 or more (N, C"});
  expectUserError([&] { batch(i, three, none, none, true); },
                  {"[batch_norm]", "weight is", "[3]", "as long as dim 1", "[2, 4, 3]"});
  expectUserError([&] { batch(i, none, none, none, false); },
                  {"[batch_norm]", "no running statistics", "set training"});
  expectUserError([&] { batch(i, none, c, none, true); }, {"[batch_norm]", "alone", "both or neither"});
  expectUserError([&] { batch(i, none, neg(c), c, true); },
                  {"[batch_norm]", "running_mean is", "expected an input of the fusion"});
  expectUserError([&] { batch(i, none, c, c, true); }, {"[aliasOutputToInput]", "aliased once"});
  expectUserError([&] { batch_norm_backward(i, i, none, none, none, none, none, true, 1e-5); },
                  {"[batch_norm_backward]", "save_mean is null"});
  expectUserError([&] { instance_norm(x, none, none, none, none, true, 0.1, 1e-5); },
                  {"[instance_norm]", "2 dims", "3 or more"});
  expectUserError([&] { group_norm(i, 3, none, none, 1e-5); },
                  {"[group_norm]", "3 groups do not divide the 4 channels", "[2, 4, 3]"});
  expectUserError([&] { group_norm(i, 0, none, none, 1e-5); }, {"[group_norm]", "0 groups", "at least 1"});
  expectUserError([&] { group_norm_backward(i, i, 2, none, c, none); }, {"[group_norm_backward]", "mean is null"});
}

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
