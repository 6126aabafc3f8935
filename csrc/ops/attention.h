// Scaled dot-product attention and its backward form, as compositions of matrix products and the softmax between them.
//
//   output = softmax(scale * query key^T + bias) value, row by row of the scores [.., L, S]
//
//   query  [.., H, L, E]     key [.., G, S, E]     value [.., G, S, V]     output [.., H, L, V]
//
// Leading dims stretch as in matmul. Grouped queries: if key and value have fewer heads G than H, and both
// numbers are constants, each head of key and value serves H / G consecutive heads of the query. All operands have one floating type, and
// so have the output and the stored scores: products of Half operands must stay below 65504. The softmax is computed in Float (Double
// stays).
#pragma once

#include "ops/factory.h"

namespace meshfuse {

struct SdpfaFwdResult {
  TensorView* output = nullptr;
  TensorView* log_sumexp = nullptr;  // [.., H, L]: log of the sum of exp(scores) of each row; Float, or Double
  TensorView* dropout_mask =
      nullptr;  // Bool, of the shape of the scores, [.., G, H / G, L, S] of grouped queries; null without dropout
};

// bias       added to the scores; stretches to [.., H, L, S]. May be null.
// mask       Bool, stretches to [.., H, L, S]: scores are excluded where it is false. May be null.
// dropout_p  with this probability an entry of the softmax is dropped, the others are divided by 1 - dropout_p; null is 0
// is_causal  row i uses columns 0..i only, for any L and S; Bool, a constant or known at run time; null is false
// scale      1 / sqrt(E) if null
// source     of the numbers that say which entries are dropped, as of dropout(): by default the same entries in every call
// With a bias or a mask, a row whose scores are all -inf gives zeros, and a log_sumexp of -inf, not NaN; a row with
// a NaN gives NaN. S may be 0: then every row has no scores and gives zeros.
// UserError `[sdpfa]` on other types, shapes that do not fit, or heads of the query that are not a multiple of the heads of the key.
SdpfaFwdResult sdpfa_fwd(TensorView* query, TensorView* key, TensorView* value, TensorView* bias, TensorView* mask,
                         Operand dropout_p = 0.0, Operand is_causal = false, Operand scale = static_cast<Val*>(nullptr),
                         const RandomSource& source = {});
SdpfaFwdResult sdpfa_fwd(TensorView* query, TensorView* key, TensorView* value, Operand dropout_p = 0.0,
                         Operand is_causal = false, Operand scale = static_cast<Val*>(nullptr),
                         const RandomSource& source = {});

struct SdpfaBwdResult {
  TensorView* grad_query = nullptr;
  TensorView* grad_key = nullptr;
  TensorView* grad_value = nullptr;
};

// The gradients of sum(grad_output * output), each of the shape and type of its operand, with the softmax recomputed from log_sumexp
// (Dao et al., FlashAttention, 2022). output, log_sumexp and dropout_mask are results of sdpfa_fwd, called with the other
// arguments; without dropout the mask is null. A dropout_p of 1 gives zeros.
SdpfaBwdResult sdpfa_bwd(TensorView* grad_output, TensorView* query, TensorView* key, TensorView* value,
                         TensorView* output, TensorView* log_sumexp, TensorView* dropout_mask = nullptr,
                         Operand dropout_p = 0.0, Operand is_causal = false, Operand scale = static_cast<Val*>(nullptr),
                         TensorView* bias = nullptr, TensorView* mask = nullptr);

}  // namespace meshfuse
