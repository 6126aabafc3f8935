// A byte-level language model with one hidden layer: its training step and its forward pass as fusions.
//
//   x      = the embeddings of 16 bytes, one after the other     [B, 16 E]
//   h      = x w1^T + b1, a = tanh_gelu(h)                       [B, H]       w1 and b1 sharded over H: column-parallel
//   logits = a w2^T + b2                                         [B, 256]     w2 sharded over H: row-parallel
//   loss   = mean of -log softmax(logits)[the next byte]
//
// By hand only the weights say where they live, and everything else follows from them. Or nothing does, and autoParallelize shards them.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/shard_tensor.h"
#include "tensor/argument.h"

namespace train_lm {

using namespace meshfuse;

inline constexpr int64_t kBytes = 256;  // values of a byte

struct ModelSizes {
  int64_t batch = 512;
  int64_t context = 16;  // bytes seen
  int64_t embedding = 16;
  int64_t hidden = 512;
  int64_t ranks = 1;
  int64_t features() const { return context * embedding; }
};

// The parameters of the model: tensors of a fusion, and the tensors it is called with, in the same order.
enum Parameter : size_t { kEmbedding, kW1, kB1, kW2, kB2, kParameters };

// Makes the parameters inputs of the fusion.
inline std::vector<TensorView*> addParameters(Fusion& fusion, const ModelSizes& m) {
  std::vector<TensorView*> p(kParameters);
  p[kEmbedding] = makeContigConcreteTensor({kBytes, m.embedding});
  p[kW1] = makeContigConcreteTensor({m.hidden, m.features()});
  p[kB1] = makeContigConcreteTensor({m.hidden});
  p[kW2] = makeContigConcreteTensor({kBytes, m.hidden});
  p[kB2] = makeContigConcreteTensor({kBytes});
  for (TensorView* parameter : p) {
    fusion.addInput(parameter);
  }
  return p;
}

// The last inputs.
inline std::vector<TensorView*> parametersOf(const Fusion& fusion) {
  std::vector<TensorView*> p;
  for (size_t i = fusion.inputs().size() - kParameters; i < fusion.inputs().size(); i++) {
    p.push_back(fusion.inputs()[i]->asTensor());
  }
  return p;
}

// This rank's part of the initial parameters, as the inputs of `fusion` are sharded: cut from the same values whatever the
// number of ranks.
inline std::vector<Tensor> initialParameters(const ModelSizes& m, const Fusion& fusion, int64_t rank) {
  auto uniform = [](std::vector<int64_t> sizes, uint64_t seed, double bound) {
    return randomTensor(std::move(sizes), DataType::Float, seed, -bound, bound);
  };
  std::vector<Tensor> p(kParameters);
  p[kEmbedding] = uniform({kBytes, m.embedding}, 1, 1);
  p[kW1] = uniform({m.hidden, m.features()}, 2, std::sqrt(3.0 / static_cast<double>(m.features())));
  p[kB1] = Tensor::zeros({m.hidden}, DataType::Float);
  p[kW2] = uniform({kBytes, m.hidden}, 3, std::sqrt(3.0 / static_cast<double>(m.hidden)));
  p[kB2] = Tensor::zeros({kBytes}, DataType::Float);
  const std::vector<TensorView*> sharded = parametersOf(fusion);
  for (size_t i = 0; i < kParameters; i++) {
    p[i] = shardTensor(p[i], sharded[i], rank).clone();
  }
  return p;
}

struct Forward {
  TensorView* x = nullptr;
  TensorView* h = nullptr;
  TensorView* a = nullptr;
  TensorView* logits = nullptr;
};

// tokens [batch, context]
inline Forward forward(TensorView* tokens, const std::vector<TensorView*>& p, int64_t batch, const ModelSizes& m) {
  Forward f;
  f.x = reshape(embedding_fwd(tokens, p[kEmbedding]), {batch, m.features()});
  f.h = linear(f.x, p[kW1], p[kB1]);
  f.a = tanh_gelu(f.h);
  f.logits = linear(f.a, p[kW2], p[kB2]);
  return f;
}

// 1.0 where a byte of `bytes` [N] is the row (dim 0) or column (dim 1) number, else 0.0: [256, N] or [N, 256].
inline TensorView* oneHot(TensorView* bytes, int dim) {
  TensorView* values = unsqueeze(iota(kBytes, 0, 1, bytes->dtype()), 1 - dim);
  return castOp(DataType::Float, eq(values, unsqueeze(bytes, dim)));
}

// The gradients of the mean loss, by hand.
inline std::vector<TensorView*> backward(const Forward& f, TensorView* probabilities, TensorView* target,
                                         TensorView* tokens, const std::vector<TensorView*>& p, const ModelSizes& m) {
  std::vector<TensorView*> g(kParameters);
  TensorView* dlogits = mul(sub(probabilities, target), 1.0 / static_cast<double>(m.batch));
  g[kB2] = sum(dlogits, {0});
  g[kW2] = matmul(transpose(dlogits), f.a);
  TensorView* dh = tanh_gelu_backward(matmul(dlogits, p[kW2]), f.h);
  g[kB1] = sum(dh, {0});
  g[kW1] = matmul(transpose(dh), f.x);
  TensorView* dx = reshape(matmul(dh, p[kW1]), {m.batch * m.context, m.embedding});
  g[kEmbedding] = matmul(oneHot(reshape(tokens, {m.batch * m.context}), 0), dx);
  return g;
}

// Inputs: tokens Int [batch, context], the next bytes Int [batch], the learning rate, the parameters.
// Outputs: the loss [], the new parameters in the memory of the old ones. No tensor has a sharding.
inline std::unique_ptr<Fusion> unshardedStep(const ModelSizes& m) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* tokens = makeContigConcreteTensor({m.batch, m.context}, DataType::Int);
  TensorView* next = makeContigConcreteTensor({m.batch}, DataType::Int);
  Val* rate = IrBuilder::create<Val>(DataType::Double);
  fusion->addInput(tokens);
  fusion->addInput(next);
  fusion->addInput(rate);
  std::vector<TensorView*> p = addParameters(*fusion, m);

