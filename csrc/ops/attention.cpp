#include "ops/attention.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/error.h"
#include "ops/builder_call.h"
#include "ops/contraction.h"
#include "ops/factory.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The heads of the query in groups, one group for each head of the key.
struct Groups {
  int64_t count = 0;
  int64_t each = 0;
};

// Extent of a dim counted from the last one.
IntExpr fromLast(const TensorView* x, int64_t dim) { return x->shape()[rankOf(x) - dim]; }

void checkOperands(TensorView* query, TensorView* key, TensorView* value) {
  const std::pair<TensorView*, std::string_view> operands[] = {{query, "query"}, {key, "key"}, {value, "value"}};
  for (const auto& [tv, what] : operands) {
    checkTensor("sdpfa", tv, what);
    check(rankOf(tv) >= 2, "[sdpfa] {} is {}, expected [.., length, features]; unsqueeze it", what, describe(tv));
    check(isFloatingPoint(tv->dtype()) && tv->dtype() == query->dtype(),
          "[sdpfa] {} {} is {}, query is {}; expected one floating type, cast with castOp", what, describe(tv),
          name(tv->dtype()), name(query->dtype()));
  }
  check(!provenDifferent(fromLast(query, 1), fromLast(key, 1)),
        "[sdpfa] query {} has {} features, key {} has {}; expected equal numbers", describe(query),
        fromLast(query, 1).toString(), describe(key), fromLast(key, 1).toString());
  check(!provenDifferent(fromLast(key, 2), fromLast(value, 2)),
        "[sdpfa] key {} is {} long, value {} is {}; expected equal lengths", describe(key), fromLast(key, 2).toString(),
        describe(value), fromLast(value, 2).toString());
}

std::optional<Groups> groupsOf(const TensorView* query, const TensorView* key, const TensorView* value) {
  if (rankOf(query) < 3 || rankOf(key) < 3) {
    return std::nullopt;
  }
  const IntExpr heads = fromLast(query, 3);
  const IntExpr groups = fromLast(key, 3);
  if (!heads.isConst() || !groups.isConst() || heads == groups || heads.isConst(1) || groups.isConst(1)) {
    return std::nullopt;
  }
  const Groups result{groups.constValue(), heads.constValue() / std::max<int64_t>(groups.constValue(), 1)};
  check(result.count * result.each == heads.constValue(),
        "[sdpfa] query {} has {} heads, key {} has {}; expected a multiple of the heads of key", describe(query),
        heads.toString(), describe(key), groups.toString());
  check(rankOf(value) >= 3 && !provenDifferent(fromLast(value, 3), groups),
        "[sdpfa] key {} has {} heads, value is {}; expected equal numbers", describe(key), groups.toString(),
        describe(value));
  return result;
}

// [.., H, rows..] as [.., groups, H / groups, rows..], of `inner` dims after the heads; what has no heads, or one for all, keeps
// that. x itself without groups.
TensorView* inGroups(TensorView* x, const std::optional<Groups>& groups, int64_t inner) {
  if (!groups || x == nullptr || rankOf(x) <= inner) {
    return x;
  }
  const IntExpr heads = fromLast(x, inner + 1);
  if (heads.isConst(1)) {
    return unsqueeze(x, rankOf(x) - inner - 1);
  }
  check(!provenDifferent(heads, groups->count * groups->each),
        "[sdpfa] {} has {} heads, query has {}; expected the same number, or 1", describe(x), heads.toString(),
        groups->count * groups->each);
  std::vector<IntExpr> sizes = x->shape();
  const auto at = sizes.end() - inner - 1;
  *at = groups->each;
  sizes.insert(at, IntExpr(groups->count));
  return reshape(x, sizes);
}

// [.., groups, a, b] with a dim of one for the heads of each group.
TensorView* forGroups(TensorView* x) { return unsqueeze(x, rankOf(x) - 2); }

// [.., groups, each, rows..] as [.., heads, rows..], of `inner` dims after the heads.
TensorView* asHeads(TensorView* x, int64_t inner) {
  std::vector<IntExpr> sizes = x->shape();
  const auto each = sizes.end() - inner - 1;
  *(each - 1) *= *each;
  sizes.erase(each);
  return reshape(x, sizes);
}

// [.., 1] of a reduced last dim.
TensorView* asColumn(TensorView* x) { return unsqueeze(x, rankOf(x)); }

bool isConstantFalse(const Val* flag) { return flag->isConst() && !std::get<bool>(flag->constant()); }

// Bool [L, S]: row i sees columns 0..i.
TensorView* causalMask(TensorView* scores, Val* causal) {
  Fusion& fusion = scores->fusion();
  TensorView* rows = broadcast(iota(fusion, fromLast(scores, 2)), {false, true});
  TensorView* columns = broadcast(iota(fusion, fromLast(scores, 1)), {true, false});
  TensorView* seen = ge(rows, columns);
  return causal->isConst() ? seen : logical_or(seen, logical_not(causal));
}

