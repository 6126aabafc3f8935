// Every builder of csrc/ops at one size, against the interpreter: on the CPU, or on the device that MESHFUSE_TEST_DEVICE names.
#include <gtest/gtest.h>

#include <set>

#include "base/ranges.h"
#include "inputs.h"
#include "ir/op_rule.h"
#include "ir/point_op.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {
namespace {

using Views = std::vector<TensorView*>;

struct OpCase {
  std::string name;
  std::vector<Argument> inputs;
  std::function<Views(const Views&)> results;
};

Tensor between(double low, double high, std::vector<int64_t> sizes = {6, 40}, DataType type = DataType::Float) {
  return randomTensor(std::move(sizes), type, 7, low, high);
}
Tensor numbers(int64_t below, std::vector<int64_t> sizes) {
  return between(0, static_cast<double>(below), std::move(sizes), DataType::Int);
}

Fusion& buildInto(Fusion& f, const OpCase& c) {
  const Views inputs = mapped(c.inputs, [&](const Argument& a) {
    const Tensor& t = std::get<Tensor>(a);
    return input(f, {t.sizes().begin(), t.sizes().end()}, t.dtype());
  });
  for (TensorView* result : c.results(inputs)) {
    f.addOutput(result);
  }
  return f;
}

bool isOfFloats(const PointOpInfo& op) { return op.types != OpTypes::Integer && op.types != OpTypes::Bits; }

// All elementwise ops that take elements of the given category. The operands are positive, below 1 and above it.
OpCase pointOps(const std::string& name, DataType type) {
  const bool areFloats = isFloatingPoint(type);
  const auto results = [areFloats](const Views& x) {
    Views all;
    for (const PointOpInfo& op : kPointOps) {
      if (op.op == PointOp::CheckedIndex || (areFloats ? !isOfFloats(op) : op.types == OpTypes::Floating)) {
        continue;
      }
      for (TensorView* a : {x[0], x[1]}) {
        std::vector<Operand> operands(x.begin(), x.begin() + op.arity);
        operands[0] = op.op == PointOp::Where ? lt(x[0], x[1]) : a;
        all.push_back(pointOp(op.op, operands)->asTensor());
      }
    }
    return all;
  };
  return {name,
          {areFloats ? between(0.1, 0.9, {6, 40}, type) : between(-5, 5, {6, 40}, type),
           areFloats ? between(1.1, 3, {6, 40}, type) : between(1, 4, {6, 40}, type), between(-2, 2, {6, 40}, type)},
          results};
}

std::vector<OpCase> elementwise() {
  return {
      pointOps("floats", DataType::Float),
      pointOps("halves", DataType::Half),
      pointOps("doubles", DataType::Double),
      pointOps("integers", DataType::Int),
      pointOps("small integers", DataType::Char),
      pointOps("integers without a sign", DataType::Byte),
      {"truths",
       {between(0, 2, {6, 40}, DataType::Bool), between(0, 2, {40}, DataType::Bool)},
       [](const Views& x) {
         return Views{logical_and(x[0], x[1]), logical_or(x[0], x[1]),  logical_xor(x[0], x[1]),
                      logical_not(x[0]),       bitwise_and(x[0], x[1]), bitwise_not(x[1])};
       }},
      {"composed",
       {between(-2, 2), between(1, 3), between(0, 1)},
       [](const Views& x) {
         return Views{truediv(x[0], x[1]),
                      add_alpha(x[0], x[1], 0.5),
                      sub_alpha(x[0], x[1], 2.0),
                      addcmul(x[0], x[1], x[2], 3.0),
                      lerp(x[0], x[1], x[2]),
                      fma(x[0], x[1], x[2]),
                      where(gt(x[0], 0.0), x[1], x[2])};
       }},
      {"activations",
       {between(-3, 3), between(-1, 1)},
       [](const Views& x) {
         return Views{relu(x[0]),
                      relu_backward(x[1], x[0]),
                      gelu(x[0]),
                      gelu_backward(x[1], x[0]),
                      tanh_gelu(x[0]),
                      tanh_gelu_backward(x[1], x[0]),
                      silu(x[0]),
                      silu_backward(x[1], x[0]),
                      softplus(x[0]),
                      softplus_backward(x[1], x[0]),
                      leaky_relu(x[0]),
                      leaky_relu_backward(x[1], x[0]),
                      threshold(x[0], 0.5, 2.0),
                      threshold_backward(x[1], x[0], 0.5),
                      clamp(x[0], -1.0, 1.0),
                      clamp_backward(x[1], x[0], -1.0, 1.0),
                      tanh_backward(x[1], x[1]),
                      sigmoid_backward(x[1], x[1])};
       }},
      {"activations of 16 bits",
       {between(-6, 6, {6, 40}, DataType::BFloat16)},
       [](const Views& x) {
         return Views{gelu(x[0]), tanh_gelu(x[0]), silu(x[0]), softplus(x[0])};
       }},
      {"factories",
       {between(-2, 2), between(0, 2, {6, 40}, DataType::Bool)},
       [](const Views& x) {
         const ForwardDropoutResult dropped = dropout(x[0], 0.25);
         return Views{full({3, 4}, 2.5, DataType::Float),
                      full_like(x[0], 3.0),
                      zeros({7}, DataType::Int),
                      zeros_like(x[0]),
                      ones({5}, DataType::Half),
                      ones_like(x[0]),
                      iota(9, 2, 3),
                      arange(11),
                      arange(2, 20, 3),
                      eye(5, DataType::Float),
                      eye(3, 6, DataType::Double),
                      rand({50}, DataType::Float, 3, 4),
                      randn({50}, DataType::Float, 3, 4),
                      rand_like(x[0], 5),
                      randn_like(x[0], 6),
                      uniform({50}, -1.0, 1.0, DataType::Double, 7),
                      normal({50}, 1.0, 2.0, DataType::Float, 8),
                      dropped.output,
                      dropped.mask,
                      dropout_backward(x[0], x[1], 1.25)};
       }},
  };
}

std::vector<OpCase> reductions() {
  return {
      {"of floats",
       {between(-2, 2)},
       [](const Views& x) {
         return Views{sum(x[0], {1}),          sum(x[0], {0}, true),   sum(x[0], {0, 1}), prod(x[0], {0}),
                      max(x[0], {1}),          min(x[0], {0}),         mean(x[0], {1}),   sum_to(x[0], {1, 40}),
                      any(gt(x[0], 1.9), {1}), all(lt(x[0], 1.9), {1})};
       }},
      {"of integers",
       {between(-20, 20, {6, 40}, DataType::Int)},
       [](const Views& x) {
         return Views{sum(x[0], {1}),         max(x[0], {0}),        min(x[0], {1}),
                      bitwise_and(x[0], {1}), bitwise_or(x[0], {0}), bitwise_xor(x[0], {0, 1})};
       }},
      {"statistics",
       {between(-2, 2)},
       [](const Views& x) {
         const VarMeanResult both = variance_mean(x[0], {1});
         const WelfordResult w = Welford(x[0], {0});
         return Views{variance(x[0], {0}),
                      standard_deviation(x[0], {1}),
                      both.var,
                      both.mean,
                      w.avg,
                      w.var_sum,
                      w.n,
                      argmax(x[0], 1),
                      argmin(x[0], 0)};
       }},
      {"normalizations",
       {between(-2, 2), between(0.1, 1), between(0.5, 1.5, {40}), between(-1, 1, {40})},
       [](const Views& x) {
         const ForwardNormResult n = layer_norm(x[0], 1, x[2], x[3], 1e-5);
         const ForwardRMSNormResult r = rms_norm(x[0], 1, x[2], 1e-5);
         const BackwardNormResult dn = layer_norm_backward(x[1], x[0], {40}, n.mean, n.invstd, x[2], x[3]);
         const BackwardRMSNormResult dr = rms_norm_backward(x[1], x[0], {40}, r.invstd, x[2]);
         return Views{softmax(x[0], 1),
                      softmax_backward(x[1], softmax(x[0], 1), 1),
                      log_softmax(x[0], 0),
                      log_softmax_backward(x[1], log_softmax(x[0], 1), 1),
                      n.output,
                      r.output,
                      dn.grad_input,
                      dn.grad_weight,
                      dn.grad_bias,
                      dr.grad_input,
                      dr.grad_weight};
       }},
      {"norms of channels",
       {between(-2, 2, {3, 4, 10}), between(-1, 1, {3, 4, 10}), between(0.5, 1.5, {4}), between(-1, 1, {4})},
       [](const Views& x) {
         const ForwardNormResult b = batch_norm(x[0], x[2], x[3], nullptr, nullptr, true, 0.1, 1e-5);
         const ForwardNormResult i = instance_norm(x[0], x[2], x[3], nullptr, nullptr, true, 0.1, 1e-5);
         const ForwardNormResult g = group_norm(x[0], 2, x[2], x[3], 1e-5);
         const BackwardNormResult db =
             batch_norm_backward(x[1], x[0], x[2], nullptr, nullptr, b.mean, b.invstd, true, 1e-5);
         const BackwardNormResult di =
             instance_norm_backward(x[1], x[0], x[2], nullptr, nullptr, i.mean, i.invstd, true, 1e-5);
         const BackwardNormResult dg = group_norm_backward(x[1], x[0], 2, g.mean, g.invstd, x[2]);
         return Views{b.output, i.output, g.output, db.grad_input, db.grad_weight, di.grad_input, dg.grad_input};
       }},
  };
}

std::vector<OpCase> shapes() {
  return {
      {"types",
       {between(-100, 100)},
       [](const Views& x) {
         Views all = {bitCastOp(DataType::Int32, x[0]), view(x[0], DataType::Int32)};
         for (const DataType type :
              {DataType::Double, DataType::Half, DataType::BFloat16, DataType::Int, DataType::Int32, DataType::Short,
               DataType::Char, DataType::UInt16, DataType::Byte, DataType::Bool}) {
           all.push_back(castOp(DataType::Float, castOp(type, x[0])));
         }
         all.push_back(maybeCastOp(DataType::Double, x[0]));
         return all;
       }},
      {"views",
       {between(-2, 2), between(-2, 2, {1, 6, 1})},
       [](const Views& x) {
         Views all = {set(x[0]),
                      neg(segment_set(x[0])),
                      reshape(x[0], {3, 80}),
                      reshape(x[0], {6, 40}, {2, 3, 40}),
                      flatten(neg(x[0])),
                      squeeze(x[1]),
                      squeeze(x[1], 0),
                      unsqueeze(x[0], 1),
                      broadcast(x[0], {true, false, false}),
                      expand(x[1], {2, 6, 3}),
                      expand_as(x[1], reshape(x[0], {6, 40}, {2, 6, 20})),
                      repeat(x[0], {2, 1}),
                      permute(x[0], {1, 0}),
                      neg(transpose(x[0])),
                      transpose(x[1], 0, 1)};
         return all;
       }},
      {"windows",
       {between(-2, 2), between(-2, 2)},
       [](const Views& x) {
         Views all = {slice(x[0], {1, 3}, {5, 30}), slice(x[0], {0, 1}, {6, 40}, {2, 3}), pad(x[0], {1, 2, 0, 3}, 0.5),
                      cat({x[0], neg(x[1])}, 0), cat({x[0], x[1], x[0]}, 1)};
         append(all,
                Views{flip(x[0], {0, 1}), roll(x[0], {2, -7}, {0, 1}), roll(x[0], {50}), triu(x[0], 3), tril(x[0])});
         for (TensorView* part : chunk(x[0], 3, 0)) {
           all.push_back(part);
         }
         return all;
       }},
  };
}

std::vector<OpCase> products() {
  const auto matrices = [](DataType type) {
    return OpCase{"products of " + std::string(name(type)),
                  {between(-1, 1, {5, 16}, type), between(-1, 1, {16, 24}, type), between(-1, 1, {24, 16}, type),
                   between(-1, 1, {24}, type), between(-1, 1, {3, 5, 16}, type)},
                  [](const Views& x) {
                    return Views{matmul(x[0], x[1]), linear(x[0], x[2]), linear(x[0], x[2], x[3]), matmul(x[4], x[1]),
                                 relu(linear(x[4], x[2], x[3]))};
                  }};
  };
  return {
      matrices(DataType::Float),
      matrices(DataType::Half),
      matrices(DataType::BFloat16),
      matrices(DataType::Double),
      {"attention",
       {between(-1, 1, {2, 2, 5, 8}), between(-1, 1, {2, 2, 6, 8}), between(-1, 1, {2, 2, 6, 8}),
        between(-1, 1, {2, 2, 5, 8})},
       [](const Views& x) {
         const SdpfaFwdResult y = sdpfa_fwd(x[0], x[1], x[2], 0.0, true);
         const SdpfaBwdResult d = sdpfa_bwd(x[3], x[0], x[1], x[2], y.output, y.log_sumexp, nullptr, 0.0, true);
         return Views{y.output, y.log_sumexp, d.grad_query, d.grad_key, d.grad_value};
       }},
  };
}

std::vector<OpCase> indexed() {
  return {
      {"reads",
       {between(-2, 2), numbers(6, {5, 40}), numbers(6, {9}), numbers(40, {4, 3}), between(-2, 2, {40, 7})},
       [](const Views& x) {
         return Views{takeAlongAxis(x[0], x[1], 0), gather(x[0], 0, x[1]), index_select(x[0], 0, x[2]),
                      indexSelect(x[0], 0, x[2]),   select(x[0], 1, 17),   embedding_fwd(x[3], x[4]),
                      checked_index(x[2], 6)};
       }},
      {"cross entropy",
       {between(-2, 2), numbers(40, {6})},
       [](const Views& x) {
         const CrossEntropyOptions options{.ignore_index = 3, .label_smoothing = 0.1};
         TensorView* loss = cross_entropy(x[0], x[1], options);
         return Views{loss, cross_entropy_backward(loss, x[0], x[1], options),
                      cross_entropy(x[0], x[1], {.reduction = LossReduction::None})};
       }},
      {"embedding_backward",
       {between(-2, 2, {4, 3, 40}), numbers(6, {4, 3})},
       [](const Views& x) { return Views{embedding_backward(x[0], x[1], 6, 2)}; }},
      {"scan", {between(-2, 2)}, [](const Views& x) { return Views{scan(x[0], 1, ReduceOp::Max)}; }},
      {"cumsum", {between(-2, 2)}, [](const Views& x) { return Views{cumsum(x[0], 1)}; }},
      {"cumprod", {between(-1, 1)}, [](const Views& x) { return Views{cumprod(x[0], 0)}; }},
      {"argsort", {between(-2, 2)}, [](const Views& x) { return Views{argsort(x[0])}; }},
      {"sort",
       {between(-2, 2)},
       [](const Views& x) {
         const SortResult s = sort(x[0], 0, true);
         return Views{s.values, s.indices};
       }},
      {"topk",
       {between(-2, 2)},
       [](const Views& x) {
         const TopKResult t = topk(x[0], 3);
         return Views{t.values, t.indices};
       }},
      {"scatter",
       {between(-2, 2), numbers(6, {2, 40}), between(-2, 2, {2, 40})},
       [](const Views& x) { return Views{scatter(x[0], 0, x[1], x[2])}; }},
      {"indexPutAccumulate",
       {between(-2, 2), numbers(6, {9}), between(-2, 2, {9, 40})},
       [](const Views& x) { return Views{indexPutAccumulate(x[0], x[1], x[2])}; }},
  };
}

void expectAllAgree(const std::vector<OpCase>& cases) {
  for (const OpCase& c : cases) {
    SCOPED_TRACE(c.name);
    expectAgrees([&](Fusion& f) { buildInto(f, c); }, {c.inputs});
  }
}

TEST(EveryOp, Elementwise) { expectAllAgree(elementwise()); }
TEST(EveryOp, Reductions) { expectAllAgree(reductions()); }
TEST(EveryOp, Shapes) { expectAllAgree(shapes()); }
TEST(EveryOp, Products) { expectAllAgree(products()); }
TEST(EveryOp, AtIndices) { expectAllAgree(indexed()); }

// All that programs are made of, but for communication.
TEST(EveryOp, IsAmongThese) {
  std::set<ExprKind> seen;
  for (const std::vector<OpCase>& cases : {elementwise(), reductions(), shapes(), products(), indexed()}) {
    for (const OpCase& c : cases) {
      Fusion fusion;
      FusionGuard guard(&fusion);
      for (const Expr* e : buildInto(fusion, c).exprs()) {
        seen.insert(e->kind());
      }
    }
  }
  for (auto kind = ExprKind::Set; kind < ExprKind::Redistribute;
       kind = static_cast<ExprKind>(static_cast<int>(kind) + 1)) {
    EXPECT_TRUE(seen.contains(kind)) << ruleOf(kind).name;
  }
}

}  // namespace
}  // namespace meshfuse
