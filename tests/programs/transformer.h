// The forward pass of a transformer, data parallel over the axis dp of its mesh and tensor parallel over tp: only the input and the
// weights are annotated.
#pragma once

#include "ir/fusion.h"

namespace meshfuse {

struct TransformerSizes {
  int64_t layers = 1;
  int64_t batch = 4;
  int64_t tokens = 8;
  int64_t features = 8;
  int64_t heads = 4;
  DataType dtype = DataType::Float;
  bool dropout = false;        // of what both halves of a block add; a FusionGuard is held
  bool parallel = false;       // attention and MLP of a block read the same norm, and are added to the input together
  bool sequence = false;       // the input is cut over tp too, along its tokens
  double scale = 1;            // of what the parallel halves of a block add
  bool narrowWeights = false;  // are stored in BFloat16, and computed with in dtype
  bool dataSharded = false;    // weights are cut over dp too, on the dim that tp leaves whole
};

// Adds the inputs, [batch, tokens, features] and the weights of each layer; gives the output, which is none yet.
[[nodiscard]] TensorView* transformer(Fusion& fusion, const DeviceMesh& mesh, const TransformerSizes& sizes);

}  // namespace meshfuse
