#include "device/cpu/onednn/contraction.h"

#include <dnnl.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "base/thread_pool.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "tensor/half.h"

// The library's own threads stay out: our pool cuts the work. Absent where the library was built without OpenMP.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace meshfuse {

namespace {

// An operand as a batch of matrices: shape and strides with at least two dims.
struct Operand {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

struct Problem {
  Operand a, b;  // [.., M, K], [.., K, N]
};

void insert(Operand& o, int64_t at, int64_t stride) {
  o.shape.insert(o.shape.begin() + at, 1);
  o.strides.insert(o.strides.begin() + at, stride);
}

Problem problemOf(const Expr& e, const std::map<int64_t, Layout>& layouts) {
  std::vector<TensorView*> in = e.tensorInputs();
  auto operand = [&](const TensorView* tv) { return Operand{tv->constantShape(), layoutOf(tv, layouts).strides}; };
  Problem p{operand(in[0]), operand(in[1])};
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

bool hasUnitStride(const Operand& o) {
  size_t r = o.shape.size() - 2;
  auto unit = [&](size_t d, size_t other) {
    return (o.strides[d] == 1 || o.shape[d] == 1) && (o.strides[other] >= o.shape[d] || o.shape[other] == 1);
  };
  return unit(r, r + 1) || unit(r + 1, r);
}

std::vector<int64_t> batchOffsets(const Operand& o, const std::vector<int64_t>& batch) {
  std::vector<int64_t> offsets = {0};
  size_t own = o.shape.size() - 2;
  for (int64_t d = 0; d < std::ssize(batch); d++) {
    bool present = d + own >= batch.size();
    size_t od = d + own - batch.size();
    int64_t stride = present && o.shape[od] != 1 ? o.strides[od] : 0;
    std::vector<int64_t> next;
    for (int64_t base : offsets) {
      for (int64_t i = 0; i < batch[d]; i++) {
        next.push_back(base + i * stride);
      }
    }
    offsets = std::move(next);
  }
  return offsets;
}

int64_t spanOf(const Operand& o) {
  return 1 + sumOf(indices(o.shape), [&](int64_t d) { return (o.shape[d] - 1) * o.strides[d]; });
}

int64_t roundUp(int64_t n) { return (n + 15) / 16 * 16; }

constexpr int64_t kPiece = 16384;

template <class Fn>
void inPieces(ThreadPool& pool, int64_t elements, Fn fn) {
  pool.run((elements + kPiece - 1) / kPiece, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t i = begin * kPiece; i < std::min(elements, end * kPiece); i++) {
      fn(i);
    }
  });
}

void widen(ThreadPool& pool, const void* from, float* to, int64_t elements, DataType type) {
  const uint16_t* source = static_cast<const uint16_t*>(from);
  if (type == DataType::Half) {  // decided once, not for every element
    inPieces(pool, elements, [&](int64_t i) { to[i] = halfToFloat(source[i]); });
  } else {
    inPieces(pool, elements, [&](int64_t i) { to[i] = bfloat16ToFloat(source[i]); });
  }
}

void narrow(ThreadPool& pool, const float* from, void* to, int64_t elements, DataType type) {
  uint16_t* target = static_cast<uint16_t*>(to);
  if (type == DataType::Half) {
    inPieces(pool, elements, [&](int64_t i) { target[i] = floatToHalf(from[i]); });
  } else {
    inPieces(pool, elements, [&](int64_t i) { target[i] = floatToBFloat16(from[i]); });
  }
}

}  // namespace

std::optional<std::string> Contraction::refuse(const Expr& e, const std::map<int64_t, Layout>& layouts) {
  if (!isContraction(e)) {
    return "it is no contraction";
  }
  DataType type = e.tensorInputs()[0]->dtype();
  if (type != DataType::Float && !isHalfPrecision(type)) {
    return fmt::format("the library has no matrix product of {}", name(type));
  }
  for (const TensorView* tv : e.tensorInputs()) {
    if (!std::ranges::all_of(tv->shape(), [](const IntExpr& x) { return x.isConst() && x.constValue() > 0; })) {
      return fmt::format("{} has extents that are not positive constants", tv->toString());
    }
  }
  Problem p = problemOf(e, layouts);
  if (!hasUnitStride(p.a) || !hasUnitStride(p.b)) {
    return "an operand has no dim of stride 1";
  }
  if (e.kind() == ExprKind::Linear && p.a.shape.size() > 2) {
    return "the leading dims of x are not contiguous";
  }
  if (e.tensorInputs().size() > 2 && layoutOf(e.tensorInputs()[2], layouts).strides != std::vector<int64_t>{1}) {
    return "the bias is not contiguous";
  }
  return std::nullopt;
}