struct Softmax {
  TensorView* values = nullptr;
  TensorView* logSum = nullptr;
};

enum class EmptyRows : uint8_t { None, GiveZeros };

// Along the last dim. A row is empty if all of it is -inf.
Softmax softmaxOf(TensorView* x, EmptyRows empty) {
  TensorView* largest = max(x, {-1});
  if (empty == EmptyRows::GiveZeros) {
    largest = where(eq(largest, -kInf), 0.0, largest);
  }
  TensorView* e = exp(sub(x, asColumn(largest)));
  TensorView* total = sum(e, {-1});
  Softmax result;
  result.logSum = add(largest, log(total));
  TensorView* divisor = empty == EmptyRows::GiveZeros ? where(eq(total, 0.0), 1.0, total) : total;
  result.values = mul(e, asColumn(reciprocal(divisor)));
  return result;
}

Val* scaleOf(const Operand& scale, TensorView* query) {
  Fusion& fusion = query->fusion();
  if (!scale.isMissing()) {
    check(!scale.isTensor(), "[sdpfa] scale is a tensor, expected a scalar; multiply query by it");
    return scalarAs(fusion, scale.in(fusion), DataType::Double);
  }
  const IntExpr features = fromLast(query, 1);
  if (features.isConst()) {
    return fusion.scalar(1 / std::sqrt(static_cast<double>(features.constValue())));
  }
  return rsqrt(castOp(DataType::Double, fusion.intScalar(features)));
}

// A constant probability of 0 is none.
std::optional<Operand> dropoutOf(const Operand& drop, Fusion& fusion) {
  if (drop.isMissing()) {
    return std::nullopt;
  }
  check(!drop.isTensor(), "[sdpfa] dropout_p is a tensor, expected a scalar from 0 to 1");
  Val* p = scalarAs(fusion, drop.in(fusion), DataType::Double);
  if (p->isConst()) {
    const double probability = std::get<double>(p->constant());
    check(probability >= 0 && probability <= 1, "[sdpfa] dropout_p is {}, expected 0 to 1", probability);
    if (probability == 0) {
      return std::nullopt;
    }
  }
  return Operand(p);
}

// The arguments of both forms, as they are given.
struct AttentionInputs {
  TensorView* query;
  TensorView* key;
  TensorView* value;
  TensorView* bias;
  TensorView* mask;
  Operand drop;
  Operand causal;
  Operand scale;
};

// The same, checked, with heads in groups where there are any.
struct Arguments {
  TensorView* query = nullptr;
  TensorView* key = nullptr;
  TensorView* value = nullptr;
  TensorView* bias = nullptr;
  TensorView* mask = nullptr;
  Val* causal = nullptr;
  Val* scale = nullptr;
  std::optional<Operand> drop;
  std::optional<Groups> groups;

  EmptyRows emptyRows() const { return bias != nullptr || mask != nullptr ? EmptyRows::GiveZeros : EmptyRows::None; }
};

Arguments argumentsOf(const AttentionInputs& given) {
  auto [query, key, value, bias, mask, drop, isCausal, scale] = given;
  checkOperands(query, key, value);
  Fusion& fusion = query->fusion();
  const std::optional<Groups> groups = groupsOf(query, key, value);
  Val* causal = isCausal.isMissing() ? fusion.scalar(false) : isCausal.in(fusion);
  check(!causal->isTensor() && causal->dtype() == DataType::Bool,
        "[sdpfa] is_causal is no Bool scalar; give true, false or a Bool input");
  for (const auto& [tv, what] : {std::pair{bias, "bias"}, std::pair{mask, "mask"}}) {
    check(tv == nullptr || rankOf(tv) <= std::max(rankOf(query), rankOf(key)),
          "[sdpfa] {} is {}, expected a shape that stretches to the scores, [.., H, L, S]", what,
          tv == nullptr ? "" : describe(tv));
  }
  check(mask == nullptr || mask->dtype() == DataType::Bool,
        "[sdpfa] mask is {}, expected Bool elements; give numbers that are added to the scores as bias",
        mask == nullptr ? "" : describe(mask));
  Val* factor = scaleOf(scale, query);
  query = inGroups(query, groups, 2);
  key = groups ? forGroups(key) : key;
  value = groups ? forGroups(value) : value;
  bias = inGroups(bias, groups, 2);
  mask = inGroups(mask, groups, 2);
  return {query, key, value, bias, mask, causal, factor, dropoutOf(drop, fusion), groups};
}

TensorView* transposed(TensorView* x) { return transpose(x, -2, -1); }

