// Ports of test_multidevice_transformer.cpp: the halves of a transformer layer and the layer, forward and backward, tensor parallel and
// sequence parallel. Only inputs are annotated (of sequence parallel programs, outputs too), and dropout drops: which elements it drops does
// not depend on the number of ranks. Backward programs contain the forward pass, whose results nvFuser takes as inputs.
#include "nvfuser_shape/port.h"

namespace meshfuse {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kTokens = 4;
constexpr int64_t kFeatures = 16;
constexpr int64_t kHeads = 4;
constexpr int64_t kRows = kBatch * kTokens;
constexpr double kDrop = 0.25;
constexpr double kScale = 0.125;

class PortsOfTransformers : public PortTest {
 protected:
  // Writes a program in a 16-bit type, with inputs of random values, and runs it.
  class Layer;
  using Program = std::function<void(Layer&)>;
  void runLayer(const std::vector<std::string>& kinds, const Program& program,
                const std::vector<std::string>& outputs = {}) {
    for (const DataType dtype : {DataType::Half, DataType::BFloat16}) {
      runPort([&](int64_t d) { return port(d, dtype, kinds, program, outputs); });
    }
  }

 private:
  static Port port(int64_t d, DataType dtype, const std::vector<std::string>& kinds, const Program& program,
                   const std::vector<std::string>& outputs);
};

class PortsOfTransformers::Layer {
 public:
  Layer(Fusion& fusion, int64_t d, DataType dtype, std::vector<Argument>& values)
      : fusion_(fusion), mesh_(DeviceMesh::createForNumDevices(d)), dtype_(dtype), values_(values) {}

  struct Weights {
    TensorView *w0, *b0, *w1, *b1;
  };
  struct Mlp {
    TensorView *linear0, *gelu, *linear1, *mask, *output;
  };
  struct Mha {
    TensorView *linear0, *q, *k, *v;
    SdpfaFwdResult sdpa;
    TensorView *rows, *linear1, *mask, *output;
  };
  struct Norm {
    TensorView *x, *weight, *bias;
    ForwardNormResult result;
  };

  // An input, cut along `dim` unless that is -1.
  TensorView* in(const std::vector<int64_t>& shape, int64_t dim, std::optional<DataType> type = {}) {
    TensorView* tv = makeContigConcreteTensor(shape, type.value_or(dtype_));
    fusion_.addInput(tv);
    tv->setDeviceMesh(mesh_);
    if (dim >= 0) {
      splitDim(tv, dim, mesh_);
    }
    values_.emplace_back(random(shape, values_.size() + 1, tv->dtype()));
    return tv;
  }
  void out(const std::vector<TensorView*>& tensors) {
    for (TensorView* tv : tensors) {
      fusion_.addOutput(tv);
    }
  }
  // Outputs in parts of the sequence.
  void outInRows(const std::vector<TensorView*>& tensors) {
    for (TensorView* tv : tensors) {
      fusion_.addOutput(tv);
      splitDim(tv, 0, mesh_);
    }
  }
  TensorView* rounded(TensorView* x) { return castOp(dtype_, x); }

  Weights mlpWeights() {
    constexpr int64_t kHidden = 4 * kFeatures;
    return {in({kHidden, kFeatures}, 0), in({kHidden}, 0), in({kFeatures, kHidden}, 1), in({kFeatures}, -1)};
  }
  // Each of q, k and v is cut into its heads.
  Weights mhaWeights() {
    return {in({3, kFeatures, kFeatures}, 1), in({3, kFeatures}, 1), in({kFeatures, kFeatures}, 1),
            in({kFeatures}, -1)};
  }

  Mlp mlp(TensorView* x, const Weights& w) {
    Mlp m{};
    m.linear0 = linear(x, w.w0, w.b0);
    m.gelu = rounded(tanh_gelu(m.linear0));
    m.linear1 = linear(m.gelu, w.w1, w.b1);
    const ForwardDropoutResult dropped = dropout(m.linear1, kDrop);
    m.mask = dropped.mask;
    m.output = dropped.output;
    return m;
  }

  Mha mha(TensorView* x, const Weights& w) {
    Mha m{};
    m.linear0 = linear(x, reshape(w.w0, {3 * kFeatures, kFeatures}), reshape(w.b0, {3 * kFeatures}));
    TensorView* parts = reshape(m.linear0, {kBatch, kTokens, 3, kHeads, kFeatures / kHeads});
    TensorView** const heads[] = {&m.q, &m.k, &m.v};
    for (int64_t k = 0; k < 3; k++) {
      *heads[k] = transpose(select(parts, 2, k), 1, 2);
    }
    m.sdpa = sdpfa_fwd(m.q, m.k, m.v, 0.0, true, kScale);
    m.rows = reshape(transpose(m.sdpa.output, 1, 2), {kRows, kFeatures});
    m.linear1 = linear(m.rows, w.w1, w.b1);
    const ForwardDropoutResult dropped = dropout(m.linear1, kDrop);
    m.mask = dropped.mask;
    m.output = dropped.output;
    return m;
  }