  Forward f = forward(tokens, p, m.batch, m);
  TensorView* logProbabilities = log_softmax(f.logits, 1);
  TensorView* target = oneHot(next, 1);
  TensorView* loss = mul(sum(mul(logProbabilities, target), {0, 1}), -1.0 / static_cast<double>(m.batch));
  fusion->addOutput(loss);

  std::vector<TensorView*> g = backward(f, exp(logProbabilities), target, tokens, p, m);
  for (size_t i = 0; i < kParameters; i++) {
    TensorView* updated = sub(p[i], mul(g[i], rate));
    fusion->addOutput(updated);
    fusion->aliasOutputToInput(updated, p[i]);
  }
  return fusion;
}

// The same with shardings by hand.
inline std::unique_ptr<Fusion> trainingStep(const ModelSizes& m) {
  std::unique_ptr<Fusion> fusion = unshardedStep(m);
  const std::vector<TensorView*> p = parametersOf(*fusion);
  for (TensorView* parameter : p) {
    parameter->setDeviceMesh(DeviceMesh::createForNumDevices(m.ranks));
  }
  for (auto [parameter, axis] : {std::pair{p[kW1], 0}, {p[kB1], 0}, {p[kW2], 1}}) {
    parameter->outer_split(axis, m.ranks);
    parameter->axis(axis)->parallelize(ParallelType::DIDx);
  }
  return fusion;
}

// Inputs: tokens Int [1, context], the parameters, sharded as those of the training step. Output: the logits [1, 256], whole on every rank.
inline std::unique_ptr<Fusion> prediction(const ModelSizes& m, const Fusion& step) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* tokens = makeContigConcreteTensor({1, m.context}, DataType::Int);
  fusion->addInput(tokens);
  std::vector<TensorView*> p = addParameters(*fusion, m);
  TensorView* logits = forward(tokens, p, 1, m).logits;
  fusion->addOutput(logits);
  const std::vector<TensorView*> sharded = parametersOf(step);
  for (size_t i = 0; i < kParameters; i++) {
    setShardState(p[i], shardState(sharded[i]));
  }
  logits->setDeviceMesh(sharded[0]->getDeviceMesh());
  return fusion;
}

}  // namespace train_lm