// scale * query key^T + bias, -inf where nothing is seen.
TensorView* scoresOf(const Arguments& a) {
  TensorView* scores = mul(floatingOperand("sdpfa", matmul(a.query, transposed(a.key)), "scores"), a.scale);
  scores = a.bias == nullptr ? scores : add(scores, a.bias);
  TensorView* seen = isConstantFalse(a.causal) ? nullptr : causalMask(scores, a.causal);
  if (a.mask != nullptr) {
    seen = seen == nullptr ? a.mask : logical_and(seen, a.mask);
  }
  return seen == nullptr ? scores : where(seen, scores, -kInf);
}

// A gradient summed to its operand where that was stretched, in the operand's type.
TensorView* gradientOf(TensorView* gradient, TensorView* operand, TensorView* given) {
  TensorView* summed = maybeCastOp(given->dtype(), sum_to(gradient, operand->shape()));
  return operand == given ? summed : reshape(summed, given->shape());
}

}  // namespace

SdpfaFwdResult sdpfa_fwd(TensorView* query, TensorView* key, TensorView* value, TensorView* bias, TensorView* mask,
                         Operand dropout_p, Operand is_causal, Operand scale, const RandomSource& source) {
  const BuilderCall call("sdpfa_fwd", query);
  const Arguments a = argumentsOf({query, key, value, bias, mask, dropout_p, is_causal, scale});
  const Softmax p = softmaxOf(scoresOf(a), a.emptyRows());
  SdpfaFwdResult result;
  result.log_sumexp = a.groups ? asHeads(p.logSum, 1) : p.logSum;
  TensorView* weights = p.values;
  if (a.drop) {
    const ForwardDropoutResult dropped = dropout(weights, *a.drop, source);
    weights = dropped.output;
    result.dropout_mask = dropped.mask;
  }
  TensorView* output = matmul(maybeCastOp(query->dtype(), weights), a.value);
  result.output = a.groups ? asHeads(output, 2) : output;
  return result;
}

SdpfaFwdResult sdpfa_fwd(TensorView* query, TensorView* key, TensorView* value, Operand dropout_p, Operand is_causal,
                         Operand scale, const RandomSource& source) {
  return sdpfa_fwd(query, key, value, nullptr, nullptr, dropout_p, is_causal, scale, source);
}

SdpfaBwdResult sdpfa_bwd(TensorView* grad_output, TensorView* query, TensorView* key, TensorView* value,
                         TensorView* output, TensorView* log_sumexp, TensorView* dropout_mask, Operand dropout_p,
                         Operand is_causal, Operand scale, TensorView* bias, TensorView* mask) {
  const BuilderCall call("sdpfa_bwd", query);
  const Arguments a = argumentsOf({query, key, value, bias, mask, dropout_p, is_causal, scale});
  const std::pair<TensorView*, std::string_view> made[] = {
      {grad_output, "grad_output"}, {output, "output"}, {log_sumexp, "log_sumexp"}};
  for (const auto& [tv, what] : made) {
    checkTensor("sdpfa_bwd", tv, what);
  }
  check(grad_output->dtype() == query->dtype() && mayBeEqual(grad_output->shape(), output->shape()),
        "[sdpfa_bwd] grad_output is {}, output {}; expected one shape, and the type of query", describe(grad_output),
        describe(output));
  check(a.drop.has_value() == (dropout_mask != nullptr),
        "[sdpfa_bwd] got {} alone; give both dropout_p and dropout_mask, as in the call of sdpfa_fwd",
        a.drop ? "dropout_p" : "dropout_mask");
  grad_output = inGroups(grad_output, a.groups, 2);
  output = inGroups(output, a.groups, 2);
  log_sumexp = inGroups(log_sumexp, a.groups, 1);
  const DataType type = query->dtype();
  if (a.emptyRows() == EmptyRows::GiveZeros) {
    log_sumexp = where(eq(log_sumexp, -kInf), 0.0, log_sumexp);
  }
  log_sumexp = asColumn(log_sumexp);
  TensorView* weights = exp(sub(scoresOf(a), log_sumexp));
  TensorView* gradWeights = floatingOperand("sdpfa_bwd", matmul(grad_output, transposed(a.value)), "grad_output");
  TensorView* used = weights;
  if (a.drop) {
    Val* keep = sub(1.0, a.drop->in(query->fusion()));
    Val* each = div(1.0, add(keep, castOp(DataType::Double, eq(keep, 0.0))));  // of 0 kept there is nothing to divide
    used = dropout_backward(weights, dropout_mask, each);
    gradWeights = dropout_backward(gradWeights, dropout_mask, each);
  }
  TensorView* along = sum(mul(grad_output, output), {-1});
  TensorView* gradScores = maybeCastOp(type, mul(mul(weights, sub(gradWeights, asColumn(along))), a.scale));
  SdpfaBwdResult result;
  result.grad_query = gradientOf(matmul(gradScores, a.key), a.query, query);
  result.grad_key = gradientOf(matmul(transposed(gradScores), a.query), a.key, key);
  result.grad_value = gradientOf(matmul(transposed(maybeCastOp(type, used)), grad_output), a.value, value);
  return result;
}

}  // namespace meshfuse
