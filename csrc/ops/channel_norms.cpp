#include "ops/channel_norms.h"

#include "base/error.h"
#include "base/ranges.h"
#include "ops/builder_call.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

// Which dims of x a statistic has, ascending: {1} of [C], {0, 1} of [N, C].
using Kept = Axes;

Axes allBut(const Kept& kept, int64_t rank) {
  return filtered(axesIn(0, rank), [&](int64_t k) { return !contains(kept, k); });
}

TensorView* spread(TensorView* statistic, const Kept& kept, int64_t rank) {
  return withDimsAt(statistic, allBut(kept, rank));
}

struct NormKind {
  bool perSample = false;  // statistics of each sample: instance norm
  bool channelsLast = false;
};

int64_t channelOf(std::string_view op, const TensorView* x, const NormKind& kind) {
  check(rankOf(x) >= (kind.perSample ? 3 : 2), "[{}] {} has {} dims, expected {}{}", op, describe(x), rankOf(x),
        kind.perSample ? "3 or more (N, C and others)" : "2 or more (N, C and others)",
        kind.channelsLast ? ", with C last" : "");
  return kind.channelsLast ? rankOf(x) - 1 : 1;
}

// A parameter or statistic in the type of computation.
TensorView* checked(std::string_view op, std::string_view what, TensorView* statistic, const TensorView* x,
                    const Kept& kept) {
  check(mayBeEqual(statistic->shape(), extentsAt(x, kept)), "[{}] {} is {}, expected one dim{} of {}", op, what,
        describe(statistic), kept.size() == 1 ? fmt::format(", as long as dim {}", kept[0]) : " for N and one for C",
        describe(x));
  return floatingOperand(op, statistic, what);
}

// The tensor to normalize, in the type of computation.
struct Normed {
  std::string_view op;
  TensorView* x;
  Kept kept;        // of the statistics
  int64_t channel;  // of the parameters
  int64_t rank() const { return rankOf(x); }
  Axes axes() const { return allBut(kept, rank()); }
  IntExpr count() const { return countOver(x, axes()); }
  TensorView* statistic(TensorView* s) const { return spread(s, kept, rank()); }
  TensorView* parameter(std::string_view what, TensorView* p) const {
    return spread(checked(op, what, p, x, {channel}), {channel}, rank());
  }
};

TensorView* scaled(const Normed& n, TensorView* y, TensorView* weight, TensorView* bias) {
  y = weight != nullptr ? mul(y, n.parameter("weight", weight)) : y;
  return bias != nullptr ? add(y, n.parameter("bias", bias)) : y;
}

struct Running {
  TensorView* mean;
  TensorView* variance;
};

struct Source {
  bool ownStatistics;     // normalize by the statistics of x, else by running statistics
  std::string_view flag;  // the argument that sets it
};

void checkRunning(std::string_view op, const Running& running, const Source& source) {
  check((running.mean == nullptr) == (running.variance == nullptr),
        "[{}] got running_mean or running_var alone; give both or neither", op);
  check(source.ownStatistics || running.mean != nullptr,
        "[{}] got no running statistics for the normalization; give running_mean and running_var, or set {}", op,
        source.flag);
}

// running * (1 - momentum) + taken * momentum, in the place of the input that `running` is, or is cast from.
void update(const Normed& n, std::string_view what, TensorView* running, TensorView* taken, const Operand& momentum) {
  Fusion& fusion = n.x->fusion();
  Val* part = momentum.in(fusion);
  TensorView* before = checked(n.op, what, running, n.x, {n.channel});
  Val* rest = sub(1.0, part);
  TensorView* added = mul(taken, part);
  TensorView* next = add(mul(before, rest), added);
  TensorView* place = running;
  auto isCopy = [](const Expr* e) {
    return e != nullptr && (e->kind() == ExprKind::Cast || e->kind() == ExprKind::Set);
  };
  while (isCopy(place->definition())) {
    place = place->definition()->input(0)->asTensor();
  }
  check(place->isFusionInput(), "[{}] {} is {}, expected an input of the fusion, or the cast of one", n.op, what,
        describe(running));
  fusion.aliasOutputToInput(maybeCastOp(place->dtype(), next), place);
}

// Normalizes with the statistics of x. Running statistics take the mean over N of statistics for each N.
ForwardNormResult normalizeByOwn(const Normed& n, TensorView* weight, TensorView* bias, const Running& running,
                                 const Operand& momentum, const Operand& eps) {
  ForwardNormResult result;
  const Axes axes = n.axes();
  result.mean = mean(n.x, axes);
  TensorView* centered = sub(n.x, n.statistic(result.mean));
  TensorView* squares = sum(mul(centered, centered), axes);
  result.invstd = rsqrt(add(div(squares, n.count()), eps));
  result.output = scaled(n, mul(centered, n.statistic(result.invstd)), weight, bias);
  if (running.mean != nullptr) {
    TensorView* variance = div(squares, n.count() - IntExpr(1));
    const bool byBatch = n.kept.size() > 1;
    update(n, "running_mean", running.mean, byBatch ? mean(result.mean, {0}) : result.mean, momentum);
    update(n, "running_var", running.variance, byBatch ? mean(variance, {0}) : variance, momentum);
  }
  return result;
}

