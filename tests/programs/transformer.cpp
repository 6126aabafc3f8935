#include "programs/transformer.h"

#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/factory.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

class TransformerBuilder {
 public:
  TransformerBuilder(Fusion& fusion, const DeviceMesh& mesh, const TransformerSizes& sizes)
      : fusion_(fusion), mesh_(mesh), s_(sizes) {}

  TensorView* build() {
    TensorView* x = input({s_.batch, s_.tokens, s_.features}, s_.dtype);
    if (s_.sequence) {
      cut(x, 1, "tp");
    }
    cut(x, 0, "dp");
    for (int64_t layer = 0; layer < s_.layers; layer++) {
      if (s_.parallel) {
        TensorView* n = norm(x);
        x = castOp(s_.dtype, add(add(x, scaled(attention(n))), scaled(feedForward(n))));
        continue;
      }
      x = castOp(s_.dtype, add(x, dropped(attention(norm(x)))));
      x = castOp(s_.dtype, add(x, dropped(feedForward(norm(x)))));
    }
    return x;
  }

 private:
  TensorView* scaled(TensorView* x) const { return s_.scale == 1 ? x : mul(x, s_.scale); }

  TensorView* input(const std::vector<int64_t>& shape, DataType dtype) {
    TensorView* tv = makeContigConcreteTensor(fusion_, shape, dtype);
    fusion_.addInput(tv);
    tv->setDeviceMesh(mesh_);
    return tv;
  }

  void cut(TensorView* tv, int dim, std::string_view axis) const {
    tv->outer_split(dim, mesh_.size(axis));
    tv->axis(dim)->parallelize(mesh_.axis(axis));
  }

  // [out, in], dim `dim` over tp
  TensorView* weight(int64_t out, int64_t in, int dim) {
    TensorView* w = input({out, in}, s_.narrowWeights ? DataType::BFloat16 : s_.dtype);
    if (s_.dataSharded) {  // the later dim first: positions of the other one stay
      cut(w, 1, dim == 1 ? "tp" : "dp");
      cut(w, 0, dim == 0 ? "tp" : "dp");
    } else {
      cut(w, dim, "tp");
    }
    return maybeCastOp(s_.dtype, w);
  }

  TensorView* norm(TensorView* x) const { return castOp(s_.dtype, layerNormOver(x, 1, nullptr, nullptr, 1e-5).output); }

  TensorView* attention(TensorView* x) {
    const int64_t e = s_.features;
    auto heads = [&] {
      return permute(reshape(linear(x, weight(e, e, 0)), {s_.batch, s_.tokens, s_.heads, e / s_.heads}), {0, 2, 1, 3});
    };
    TensorView* q = heads();
    TensorView* k = heads();
    TensorView* v = heads();
    TensorView* scores = castOp(s_.dtype, softmax(matmul(q, transpose(k, 2, 3)), -1));
    TensorView* mixed = reshape(permute(matmul(scores, v), {0, 2, 1, 3}), {s_.batch, s_.tokens, e});
    return linear(mixed, weight(e, e, 1));
  }

  TensorView* feedForward(TensorView* x) {
    TensorView* hidden = castOp(s_.dtype, tanh_gelu(linear(x, weight(4 * s_.features, s_.features, 0))));
    return linear(hidden, weight(s_.features, 4 * s_.features, 1));
  }

  TensorView* dropped(TensorView* x) {
    if (!s_.dropout) {
      return x;
    }
    TensorView* kept = lt(rand({s_.batch, s_.tokens, s_.features}, DataType::Float, 7, 1), 0.75);
    return mul(where(kept, x, 0.0), 1 / 0.75);
  }

  Fusion& fusion_;
  const DeviceMesh& mesh_;
  const TransformerSizes& s_;
};

}  // namespace

TensorView* transformer(Fusion& fusion, const DeviceMesh& mesh, const TransformerSizes& sizes) {
  return TransformerBuilder(fusion, mesh, sizes).build();
}

}  // namespace meshfuse
