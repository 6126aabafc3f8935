#include "ops/loss.h"

#include <vector>

#include "base/error.h"
#include "ops/builder_call.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

struct Classes {
  TensorView* logits;
  int64_t dim;
  IntExpr count;
  TensorView* counts;  // Bool, of the shape of the target: false where it is ignored
  TensorView* target;  // a class also where it is ignored
};

Classes classesOf(std::string_view op, TensorView* input, TensorView* target, const CrossEntropyOptions& options) {
  Classes c{.logits = floatingOperand(op, input, "input"), .dim = rankOf(input) == 1 ? 0 : 1};
  checkTensor(op, target, "target");
  check(isIntegral(target->dtype()), "[{}] target is {}, expected integer classes; cast with castOp", op,
        describe(target));
  check(rankOf(input) > 0, "[{}] input {} has no classes; expected [C] or [N, C, ..]", op, describe(input));
  std::vector<IntExpr> expected = input->shape();
  c.count = expected[c.dim];
  expected.erase(expected.begin() + c.dim);
  check(mayBeEqual(target->shape(), expected),
        "[{}] target is {}, expected {}: the extents of input without its classes", op, describe(target),
        describe(expected));
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1, "[{}] label_smoothing is {}, expected 0 to 1", op,
        options.label_smoothing);
  c.counts = ne(target, options.ignore_index);
  c.target = where(c.counts, target, 0);
  return c;
}

TensorView* numberOf(TensorView* counts, DataType type) { return sum(castOp(type, counts), axesIn(0, rankOf(counts))); }

}  // namespace

TensorView* cross_entropy(TensorView* input, TensorView* target, const CrossEntropyOptions& options) {
  const BuilderCall call("cross_entropy", input);
  const Classes c = classesOf("cross_entropy", input, target, options);
  const double smoothing = options.label_smoothing;
  TensorView* largest = max(c.logits, {c.dim}, true);
  TensorView* below = sub(c.logits, largest);  // the logits without their common part
  TensorView* logSum = log(sum(exp(below), {c.dim}));
  // of the logits themselves, so that ranks with parts of the classes send one number of each row; of those in memory, which no cast has to
  // write there
  TensorView* ofTarget = maybeCastOp(c.logits->dtype(), takeAlongAxis(input, unsqueeze(c.target, c.dim), c.dim));
  TensorView* picked = squeeze(sub(ofTarget, largest), c.dim);
  TensorView* loss = sub(logSum, picked);
  if (smoothing > 0) {
    TensorView* shared = sub(logSum, mean(below, {c.dim}));
    shared = mul(shared, smoothing);
    loss = add(mul(loss, 1 - smoothing), shared);
  }
  loss = where(c.counts, loss, 0.0);
  if (options.reduction == LossReduction::None) {
    return loss;
  }
  TensorView* total = sum(loss, axesIn(0, rankOf(loss)));
  return options.reduction == LossReduction::Sum ? total : div(total, numberOf(c.counts, c.logits->dtype()));
}

TensorView* cross_entropy_backward(TensorView* dy, TensorView* input, TensorView* target,
                                   const CrossEntropyOptions& options) {
  const BuilderCall call("cross_entropy_backward", input);
  const Classes c = classesOf("cross_entropy_backward", input, target, options);
  dy = floatingOperand("cross_entropy_backward", dy, "dy");
  const bool isReduced = options.reduction != LossReduction::None;
  const std::vector<IntExpr> expected = isReduced ? std::vector<IntExpr>() : target->shape();
  check(mayBeEqual(dy->shape(), expected), "[cross_entropy_backward] dy is {}, expected {}: that of the loss",
        describe(dy), describe(expected));
  if (options.reduction == LossReduction::Mean) {
    dy = div(dy, numberOf(c.counts, c.logits->dtype()));
  }
  std::vector<bool> isNew(rankOf(input), true);
  isNew[c.dim] = false;
  TensorView* classes = broadcast(iota(input->fusion(), c.count), isNew);
  TensorView* isTarget = castOp(c.logits->dtype(), eq(classes, unsqueeze(c.target, c.dim)));
  isTarget = mul(isTarget, 1 - options.label_smoothing);
  TensorView* slope = sub(softmax(c.logits, c.dim), isTarget);
  if (options.label_smoothing > 0) {
    Val* count = castOp(DataType::Double, input->fusion().intScalar(c.count));
    slope = sub(slope, div(Operand(options.label_smoothing).in(input->fusion()), count));
  }
  slope = mul(slope, isReduced ? dy : unsqueeze(dy, c.dim));
  return where(unsqueeze(c.counts, c.dim), slope, 0.0);
}

}  // namespace meshfuse
