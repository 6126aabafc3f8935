#include "autoplan/pipeline_programs.h"

#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

struct Layer {
  TensorView* u;
  TensorView* v;
  TensorView* x;
  TensorView* hidden;
  TensorView* active;
};

std::unique_ptr<Fusion> deep(const DeepSizes& s, bool isTraining) {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  const auto input = [&](const std::vector<int64_t>& shape) {
    TensorView* tv = makeContigConcreteTensor(*fusion, shape, s.dtype);
    fusion->addInput(tv);
    return tv;
  };
  const auto narrow = [&](TensorView* t) { return s.dtype == DataType::Float ? t : castOp(s.dtype, t); };
  TensorView* x = input({s.batch, s.features});
  std::vector<Layer> layers;
  for (int64_t k = 0; k < s.layers; k++) {
    const int64_t width = s.widths[k % std::ssize(s.widths)];
    Layer& layer =
        layers.emplace_back(Layer{input({width, s.features}), input({s.features, width}), x, nullptr, nullptr});
    layer.hidden = linear(x, layer.u);
    layer.active = narrow(relu(layer.hidden));
    x = narrow(add(x, linear(layer.active, layer.v)));
  }
  fusion->addOutput(s.addsUp ? sum(x, {0, 1}) : x);
  if (isTraining) {
    TensorView* dx = narrow(mul(x, 2.0 / static_cast<double>(s.batch)));
    for (int64_t k = s.layers - 1; k >= 0; k--) {
      const Layer& layer = layers[k];
      TensorView* dv = matmul(transpose(dx), layer.active);
      TensorView* dh = narrow(relu_backward(matmul(dx, layer.v), layer.hidden));
      TensorView* du = matmul(transpose(dh), layer.x);
      dx = narrow(add(dx, matmul(dh, layer.u)));
      for (const auto& [weight, gradient] : {std::pair{layer.v, dv}, {layer.u, du}}) {
        fusion->aliasOutputToInput(narrow(sub(weight, mul(gradient, 0.1))), weight);
      }
    }
  }
  return fusion;
}

}  // namespace

std::unique_ptr<Fusion> deepForward(const DeepSizes& sizes) { return deep(sizes, false); }
std::unique_ptr<Fusion> deepTraining(const DeepSizes& sizes) { return deep(sizes, true); }

}  // namespace meshfuse
