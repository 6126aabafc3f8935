#include "autoplan/programs.h"

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/contraction.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

TensorView* input(Fusion& f, const std::vector<int64_t>& shape, DataType type = DataType::Float) {
  TensorView* tv = makeContigConcreteTensor(f, shape, type);
  f.addInput(tv);
  return tv;
}

using Body = std::function<std::vector<TensorView*>(Fusion&)>;

ProgramOfSearch program(const std::string& name, const Body& body, bool productsMayDiffer = false) {
  return {name,
          [body] {
            auto fusion = std::make_unique<Fusion>();
            FusionGuard guard(fusion.get());
            for (TensorView* out : body(*fusion)) {
              fusion->addOutput(out);
            }
            return fusion;
          },
          productsMayDiffer};
}

TensorView* block(Fusion& f, TensorView* x, const GptSizes& s) {
  const int64_t e = s.features;
  const auto norm = [&](TensorView* t) {
    return castOp(s.dtype, layerNormOver(t, 1, input(f, {e}), input(f, {e}), 1e-5).output);
  };
  const auto heads = [&](TensorView* t) {
    return permute(reshape(linear(t, input(f, {e, e}, s.dtype)), {s.batch, s.tokens, s.heads, e / s.heads}),
                   {0, 2, 1, 3});
  };
  TensorView* n = norm(x);
  TensorView* q = heads(n);
  TensorView* k = heads(n);
  TensorView* v = heads(n);
  TensorView* scores = castOp(s.dtype, softmax(matmul(q, transpose(k, 2, 3)), -1));
  TensorView* mixed = reshape(permute(matmul(scores, v), {0, 2, 1, 3}), {s.batch, s.tokens, e});
  x = castOp(s.dtype, add(x, linear(mixed, input(f, {e, e}, s.dtype))));
  TensorView* up = input(f, {4 * e, e}, s.dtype);
  TensorView* hidden = castOp(s.dtype, tanh_gelu(linear(norm(x), up)));
  return castOp(s.dtype, add(x, linear(hidden, input(f, {e, 4 * e}, s.dtype))));
}

std::vector<TensorView*> mlp(Fusion& f) {
  TensorView* x = input(f, {8, 16});
  TensorView* h = relu(linear(x, input(f, {32, 16}), input(f, {32})));
  return {linear(h, input(f, {16, 32}), input(f, {16}))};
}

std::vector<TensorView*> attention(Fusion& f) {
  TensorView* q = input(f, {2, 4, 8, 4});
  TensorView* k = input(f, {2, 4, 8, 4});
  TensorView* v = input(f, {2, 4, 8, 4});
  return {sdpfa_fwd(q, k, v).output};
}

std::vector<TensorView*> attentionBackward(Fusion& f) {
  TensorView* q = input(f, {2, 4, 8, 4});
  TensorView* k = input(f, {2, 4, 8, 4});
  TensorView* v = input(f, {2, 4, 8, 4});
  const SdpfaFwdResult forward = sdpfa_fwd(q, k, v);
  TensorView* grad = input(f, {2, 4, 8, 4});
  const SdpfaBwdResult backward = sdpfa_bwd(grad, q, k, v, forward.output, forward.log_sumexp);
  return {backward.grad_query, backward.grad_key, backward.grad_value};
}

// The mean over rows of -log softmax at the target, with the gradients of both weights, which are updated in place.
std::vector<TensorView*> trainingStep(Fusion& f) {
  constexpr int64_t kRows = 8;
  constexpr int64_t kClasses = 16;
  TensorView* x = input(f, {kRows, 12});
  TensorView* target = input(f, {kRows}, DataType::Int);
  TensorView* w1 = input(f, {24, 12});
  TensorView* w2 = input(f, {kClasses, 24});
  TensorView* h = linear(x, w1);
  TensorView* a = tanh_gelu(h);
  TensorView* logProbabilities = log_softmax(linear(a, w2), 1);
  TensorView* classes = unsqueeze(iota(kClasses, 0, 1, DataType::Int), 0);
  TensorView* oneHot = castOp(DataType::Float, eq(classes, unsqueeze(target, 1)));
  TensorView* loss = mul(sum(mul(logProbabilities, oneHot), {0, 1}), -1.0 / kRows);
  TensorView* dlogits = mul(sub(exp(logProbabilities), oneHot), 1.0 / kRows);
  TensorView* dh = tanh_gelu_backward(matmul(dlogits, w2), h);
  TensorView* new2 = sub(w2, mul(matmul(transpose(dlogits), a), 0.1));
  TensorView* new1 = sub(w1, mul(matmul(transpose(dh), x), 0.1));
  f.aliasOutputToInput(new1, w1);
  f.aliasOutputToInput(new2, w2);
  return {loss};
}

std::vector<TensorView*> normBackward(Fusion& f) {
  TensorView* x = input(f, {8, 16});
  TensorView* w = input(f, {16});
  TensorView* b = input(f, {16});
  TensorView* dy = input(f, {8, 16});
  const ForwardNormResult forward = layerNormOver(x, 1, w, b, 1e-5);
  const BackwardNormResult grads = layer_norm_backward(dy, x, {16}, forward.mean, forward.invstd, w, b);
  return {grads.grad_input, grads.grad_weight, grads.grad_bias};
}

}  // namespace

std::unique_ptr<Fusion> gpt(const GptSizes& s) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  Fusion& f = *fusion;
  TensorView* tokens = input(f, {s.batch, s.tokens}, DataType::Int);
  TensorView* x = embedding_fwd(tokens, input(f, {s.vocabulary, s.features}, s.dtype));
  for (int64_t layer = 0; layer < s.layers; layer++) {
    x = block(f, x, s);
  }
  f.addOutput(linear(x, input(f, {s.vocabulary, s.features}, s.dtype)));
  return fusion;
}

std::vector<ProgramOfSearch> plannedPrograms() {
  const auto layer = [](Fusion& f) {
    const GptSizes s;
    return std::vector{block(f, input(f, {s.batch, s.tokens, s.features}), s)};
  };
  return {program("Mlp", mlp),
          program("Attention", attention),
          program("TransformerLayer", layer),
          {"VocabularyHead", [] { return gpt({.layers = 1, .vocabulary = 256}); }, false},
          program("AttentionBackward", attentionBackward),
          program("TrainingStep", trainingStep, true),
          program("NormBackward", normBackward)};
}

std::vector<Argument> valuesFor(const Fusion& fusion) {
  std::vector<Argument> values;
  for (const Val* in : fusion.inputs()) {
    const auto seed = static_cast<uint64_t>(values.size() + 1);
    const bool isFloating = isFloatingPoint(in->dtype());
    values.emplace_back(
        randomTensor(in->asTensor()->constantShape(), in->dtype(), seed, isFloating ? -1 : 0, isFloating ? 1 : 8));
  }
  return values;
}

}  // namespace meshfuse