  struct Gradients {
    std::vector<TensorView*> ofWeights;  // w1, b1, w0, b0
    std::vector<TensorView*>
        between;  // MLP: of the dropout's operand and of the GELU's; attention: of the dropout's operand, q, k and v
    TensorView* x;
  };

  Gradients mlpBackward(TensorView* dy, TensorView* x, const Weights& w, const Mlp& m) {
    TensorView* dropped = dropout_backward(dy, m.mask, 1 / (1 - kDrop));
    TensorView* g = rounded(dropped);
    TensorView* gelu = tanh_gelu_backward(matmul(g, w.w1), m.linear0);
    TensorView* h = rounded(gelu);
    return {{matmul(transpose(g, 0, 1), m.gelu), sum(dropped, {0}), matmul(transpose(h, 0, 1), x), sum(gelu, {0})},
            {dropped, gelu},
            matmul(h, w.w0)};
  }

  Gradients mhaBackward(TensorView* dy, TensorView* x, const Weights& w, const Mha& m) {
    TensorView* dropped = dropout_backward(dy, m.mask, 1 / (1 - kDrop));
    TensorView* g = rounded(dropped);
    TensorView* heads = transpose(reshape(matmul(g, w.w1), {kBatch, kTokens, kHeads, kFeatures / kHeads}), 1, 2);
    const SdpfaBwdResult s =
        sdpfa_bwd(heads, m.q, m.k, m.v, m.sdpa.output, m.sdpa.log_sumexp, nullptr, 0.0, true, kScale);
    std::vector<TensorView*> parts;
    for (TensorView* grad : {s.grad_query, s.grad_key, s.grad_value}) {
      parts.push_back(unsqueeze(transpose(grad, 1, 2), 2));
    }
    TensorView* h = reshape(cat(parts, 2), {kRows, 3 * kFeatures});
    return {{matmul(transpose(g, 0, 1), m.rows), sum(dropped, {0}), matmul(transpose(h, 0, 1), x),
             sum(castOp(DataType::Float, h), {0})},
            {dropped, s.grad_query, s.grad_key, s.grad_value},
            matmul(h, reshape(w.w0, {3 * kFeatures, kFeatures}))};
  }

  Norm norm(TensorView* x) {
    Norm n{x, in({kFeatures}, -1, DataType::Float), in({kFeatures}, -1, DataType::Float), {}};
    n.result = layer_norm(x, std::vector<int64_t>{kFeatures}, n.weight, n.bias, 1e-5);
    return n;
  }
  static BackwardNormResult normBackward(TensorView* dy, const Norm& n) {
    return layer_norm_backward(castOp(DataType::Float, dy), n.x, std::vector<int64_t>{kFeatures}, n.result.mean,
                               n.result.invstd, n.weight, n.bias);
  }

  // x + mha(norm(x)), then the same with the MLP.
  struct Whole {
    Norm norm0, norm1;
    Weights mhaWeights, mlpWeights;
    TensorView *mhaInput, *mlpInput;
    Mha mha;
    Mlp mlp;
    TensorView* output;

    std::vector<TensorView*> results() const {
      return {norm0.result.output, mha.output, norm1.result.output, mlp.output, output};
    }
  };
  Whole whole(TensorView* x) {
    Whole l{};
    TensorView* wide = castOp(DataType::Float, x);
    l.norm0 = norm(wide);
    l.mhaInput = rounded(l.norm0.result.output);
    l.mhaWeights = mhaWeights();
    l.mha = mha(l.mhaInput, l.mhaWeights);
    TensorView* residual = add(l.mha.output, wide);
    l.norm1 = norm(residual);
    l.mlpInput = rounded(l.norm1.result.output);
    l.mlpWeights = mlpWeights();
    l.mlp = mlp(l.mlpInput, l.mlpWeights);
    l.output = rounded(add(residual, l.mlp.output));
    return l;
  }

