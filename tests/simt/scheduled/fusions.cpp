#include "simt/scheduled/fusions.h"

#include "ops/activation.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/scan_sort.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse::simt {

namespace {

using Tensors = std::vector<TensorView*>;

}  // namespace

void ScheduledBatch::add(const std::vector<std::vector<int64_t>>& shapes, const Build& build, DataType type) {
  fusions.push_back(std::make_unique<Fusion>());
  FusionGuard guard(fusions.back().get());
  Tensors ins;
  ScheduledCase c{fusions.back().get(), {}};
  for (size_t i = 0; i < shapes.size(); i++) {
    ins.push_back(makeContigConcreteTensor(shapes[i], type));
    fusions.back()->addInput(ins.back());
    c.inputs.emplace_back(randomTensor(shapes[i], type, i + 1, -2, 2));
  }
  fusions.back()->addOutput(build(ins));
  cases.push_back(std::move(c));
}

ScheduledBatch pointwiseFusions() {
  ScheduledBatch b;
  for (int64_t n : {1, 33, 1000}) {
    b.add({{n}, {n}}, [](const Tensors& t) { return add(mul(t[0], t[1]), 1.0); });
    b.add({{7, n}, {n}}, [](const Tensors& t) { return tanh_gelu(add(t[0], t[1])); });
  }
  b.add({{4, 6, 5}}, [](const Tensors& t) { return add(permute(t[0], {2, 0, 1}), 1.0); });
  b.add({{4, 6}}, [](const Tensors& t) { return neg(reshape(t[0], {3, 8})); });
  b.add({{4, 9}}, [](const Tensors& t) { return neg(slice(t[0], {1, 2}, {4, 8})); });
  b.add({{4, 5}}, [](const Tensors& t) { return neg(pad(t[0], {2, 3, 1, 0}, 7.0)); });
  b.add({{4, 5}, {4, 3}}, [](const Tensors& t) { return exp(cat({t[0], t[1]}, 1)); });
  b.add(
      {{5, 100}, {100}}, [](const Tensors& t) { return castOp(DataType::BFloat16, tanh_gelu(add(t[0], t[1]))); },
      DataType::BFloat16);
  for (DataType type : {DataType::Double, DataType::Half, DataType::Int, DataType::Int32, DataType::Short,
                        DataType::Char, DataType::UInt16, DataType::Byte}) {
    b.add(
        {{5, 100}, {100}}, [=](const Tensors& t) { return maybeCastOp(type, mul(add(t[0], t[1]), t[0])); }, type);
  }
  return b;
}

ScheduledBatch transposeFusions() {
  ScheduledBatch b;
  const auto turned = [](const Tensors& t) { return permute(t[0], {1, 0}); };
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{128, 64}, {64, 192}, {65, 127}, {1000, 8}, {9, 700}, {100, 68}}) {
    for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Double, DataType::Char}) {
      b.add({shape}, turned, type);
    }
  }
  b.add({{128, 64}}, turned, DataType::Bool);
  b.add({{4, 64, 40}}, [](const Tensors& t) { return permute(t[0], {2, 0, 1}); });
  b.add({{2, 24, 10, 11}, {24}}, [](const Tensors& t) { return add(permute(t[0], {0, 2, 3, 1}), t[1]); });
  b.add({{2, 10, 12, 24}}, [](const Tensors& t) { return castOp(DataType::Half, permute(t[0], {0, 3, 1, 2})); });
  b.add({{70, 90}, {90, 70}}, [](const Tensors& t) { return mul(exp(permute(t[0], {1, 0})), t[1]); });
  b.add({{70, 80}}, [](const Tensors& t) { return permute(pad(t[0], {2, 3, 1, 0}, 7.0), {1, 0}); });
  b.add({{90, 100}}, [](const Tensors& t) { return slice(permute(t[0], {1, 0}), {5, 3}, {96, 83}); });
  return b;
}

