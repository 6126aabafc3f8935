// A sentence encoder with the weights of a safetensors file in the layout of BertModel, such as all-MiniLM-L6-v2, as one fusion.
//
//   x         = layer_norm(word[tokens] + position + type[0])         [B, S, E]   word cut over the vocabulary
//   x         = layer_norm(x + attention(x))                          each layer: q, k, v cut over the heads
//   x         = layer_norm(x + gelu(x w1^T + b1) w2^T + b2)           w1 and w2 cut over the hidden features
//   embedding = mean of x over the tokens of a sentence, L2-normalized [B, E]
//
// Tokens are cut over the mesh axis dp, weights over tp; or all as a plan says (shardByPlan). Token id 0 is padding: it is not attended to,
// and not in the mean.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "meshfuse/meshfuse.h"

namespace encoder {

using namespace meshfuse;

inline void cut(TensorView* tv, int64_t dim, const DeviceMesh& mesh, std::string_view axis) {
  tv->outer_split(dim, mesh.size(axis));
  tv->axis(dim)->parallelize(mesh.axis(axis));
}

struct ModelSizes {
  int64_t words = 0;      // token ids are smaller
  int64_t positions = 0;  // of the longest sentence
  int64_t features = 0;
};

inline ModelSizes sizesOf(const SafetensorsFile& file) {
  const Tensor words = file.get("embeddings.word_embeddings.weight");
  return {words.size(0), file.get("embeddings.position_embeddings.weight").size(0), words.size(1)};
}

// Tensors of the file as inputs of the fusion, under their names. Without a mesh they have no shardings.
struct Weights {
  Fusion& fusion;
  const SafetensorsFile& file;
  const std::optional<DeviceMesh>& mesh;