ForwardNormResult normalizeByRunning(const Normed& n, TensorView* weight, TensorView* bias, const Running& running,
                                     const Operand& eps) {
  TensorView* centered = sub(n.x, n.parameter("running_mean", running.mean));
  TensorView* invstd = rsqrt(add(checked(n.op, "running_var", running.variance, n.x, {n.channel}), eps));
  return {.output = scaled(n, mul(centered, spread(invstd, {n.channel}, n.rank())), weight, bias)};
}

struct Statistics {
  TensorView* mean;  // both with broadcast dims
  TensorView* invstd;
  bool own;  // of x, which they then vary with
};

BackwardNormResult gradients(const Normed& n, TensorView* dy, TensorView* weight, const Statistics& statistics,
                             const std::array<bool, 3>& mask) {
  BackwardNormResult result;
  TensorView* normalized = mul(sub(n.x, statistics.mean), statistics.invstd);
  if (mask[0]) {
    TensorView* g = weight != nullptr ? mul(dy, n.parameter("weight", weight)) : dy;
    if (statistics.own) {
      // dx = invstd * (g - mean(g) - normalized * mean(g * normalized))
      TensorView* meanG = div(sum(g, n.axes(), true), n.count());
      TensorView* meanGx = div(sum(mul(g, normalized), n.axes(), true), n.count());
      TensorView* alongNormalized = mul(normalized, meanGx);
      g = sub(sub(g, meanG), alongNormalized);
    }
    result.grad_input = mul(g, statistics.invstd);
  }
  const Axes perChannel = allBut({n.channel}, n.rank());
  result.grad_weight = mask[1] && weight != nullptr ? sum(mul(dy, normalized), perChannel) : nullptr;
  result.grad_bias = mask[2] ? sum(dy, perChannel) : nullptr;
  return result;
}

struct NormInputs {
  TensorView* weight = nullptr;
  TensorView* bias = nullptr;  // of the forward form
  Running running;
  Source source;
  Operand eps;
};

ForwardNormResult forward(const Normed& n, const NormInputs& in, const Operand& momentum) {
  checkRunning(n.op, in.running, in.source);
  return in.source.ownStatistics ? normalizeByOwn(n, in.weight, in.bias, in.running, momentum, in.eps)
                                 : normalizeByRunning(n, in.weight, in.bias, in.running, in.eps);
}

// Of the forward form, with dims [C] or [N, C].
struct SavedStatistics {
  TensorView* mean;
  TensorView* invstd;
};

BackwardNormResult backward(const Normed& n, TensorView* dy, const NormInputs& in, const SavedStatistics& saved,
                            const std::array<bool, 3>& mask) {
  dy = gradientOperand(n.op, dy, "x", n.x);
  if (in.source.ownStatistics) {
    checkTensor(n.op, saved.mean, "save_mean");
    checkTensor(n.op, saved.invstd, "save_invstd");
    return gradients(n, dy, in.weight,
                     {n.statistic(checked(n.op, "save_mean", saved.mean, n.x, n.kept)),
                      n.statistic(checked(n.op, "save_invstd", saved.invstd, n.x, n.kept)), true},
                     mask);
  }
  checkRunning(n.op, in.running, in.source);
  TensorView* invstd = rsqrt(add(checked(n.op, "running_var", in.running.variance, n.x, {n.channel}), in.eps));
  return gradients(n, dy, in.weight,
                   {n.parameter("running_mean", in.running.mean), spread(invstd, {n.channel}, n.rank()), false}, mask);
}

Normed normed(std::string_view op, TensorView* x, const NormKind& kind) {
  x = floatingOperand(op, x);
  const int64_t channel = channelOf(op, x, kind);
  return {op, x, kind.perSample ? Kept{0, channel} : Kept{channel}, channel};
}

// [N, C, ..] as [N, groups, C / groups, ..].
TensorView* grouped(std::string_view op, TensorView* x, int64_t groups) {
  (void)channelOf(op, x, {});
  std::vector<IntExpr> shape = x->shape();
  check(groups >= 1, "[{}] got {} groups, expected at least 1 and a divisor of the channels", op, groups);
  check(!shape[1].isConst() || shape[1].constValue() % groups == 0,
        "[{}] {} groups do not divide the {} channels of {}; give a divisor", op, groups, shape[1].toString(),
        describe(x));
  shape[1] = floorDiv(shape[1], groups);
  shape.insert(shape.begin() + 1, IntExpr(groups));
  return reshape(x, shape);
}

// [C] as a broadcastable [groups, C / groups].
TensorView* groupedParameter(std::string_view op, std::string_view what, TensorView* p, const TensorView* x,
                             int64_t groups, int64_t rank) {
  TensorView* own = checked(op, what, p, x, {1});
  IntExpr each = floorDiv(x->shape()[1], groups);
  return spread(reshape(own, std::vector<IntExpr>{groups, each}), {1, 2}, rank);
}

}  // namespace

