#include "autoplan/models.h"

#include <cstdint>

#include "autoplan/programs.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

TensorView* modelInput(Fusion& f, const std::vector<int64_t>& shape, DataType type = DataType::BFloat16) {
  TensorView* tv = makeContigConcreteTensor(f, shape, type);
  f.addInput(tv);
  return tv;
}

TensorView* narrow(TensorView* t) { return castOp(DataType::BFloat16, t); }

// relu(x w^T) for each width in turn.
TensorView* layers(Fusion& f, TensorView* x, int64_t features, const std::vector<int64_t>& widths) {
  for (const int64_t width : widths) {
    x = narrow(relu(linear(x, modelInput(f, {width, features}))));
    features = width;
  }
  return x;
}

// Each of 16 experts takes 4096 rows of the batch, its capacity; a row goes to two of them.
TensorView* expertsWithCapacity(Fusion& f) {
  constexpr int64_t kTokens = 32768;
  constexpr int64_t kExperts = 16;
  constexpr int64_t kCapacity = 4096;
  constexpr int64_t kFeatures = 2048;
  constexpr int64_t kHidden = 8192;
  TensorView* x = modelInput(f, {kTokens, kFeatures});
  TensorView* rows = modelInput(f, {kExperts * kCapacity}, DataType::Int);  // of x, by place in an expert
  TensorView* places = modelInput(f, {2, kTokens}, DataType::Int);          // in the experts, by row of x
  TensorView* taken = reshape(index_select(x, 0, rows), {kExperts, kCapacity, kFeatures});
  TensorView* hidden = narrow(tanh_gelu(matmul(taken, modelInput(f, {kExperts, kFeatures, kHidden}))));
  TensorView* made =
      reshape(matmul(hidden, modelInput(f, {kExperts, kHidden, kFeatures})), {kExperts * kCapacity, kFeatures});
  return narrow(sum(embedding_fwd(places, made), {0}));
}

// A score of each user of the batch with each item.
TensorView* twoTowers(Fusion& f) {
  constexpr int64_t kBatch = 16384;
  const auto tower = [&](int64_t rows) {
    TensorView* ids = modelInput(f, {kBatch}, DataType::Int);
    return layers(f, embedding_fwd(ids, modelInput(f, {rows, 256})), 256, {1024, 512, 128});
  };
  TensorView* users = tower(50'000'000);
  TensorView* items = tower(2'000'000);
  return linear(users, items);
}

// A sum of weights of crossed features, and layers over embeddings.
TensorView* deepAndWide(Fusion& f) {
  constexpr int64_t kBatch = 65536;
  TensorView* crossed = modelInput(f, {kBatch, 32}, DataType::Int);
  TensorView* wide = sum(embedding_fwd(crossed, modelInput(f, {100'000'000, 1})), {1});
  TensorView* ids = modelInput(f, {kBatch, 26}, DataType::Int);
  TensorView* embedded = reshape(embedding_fwd(ids, modelInput(f, {10'000'000, 64})), {kBatch, 26 * 64});
  TensorView* deep = layers(f, embedded, 26 * 64, {1024, 512, 256});
  return sigmoid(add(linear(deep, modelInput(f, {1, 256})), wide));
}

}  // namespace

std::vector<Model> plannedModels() {
  const auto transformer = [](int64_t batch, int64_t tokens, int64_t vocabulary) {
    return [=] {
      return gpt({.layers = 2,
                  .batch = batch,
                  .tokens = tokens,
                  .features = 4096,
                  .heads = 32,
                  .vocabulary = vocabulary,
                  .dtype = DataType::BFloat16});
    };
  };
  const auto of = [](TensorView* (*body)(Fusion&)) {
    return [body] {
      auto fusion = std::make_unique<Fusion>();
      const FusionGuard guard(fusion.get());
      fusion->addOutput(body(*fusion));
      return fusion;
    };
  };
  return {{"Gpt", transformer(32, 2048, 32000)},
          {"LongContext", transformer(1, 32768, 32000)},
          {"LargeVocabulary", transformer(2, 256, 1 << 20)},
          {"ExpertsWithCapacity", of(expertsWithCapacity)},
          {"TwoTowers", of(twoTowers)},
          {"DeepAndWide", of(deepAndWide)}};
}

}  // namespace meshfuse
