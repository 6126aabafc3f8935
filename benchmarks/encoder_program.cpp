#include "encoder_program.h"

#include <optional>

#include "base/ranges.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

namespace {

constexpr int64_t kLayers = 6;
constexpr int64_t kHeads = 12;

class EncoderBuilder {
 public:
  explicit EncoderBuilder(Communicator* ranks) : ranks_(ranks) {}

  EncoderProgram build() {
    const FusionGuard guard(program_.fusion.get());
    TensorView* x = input({-1, kEncoderWords, kEncoderFeatures});
    const IntExpr sentences = x->shape()[0];
    for (int layer = 0; layer < kLayers; layer++) {
      const auto heads = [&] {
        TensorView* all = cutLinear(x, kEncoderFeatures);
        return permute(reshape(all, {sentences, kEncoderWords, kHeads, kEncoderFeatures / kHeads}), {0, 2, 1, 3});
      };
      TensorView* q = heads();
      TensorView* k = heads();
      TensorView* v = heads();
      TensorView* attention = matmul(softmax(mul(matmul(q, transpose(k, 2, 3)), 0.177), 3), v);
      TensorView* together = reshape(permute(attention, {0, 2, 1, 3}), {sentences, kEncoderWords, kEncoderFeatures});
      x = norm(add(x, summedLinear(together, kEncoderFeatures)));
      TensorView* wide = tanh_gelu(cutLinear(x, 4 * kEncoderFeatures));
      x = norm(add(x, summedLinear(wide, 4 * kEncoderFeatures)));
    }
    program_.fusion->addOutput(x);
    return std::move(program_);
  }

 private:
  TensorView* input(const std::vector<int64_t>& shape) {
    TensorView* tv = makeContigConcreteTensor(shape);
    program_.fusion->addInput(tv);
    if (ranks_ != nullptr) {
      tv->setDeviceMesh(DeviceMesh::create({{"tp", ranks_->size()}}));
    }
    return tv;
  }

  // cut: a dim; nothing: whole on each rank.
  TensorView* weight(const std::vector<int64_t>& shape, std::optional<int64_t> cut = std::nullopt) {
    TensorView* w = input(shape);
    Tensor whole = randomTensor(shape, DataType::Float, std::size(program_.weights));
    if (ranks_ != nullptr && cut) {
      w->outer_split(*cut, ranks_->size());
      w->axis(*cut)->parallelize(ParallelType::DIDx);
      whole = shardTensor(whole, w, ranks_->rank()).clone();
    }
    program_.weights.emplace_back(std::move(whole));
    return w;
  }

  // Each rank computes some of the features.
  TensorView* cutLinear(TensorView* x, int64_t to) {
    TensorView* w = weight({to, kEncoderFeatures}, 0);
    return linear(x, w, weight({to}, 0));
  }

  // The ranks sum what each has of the features.
  TensorView* summedLinear(TensorView* x, int64_t from) {
    TensorView* w = weight({kEncoderFeatures, from}, 1);
    return linear(x, w, weight({kEncoderFeatures}));
  }

  TensorView* norm(TensorView* x) {
    TensorView* scale = weight({kEncoderFeatures});
    return layer_norm(x, std::vector<int64_t>{kEncoderFeatures}, scale, weight({kEncoderFeatures}), 1e-12).output;
  }

  Communicator* ranks_;
  EncoderProgram program_{.fusion = std::make_unique<Fusion>()};
};

}  // namespace

std::vector<Argument> EncoderProgram::inputs(int64_t sentences) const {
  std::vector<Argument> all = {randomTensor({sentences, kEncoderWords, kEncoderFeatures}, DataType::Float, 1)};
  append(all, weights);
  return all;
}

EncoderProgram encoderProgram(Communicator* ranks) { return EncoderBuilder(ranks).build(); }

}  // namespace meshfuse