Contraction::Contraction(const Expr& e, const std::map<int64_t, Layout>& layouts)
    : dtype_(e.tensorInputs()[0]->dtype()), wide_(isHalfPrecision(dtype_) && e.output()->dtype() == DataType::Float) {
  std::optional<std::string> refused = refuse(e, layouts);
  invariant(!refused, "[contraction] {}: {}", e.output()->toString(), refused.value_or(""));
  Problem p = problemOf(e, layouts);
  size_t ra = p.a.shape.size() - 2;
  size_t rb = p.b.shape.size() - 2;
  m_ = p.a.shape[ra];
  k_ = p.a.shape[ra + 1];
  n_ = p.b.shape[rb + 1];
  a_ = {p.a.strides[ra], p.a.strides[ra + 1]};
  b_ = {p.b.strides[rb], p.b.strides[rb + 1]};
  std::vector<int64_t> batch(std::max(ra, rb), 1);
  for (const Operand& o : {p.a, p.b}) {
    for (size_t d = 0; d + 2 < o.shape.size(); d++) {
      int64_t& extent = batch[batch.size() + 2 - o.shape.size() + d];
      extent = std::max(extent, o.shape[d]);
    }
  }
  aBatch_ = batchOffsets(p.a, batch);
  bBatch_ = batchOffsets(p.b, batch);
  aElements_ = spanOf(p.a);
  bElements_ = spanOf(p.b);
  hasBias_ = e.tensorInputs().size() > 2;
}

int64_t Contraction::workspaceBytes() const {
  if (dtype_ == DataType::Float) {
    return 0;
  }
  int64_t results = wide_ ? 0 : m_ * n_ * std::ssize(aBatch_);
  return 4 * (roundUp(aElements_) + roundUp(bElements_) + roundUp(results) + (hasBias_ ? roundUp(n_) : 0));
}

void Contraction::product(ThreadPool& pool, const float* a, const float* b, float* c, const float* bias) const {
  bool aPlain = a_.columnStride == 1 || k_ == 1;
  bool bPlain = b_.columnStride == 1 || n_ == 1;
  // about two million multiplications a block, whole rows; the library packs a transposed b anew for every block
  int64_t block = std::clamp<int64_t>((int64_t{1} << 21) / std::max<int64_t>(1, n_ * k_), bPlain ? 16 : 64, 256);
  int64_t blocks = (m_ + block - 1) / block;
  pool.run(blocks * std::ssize(aBatch_), [&](int64_t begin, int64_t end, int64_t) {
    if (omp_set_num_threads != nullptr) {
      omp_set_num_threads(1);
    }
    for (int64_t i = begin; i < end; i++) {
      int64_t batch = i / blocks;
      int64_t row = i % blocks * block;
      int64_t rows = std::min(block, m_ - row);
      float* out = c + (batch * m_ + row) * n_;
      for (int64_t r = 0; bias != nullptr && r < rows; r++) {
        std::copy_n(bias, n_, out + r * n_);
      }
      int64_t lda = std::max(aPlain ? std::max<int64_t>(a_.rowStride, k_) : a_.columnStride, aPlain ? k_ : rows);
      int64_t ldb = bPlain ? std::max(b_.rowStride, n_) : std::max(b_.columnStride, k_);
      dnnl_status_t status = dnnl_sgemm(aPlain ? 'N' : 'T', bPlain ? 'N' : 'T', rows, n_, k_, 1.0f,
                                        a + aBatch_[batch] + row * a_.rowStride, lda, b + bBatch_[batch], ldb,
                                        bias != nullptr ? 1.0f : 0.0f, out, n_);
      deviceCheck(status == dnnl_success, "[contraction] dnnl_sgemm of {}x{}x{} returned {}", rows, n_, k_,
                  static_cast<int64_t>(status));
    }
  });
}

void Contraction::run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const {
  if (dtype_ == DataType::Float) {
    product(pool, static_cast<const float*>(operands[0]), static_cast<const float*>(operands[1]),
            static_cast<float*>(out), hasBias_ ? static_cast<const float*>(operands[2]) : nullptr);
    return;
  }
  float* a = static_cast<float*>(workspace);
  float* b = a + roundUp(aElements_);
  int64_t results = m_ * n_ * std::ssize(aBatch_);
  float* narrowed = b + roundUp(bElements_);
  float* c = wide_ ? static_cast<float*>(out) : narrowed;
  float* bias = narrowed + (wide_ ? 0 : roundUp(results));
  widen(pool, operands[0], a, aElements_, dtype_);
  widen(pool, operands[1], b, bElements_, dtype_);
  if (hasBias_) {
    widen(pool, operands[2], bias, n_, dtype_);
  }
  product(pool, a, b, c, hasBias_ ? bias : nullptr);
  if (!wide_) {
    narrow(pool, c, out, results, dtype_);
  }
}

}  // namespace meshfuse