ForwardNormResult batch_norm(TensorView* x, TensorView* weight, TensorView* bias, TensorView* running_mean,
                             TensorView* running_var, bool training, Operand momentum, Operand eps,
                             bool channels_last) {
  const BuilderCall call("batch_norm", x);
  return forward(normed("batch_norm", x, {.channelsLast = channels_last}),
                 {weight, bias, {running_mean, running_var}, {training, "training"}, eps}, momentum);
}

BackwardNormResult batch_norm_backward(TensorView* dy, TensorView* x, TensorView* weight, TensorView* running_mean,
                                       TensorView* running_var, TensorView* save_mean, TensorView* save_invstd,
                                       bool training, Operand eps, const std::array<bool, 3>& output_mask,
                                       bool channels_last) {
  const BuilderCall call("batch_norm_backward", x);
  return backward(normed("batch_norm_backward", x, {.channelsLast = channels_last}), dy,
                  {weight, nullptr, {running_mean, running_var}, {training, "training"}, eps}, {save_mean, save_invstd},
                  output_mask);
}

ForwardNormResult instance_norm(TensorView* x, TensorView* weight, TensorView* bias, TensorView* running_mean,
                                TensorView* running_var, bool use_input_stats, Operand momentum, Operand eps,
                                bool channels_last) {
  const BuilderCall call("instance_norm", x);
  return forward(normed("instance_norm", x, {.perSample = true, .channelsLast = channels_last}),
                 {weight, bias, {running_mean, running_var}, {use_input_stats, "use_input_stats"}, eps}, momentum);
}

BackwardNormResult instance_norm_backward(TensorView* dy, TensorView* x, TensorView* weight, TensorView* running_mean,
                                          TensorView* running_var, TensorView* save_mean, TensorView* save_invstd,
                                          bool use_input_stats, Operand eps, const std::array<bool, 3>& output_mask,
                                          bool channels_last) {
  const BuilderCall call("instance_norm_backward", x);
  return backward(normed("instance_norm_backward", x, {.perSample = true, .channelsLast = channels_last}), dy,
                  {weight, nullptr, {running_mean, running_var}, {use_input_stats, "use_input_stats"}, eps},
                  {save_mean, save_invstd}, output_mask);
}

ForwardNormResult group_norm(TensorView* x, int64_t num_groups, TensorView* weight, TensorView* bias, Operand eps) {
  const BuilderCall call("group_norm", x);
  x = floatingOperand("group_norm", x);
  TensorView* parts = grouped("group_norm", x, num_groups);
  ForwardNormResult result = normalizeByOwn({"group_norm", parts, {0, 1}, 1}, nullptr, nullptr, {}, 0.0, eps);
  if (weight != nullptr) {
    result.output = mul(result.output, groupedParameter("group_norm", "weight", weight, x, num_groups, rankOf(parts)));
  }
  if (bias != nullptr) {
    result.output = add(result.output, groupedParameter("group_norm", "bias", bias, x, num_groups, rankOf(parts)));
  }
  result.output = reshape(result.output, x->shape());
  return result;
}

BackwardNormResult group_norm_backward(TensorView* dy, TensorView* x, int64_t num_groups, TensorView* mean,
                                       TensorView* invstd, TensorView* weight, const std::array<bool, 3>& output_mask) {
  const BuilderCall call("group_norm_backward", x);
  constexpr std::string_view kOp = "group_norm_backward";
  x = floatingOperand(kOp, x);
  dy = gradientOperand(kOp, dy, "x", x);
  checkTensor(kOp, mean, "mean");
  checkTensor(kOp, invstd, "invstd");
  Normed n{kOp, grouped(kOp, x, num_groups), {0, 1}, 1};
  TensorView* g = grouped(kOp, dy, num_groups);
  TensorView* means = n.statistic(checked(kOp, "mean", mean, n.x, n.kept));
  TensorView* inverse = n.statistic(checked(kOp, "invstd", invstd, n.x, n.kept));
  BackwardNormResult result;
  if (output_mask[0]) {
    TensorView* weighted =
        weight == nullptr ? g : mul(g, groupedParameter(kOp, "weight", weight, x, num_groups, n.rank()));
    BackwardNormResult own = gradients(n, weighted, nullptr, {means, inverse, true}, {true, false, false});
    result.grad_input = reshape(own.grad_input, x->shape());
  }
  const Axes perChannel = allBut({1, 2}, n.rank());
  if (output_mask[1] && weight != nullptr) {
    TensorView* normalized = mul(sub(n.x, means), inverse);
    result.grad_weight = flatten(sum(mul(g, normalized), perChannel));
  }
  result.grad_bias = output_mask[2] ? flatten(sum(g, perChannel)) : nullptr;
  return result;
}

}  // namespace meshfuse
