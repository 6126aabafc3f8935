// A BERT-like encoder for sentences of two words: six layers, 384 features, twelve heads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "meshfuse/meshfuse.h"

namespace meshfuse {

class Communicator;

inline constexpr int64_t kEncoderFeatures = 384;
inline constexpr int64_t kEncoderWords = 2;

// The inputs of the fusion are x [sentences, words, features], of any number of sentences, and the weights.
struct EncoderProgram {
  std::unique_ptr<Fusion> fusion;
  std::vector<Argument> weights;

  [[nodiscard]] std::vector<Argument> inputs(int64_t sentences) const;
};

// ranks: the weights of attention and of both wide layers are cut over them; null: no mesh.
[[nodiscard]] EncoderProgram encoderProgram(Communicator* ranks = nullptr);

}  // namespace meshfuse