 private:
  Fusion& fusion_;
  DeviceMesh mesh_;
  DataType dtype_;
  std::vector<Argument>& values_;
};

Port PortsOfTransformers::port(int64_t d, DataType dtype, const std::vector<std::string>& kinds, const Program& program,
                               const std::vector<std::string>& outputs) {
  std::vector<Argument> values;
  {
    Fusion fusion;
    FusionGuard guard(&fusion);
    Layer layer(fusion, d, dtype, values);
    program(layer);
  }
  const auto build = [=](Fusion& f) {
    std::vector<Argument> same;
    Layer layer(f, d, dtype, same);
    program(layer);
  };
  return {build, values, kinds, [=](const FusionExecutorCache& cache, const auto&) {
            for (const int64_t i : indices(outputs)) {
              const std::string sharding = cache.outputSharding(i);
              EXPECT_EQ(sharding.substr(0, sharding.find(" on ")), outputs[i]) << "output " << i;
            }
          }};
}

TEST_F(PortsOfTransformers, Mlp) {
  runLayer({"all-reduce"},
           [](Layer& l) {
             const Layer::Mlp m = l.mlp(l.in({kRows, kFeatures}, -1), l.mlpWeights());
             l.out({m.linear0, m.gelu, m.linear1, m.output});
           },
           {"R S1(x)", "R S1(x)", "R R", "R R"});
}

TEST_F(PortsOfTransformers, MlpInPartsOfTheSequence) {
  runLayer({"all-gather", "reduce-scatter"},
           [](Layer& l) {
             const Layer::Mlp m = l.mlp(l.in({kRows, kFeatures}, 0), l.mlpWeights());
             l.out({m.linear0, m.gelu});
             l.outInRows({m.linear1, m.output});
           },
           {"R S1(x)", "R S1(x)", "S0(x) R", "S0(x) R"});
}

TEST_F(PortsOfTransformers, Attention) {
  runLayer({"all-reduce"},
           [](Layer& l) {
             const Layer::Mha m = l.mha(l.in({kRows, kFeatures}, -1), l.mhaWeights());
             l.out({m.sdpa.output, m.linear1, m.output, m.linear0});
           },
           {"R S1(x) R R", "R R", "R R"});
}

TEST_F(PortsOfTransformers, AttentionInPartsOfTheSequence) {
  runLayer({"all-gather", "reduce-scatter"},
           [](Layer& l) {
             const Layer::Mha m = l.mha(l.in({kRows, kFeatures}, 0), l.mhaWeights());
             l.out({m.sdpa.output});
             l.outInRows({m.linear1, m.output});
             l.out({m.linear0});
           },
           {"R S1(x) R R", "S0(x) R", "S0(x) R"});
}

TEST_F(PortsOfTransformers, MlpBackward) {
  runLayer({"all-reduce"},
           [](Layer& l) {
             TensorView* x = l.in({kRows, kFeatures}, -1);
             TensorView* dy = l.in({kRows, kFeatures}, -1, DataType::Float);
             const Layer::Weights w = l.mlpWeights();
             const Layer::Gradients g = l.mlpBackward(dy, x, w, l.mlp(x, w));
             l.out(g.ofWeights);
             l.out(g.between);
             l.out({g.x});
           },
           {"R S1(x)", "R", "S0(x) R", "S0(x)", "R R", "R S1(x)", "R R"});
}

TEST_F(PortsOfTransformers, AttentionBackward) {
  runLayer({"all-reduce"},
           [](Layer& l) {
             TensorView* x = l.in({kRows, kFeatures}, -1);
             TensorView* dy = l.in({kRows, kFeatures}, -1, DataType::Float);
             const Layer::Weights w = l.mhaWeights();
             const Layer::Gradients g = l.mhaBackward(dy, x, w, l.mha(x, w));
             l.out({g.ofWeights[0], g.ofWeights[1]});
             l.out(g.between);
             l.out({g.ofWeights[2], g.ofWeights[3], g.x});
           },
           {"R S1(x)", "R", "R R", "R S1(x) R R", "R S1(x) R R", "R S1(x) R R"});
}

TEST_F(PortsOfTransformers, Forward) {
  runLayer({"all-reduce", "all-reduce"},
           [](Layer& l) {
             l.out(l.whole(l.in({kRows, kFeatures}, -1)).results());
           },
           {"R R", "R R", "R R", "R R", "R R"});
}

TEST_F(PortsOfTransformers, ForwardInPartsOfTheSequence) {
  runLayer({"all-gather", "reduce-scatter", "all-gather", "reduce-scatter"},
           [](Layer& l) {
             l.outInRows(l.whole(l.in({kRows, kFeatures}, 0)).results());
           },
           {"S0(x) R", "S0(x) R", "S0(x) R", "S0(x) R", "S0(x) R"});
}

TEST_F(PortsOfTransformers, Backward) {
  runLayer({"all-reduce", "all-reduce", "all-reduce"}, [](Layer& l) {
    const Layer::Whole f = l.whole(l.in({kRows, kFeatures}, -1));
    TensorView* dy = l.in({kRows, kFeatures}, -1, DataType::Float);
    const Layer::Gradients mlp = l.mlpBackward(dy, f.mlpInput, f.mlpWeights, f.mlp);
    const BackwardNormResult norm1 = Layer::normBackward(mlp.x, f.norm1);
    TensorView* residual = add(norm1.grad_input, dy);
    const Layer::Gradients mha = l.mhaBackward(residual, f.mhaInput, f.mhaWeights, f.mha);
    const BackwardNormResult norm0 = Layer::normBackward(mha.x, f.norm0);
    l.out(mlp.ofWeights);
    l.out(mha.ofWeights);
    l.out({norm1.grad_weight, norm1.grad_bias, norm0.grad_weight, norm0.grad_bias,
           l.rounded(add(norm0.grad_input, residual))});
  });
}

}  // namespace
}  // namespace meshfuse
