// Random weights in the layout of BertModel.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/encoder_model.h"

namespace encoder {

// 13 words, which neither 2 nor 4 ranks divide
struct BertSizes {
  int64_t words = 13, positions = 32, features = 16, heads = 4, inner = 24, layers = 2;
};

inline std::vector<std::pair<std::string, Tensor>> randomWeights(const BertSizes& s) {
  std::vector<std::pair<std::string, Tensor>> weights;
  auto add = [&](const std::string& name, std::vector<int64_t> shape, double middle = 0, double spread = 0.4) {
    weights.emplace_back(
        name, randomTensor(std::move(shape), DataType::Float, weights.size() + 1, middle - spread, middle + spread));
  };
  auto addDense = [&](const std::string& name, int64_t out, int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  auto addNorm = [&](const std::string& name) {
    add(name + ".weight", {s.features}, 1);
    add(name + ".bias", {s.features});
  };
  add("embeddings.word_embeddings.weight", {s.words, s.features}, 0, 1);
  add("embeddings.position_embeddings.weight", {s.positions, s.features}, 0, 1);
  add("embeddings.token_type_embeddings.weight", {2, s.features}, 0, 1);
  addNorm("embeddings.LayerNorm");
  for (int64_t k = 0; k < s.layers; k++) {
    const std::string layer = fmt::format("encoder.layer.{}.", k);
    for (const char* part : {"query", "key", "value"}) {
      addDense(layer + "attention.self." + part, s.features, s.features);
    }
    addDense(layer + "attention.output.dense", s.features, s.features);
    addNorm(layer + "attention.output.LayerNorm");
    addDense(layer + "intermediate.dense", s.inner, s.features);
    addDense(layer + "output.dense", s.features, s.inner);
    addNorm(layer + "output.LayerNorm");
  }
  addDense("pooler.dense", s.features, s.features);  // no part of the model
  return weights;
}

}  // namespace encoder