ScheduledBatch reductionFusions() {
  ScheduledBatch b;
  for (int64_t n : {1, 100, 1500}) {
    b.add({{9, n}}, [](const Tensors& t) { return sum(exp(t[0]), {1}); });
    b.add({{37, n}}, [](const Tensors& t) { return add(max(t[0], {0}), 1.0); });
  }
  b.add({{3, 4, 20}}, [](const Tensors& t) { return sum(t[0], {0, 2}); });
  b.add({{20000}}, [](const Tensors& t) { return mul(sum(t[0], {0}), 0.5); });
  b.add({{2000, 40}}, [](const Tensors& t) { return sum(t[0], {0}); });
  b.add({{100, 130}}, [](const Tensors& t) { return sum(t[0], {0, 1}); });
  for (DataType type : {DataType::Double, DataType::Half, DataType::BFloat16, DataType::Int, DataType::Int32}) {
    for (int64_t dim : {0, 1}) {
      b.add(
          {{70, 90}}, [=](const Tensors& t) { return maybeCastOp(type, sum(t[0], {dim})); }, type);
    }
  }
  for (DataType type : {DataType::Short, DataType::Char, DataType::UInt16, DataType::Byte}) {
    for (int64_t dim : {0, 1}) {
      b.add(
          {{70, 90}}, [=](const Tensors& t) { return sum(t[0], {dim}, false, type); }, type);
      b.add(
          {{70, 90}}, [=](const Tensors& t) { return min(t[0], {dim}); }, type);
    }
  }
  return b;
}

ScheduledBatch scanFusions() {
  ScheduledBatch b;
  const auto sums = [](int64_t dim) { return [dim](const Tensors& t) { return cumsum(t[0], dim); }; };
  for (int64_t n : {2, 17, 100, 1100, 4096, 5000, 8192, 9000, 20004}) {
    b.add({{3, n}}, sums(1));
    b.add({{n, 3}}, sums(0));
  }
  b.add({{300, 17}}, sums(1));
  b.add({{2100, 40}}, sums(0));
  for (int64_t n : {4096, 8192, 9000}) {
    for (DataType type : {DataType::Float, DataType::BFloat16}) {
      const auto sumsOf = [type](int64_t dim) {
        return [=](const Tensors& t) { return maybeCastOp(type, cumsum(castOp(DataType::Float, t[0]), dim)); };
      };
      b.add({{3, n}}, sumsOf(1), DataType::BFloat16);
      b.add({{n, 40}}, sumsOf(0), DataType::BFloat16);
    }
  }
  b.add({{3, 130, 5}}, sums(1));
  b.add({{2, 20, 3, 40}}, sums(2));
  for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Half}) {
    for (int64_t dim : {0, 1}) {
      for (int64_t n : {97, 512, 8192}) {
        b.add(
            {{9, n}, {n}}, [=](const Tensors& t) { return maybeCastOp(type, mul(cumsum(exp(t[0]), dim), t[1])); },
            type);
      }
      b.add(
          {{300, 40}},
          [=](const Tensors& t) {
            TensorView* x = maybeCastOp(DataType::Float, t[0]);
            return mul(cumsum(where(gt(x, 0.0), x, -0.5), dim), x);
          },
          type);
    }
  }
  for (DataType type : {DataType::Int, DataType::Int32}) {
    for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Xor}) {
      b.add(
          {{20, 300}}, [=](const Tensors& t) { return scan(t[0], op == ReduceOp::Xor ? 0 : 1, op); }, type);
    }
  }
  b.add({{5, 1000}}, [](const Tensors& t) { return scan(neg(t[0]), 1, ReduceOp::Min); });
  return b;
}

ScheduledBatch normalizationFusions() {
  ScheduledBatch b;
  for (int64_t n : {1, 129, 2500}) {
    b.add({{5, n}}, [](const Tensors& t) { return softmax(t[0], 1); });
  }
  b.add({{6, 33}}, [](const Tensors& t) { return softmax(t[0], 0); });
  b.add({{2, 40, 33}}, [](const Tensors& t) { return log_softmax(t[0], 1); });
  for (int64_t n : {4, 600, 1025}) {
    b.add({{5, n}, {n}, {n}},
          [n](const Tensors& t) { return layer_norm(t[0], std::vector<int64_t>{n}, t[1], t[2], 1e-5).output; });
  }
  for (DataType type : {DataType::Half, DataType::BFloat16, DataType::Double}) {
    b.add(
        {{5, 1000}}, [=](const Tensors& t) { return maybeCastOp(type, softmax(t[0], 1)); }, type);
    b.add(
        {{5, 300}, {300}, {300}},
        [=](const Tensors& t) {
          return maybeCastOp(type, layer_norm(t[0], std::vector<int64_t>{300}, t[1], t[2], 1e-5).output);
        },
        type);
  }
  return b;
}

}  // namespace meshfuse::simt
