#include "device/matrix_product.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// An operand as a batch of matrices: shape and strides with at least two dims.
struct Strided {
  std::vector<IntExpr> shape;
  std::vector<IntExpr> strides;
  int64_t alignment = 64;
};

struct Operands {
  Strided a, b;  // [.., M, K], [.., K, N]
};

void insert(Strided& o, int64_t at, IntExpr stride) {
  o.shape.insert(o.shape.begin() + at, 1);
  o.strides.insert(o.strides.begin() + at, std::move(stride));
}

Strided stridedOf(const TensorView* tv, const std::map<int64_t, Layout>& layouts) {
  Layout layout = layoutOf(tv, layouts);
  return {tv->shape(), std::move(layout.strides), layout.alignment};
}

Operands operandsOf(const Expr& e, const std::map<int64_t, Layout>& layouts) {
  std::vector<TensorView*> in = e.tensorInputs();
  Operands p{stridedOf(in[0], layouts), stridedOf(in[1], layouts)};
  if (p.a.shape.size() == 1) {
    insert(p.a, 0, p.a.shape[0]);
  }
  if (e.kind() == ExprKind::Linear) {  // w is [N, K] or [K]
    if (p.b.shape.size() == 1) {
      insert(p.b, 0, p.b.shape[0]);
    }
    std::swap(p.b.shape[0], p.b.shape[1]);
    std::swap(p.b.strides[0], p.b.strides[1]);
    // leading dims of x run together into M where memory allows
    for (int64_t last = std::ssize(p.a.shape) - 2;
         last > 0 && p.a.strides[last - 1] == p.a.strides[last] * p.a.shape[last]; last--) {
      p.a.shape[last - 1] *= p.a.shape[last];
      p.a.strides[last - 1] = p.a.strides[last];
      p.a.shape.erase(p.a.shape.begin() + last);
      p.a.strides.erase(p.a.strides.begin() + last);
    }
  } else if (p.b.shape.size() == 1) {
    insert(p.b, 1, 1);
  }
  return p;
}

// Whether a row of `size` elements, at least one, is proved to end before the next one begins.
bool isRowApart(const IntExpr& stride, const IntExpr& size) {
  const std::optional<IntExpr> rows = divideExactly(stride, size);
  return provenLessEqual(size, stride) || (rows && provenLessEqual(1, *rows));
}

bool hasUnitStride(const Strided& o) {
  size_t r = o.shape.size() - 2;
  auto unit = [&](size_t d, size_t other) {
    return (o.strides[d].isConst(1) || o.shape[d].isConst(1)) &&
           (isRowApart(o.strides[other], o.shape[d]) || o.shape[other].isConst(1));
  };
  return unit(r, r + 1) || unit(r + 1, r);
}

MatrixProduct::Operand matrixOf(const Strided& o, size_t batchDims) {
  const size_t r = o.shape.size() - 2;
  const std::vector<int64_t> shape = mapped(o.shape, &IntExpr::constValue);
  const std::vector<int64_t> strides = mapped(o.strides, &IntExpr::constValue);
  const bool transposed = strides[r + 1] != 1 && shape[r + 1] != 1;
  MatrixProduct::Operand m{
      .transposed = transposed,
      .leading = transposed ? std::max(strides[r + 1], shape[r]) : std::max(strides[r], shape[r + 1]),
      .batchStrides = std::vector<int64_t>(batchDims - r, 0),
      .alignment = o.alignment};
  for (size_t d = 0; d < r; d++) {
    m.batchStrides.push_back(shape[d] == 1 ? 0 : strides[d]);
  }
  m.elements = 1 + sumOf(indices(shape), [&](int64_t d) { return (shape[d] - 1) * strides[d]; });
  return m;
}

}  // namespace

int64_t MatrixProduct::products() const {
  int64_t count = 1;
  for (const int64_t extent : batch) {
    count *= extent;
  }
  return count;
}

std::vector<int64_t> MatrixProduct::offsets(const Operand& operand) const {
  std::vector<int64_t> offsets = {0};
  for (const int64_t d : indices(batch)) {
    std::vector<int64_t> next;
    for (const int64_t base : offsets) {
      for (int64_t i = 0; i < batch[d]; i++) {
        next.push_back(base + i * operand.batchStrides[d]);
      }
    }
    offsets = std::move(next);
  }
  return offsets;
}

std::optional<std::string> refuseMatrixProduct(const Expr& e, const std::map<int64_t, Layout>& layouts) {
  for (const TensorView* tv : e.tensorInputs()) {
    if (!std::ranges::all_of(tv->shape(), [](const IntExpr& x) { return x.lower().value_or(0) > 0; })) {
      return fmt::format("{} has extents that may be 0", tv->toString());
    }
  }
  Operands p = operandsOf(e, layouts);
  if (!hasUnitStride(p.a) || !hasUnitStride(p.b)) {
    return "an operand has no dim of stride 1";
  }
  if (e.kind() == ExprKind::Linear && p.a.shape.size() > 2) {
    return "the leading dims of x are not contiguous";
  }
  if (e.tensorInputs().size() > 2) {
    const std::vector<IntExpr> strides = layoutOf(e.tensorInputs()[2], layouts).strides;
    if (strides.size() != 1 || !strides[0].isConst(1)) {
      return "the bias is no contiguous vector";
    }
  }
  return std::nullopt;
}

MatrixProduct matrixProductOf(const Expr& e, const std::map<int64_t, Layout>& layouts) {
  const std::optional<std::string> refused = refuseMatrixProduct(e, layouts);
  invariant(!refused, "[contraction] {}: {}", e.output()->toString(), refused.value_or(""));
  const auto isConstant = [](const TensorView* tv) {
    return std::ranges::all_of(tv->shape(), [](const IntExpr& x) { return x.isConst(); });
  };
  invariant(std::ranges::all_of(e.tensorInputs(), isConstant), "[contraction] {} has operands without constant sizes",
            e.output()->toString());
  const Operands p = operandsOf(e, layouts);
  const size_t ra = p.a.shape.size() - 2;
  const size_t rb = p.b.shape.size() - 2;
  MatrixProduct product{.operands = e.tensorInputs()[0]->dtype(),
                        .result = e.tensorOutput()->dtype(),
                        .m = p.a.shape[ra].constValue(),
                        .n = p.b.shape[rb + 1].constValue(),
                        .k = p.a.shape[ra + 1].constValue(),
                        .batch = std::vector<int64_t>(std::max(ra, rb), 1),
                        .hasBias = e.tensorInputs().size() > 2};
  for (const Strided& o : {p.a, p.b}) {
    for (size_t d = 0; d + 2 < o.shape.size(); d++) {
      int64_t& extent = product.batch[product.batch.size() + 2 - o.shape.size() + d];
      extent = std::max(extent, o.shape[d].constValue());
    }
  }
  if (product.hasBias) {
    product.biasAlignment = layoutOf(e.tensorInputs()[2], layouts).alignment;
  }
  product.a = matrixOf(p.a, product.batch.size());
  product.b = matrixOf(p.b, product.batch.size());
  return product;
}

}  // namespace meshfuse