  TensorView* operator()(const std::string& name, std::optional<int64_t> dim = std::nullopt) const {
    const Tensor tensor = file.get(name);
    TensorView* tv = makeContigConcreteTensor({tensor.sizes().begin(), tensor.sizes().end()}, tensor.dtype());
    fusion.addInput(tv, name);
    if (mesh) {
      tv->setDeviceMesh(*mesh);
    }
    if (mesh && dim) {
      cut(tv, *dim, *mesh, "tp");
    }
    return maybeCastOp(DataType::Float, tv);
  }
  // The features of the result are cut (column parallel).
  TensorView* columns(TensorView* x, const std::string& name) const {
    TensorView* weight = (*this)(name + ".weight", 0);
    return linear(x, weight, (*this)(name + ".bias", 0));
  }
  // The features of x are cut (row parallel).
  TensorView* rows(TensorView* x, const std::string& name) const {
    TensorView* weight = (*this)(name + ".weight", 1);
    return linear(x, weight, (*this)(name + ".bias"));
  }
  TensorView* norm(TensorView* x, const std::string& name) const {
    TensorView* weight = (*this)(name + ".weight");
    return layer_norm(x, 1, weight, (*this)(name + ".bias"), 1e-12).output;
  }
};

// mask [B, 1, 1, S]: where keys are tokens
inline TensorView* attention(TensorView* x, TensorView* mask, int64_t heads, const Weights& w,
                             const std::string& name) {
  auto ofHeads = [&](const char* part) {  // [B, H, S, E / H]
    TensorView* all = w.columns(x, name + ".self." + part);
    const std::vector<IntExpr> shape = all->shape();
    return permute(reshape(all, {shape[0], shape[1], IntExpr(heads), IntExpr(-1)}), {0, 2, 1, 3});
  };
  TensorView* q = ofHeads("query");
  TensorView* k = ofHeads("key");
  TensorView* v = ofHeads("value");
  TensorView* mixed = permute(sdpfa_fwd(q, k, v, nullptr, mask).output, {0, 2, 1, 3});
  return w.rows(flatten(mixed, 2, 3), name + ".output.dense");
}

// The number of ranks along an axis.
inline int64_t ranksOf(const DeviceMesh& mesh, std::string_view axis) {
  return mesh.teamSize({mesh.axisOf(mesh.axis(axis))});
}

// Input: tokens Int [B, S], then the tensors of the file that the model uses. Output: embeddings [B, E], whole on every rank of the mesh.
// Without a mesh nothing is sharded.
inline std::unique_ptr<Fusion> model(const SafetensorsFile& file, int64_t heads,
                                     const std::optional<DeviceMesh>& mesh = std::nullopt) {
  const int64_t features = sizesOf(file).features;
  const int64_t tp = mesh ? ranksOf(*mesh, "tp") : 1;
  check(features % heads == 0 && heads % tp == 0,
        "[encoder] got {} heads; expected a divisor of the {} features and a multiple of the {} ranks of tp", heads,
        features, tp);
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* tokens = makeContigTensor(2, DataType::Int);
  fusion->addInput(tokens, "tokens");
  if (mesh) {
    tokens->setDeviceMesh(*mesh);
    cut(tokens, 0, *mesh, "dp");
  }

  const Weights w{*fusion, file, mesh};
  const std::string e = "embeddings.";
  TensorView* ofPositions = w(e + "position_embeddings.weight");
  TensorView* positions = embedding_fwd(iota(size(tokens, 1)), ofPositions);
  TensorView* words = embedding_fwd(tokens, w(e + "word_embeddings.weight", 0));
  TensorView* type = select(w(e + "token_type_embeddings.weight"), 0, 0);
  TensorView* x = w.norm(add(add(words, positions), type), e + "LayerNorm");

  TensorView* isToken = ne(tokens, 0);
  TensorView* mask = unsqueeze(unsqueeze(isToken, 1), 1);
  const std::vector<std::string> names = file.names();
  for (int64_t layer = 0;; layer++) {
    const std::string l = fmt::format("encoder.layer.{}.", layer);
    if (std::ranges::find(names, l + "output.dense.weight") == names.end()) {
      check(layer > 0, "[encoder] the file has no {}output.dense.weight; is it in the layout of BertModel?", l);
      break;
    }
    x = w.norm(add(x, attention(x, mask, heads, w, l + "attention")), l + "attention.output.LayerNorm");
    TensorView* inner = gelu(w.columns(x, l + "intermediate.dense"));
    x = w.norm(add(x, w.rows(inner, l + "output.dense")), l + "output.LayerNorm");
  }

  TensorView* counted = castOp(DataType::Float, isToken);
  TensorView* total = sum(mul(x, unsqueeze(counted, 2)), {1});
  TensorView* average = div(total, clamp(sum(counted, {1}, /*keep_dim=*/true), 1e-9, 1e9));
  TensorView* length = sqrt(sum(mul(average, average), {1}, /*keep_dim=*/true));
  TensorView* embeddings = div(average, maximum(length, 1e-12));
  if (mesh) {
    embeddings->setDeviceMesh(*mesh);
  }
  fusion->addOutput(embeddings, "embeddings");
  return fusion;
}

// Shards a model without shardings by a plan for batches of this shape. Embeddings are whole on every rank. Batches of other sizes run as well
// if the ranks divide their sentences and tokens: the inputs keep their shardings, results without an annotation follow from them at each size.
inline AutoPlan shardByPlan(Fusion& model, std::span<const int64_t> batch, const DistributedConfig& machines,
                            OptimizationConfig wishes = {}) {
  const std::vector<IntExpr> shape = model.inputs()[0]->asTensor()->shape();
  for (const int64_t dim : {0, 1}) {
    wishes.sizes[std::string(shape[dim].symbolName())] = batch[dim];
  }
  AutoPlan plan = autoParallelize(model, machines, wishes);
  Val* embeddings = model.outputs()[0];
  FusionGuard guard(&model);
  TensorView* whole = set(embeddings->asTensor());
  whole->setDeviceMesh(plan.mesh);
  model.removeOutput(embeddings);
  model.addOutput(whole, "embeddings");
  return plan;
}

}  // namespace encoder
