#include "device/cpu/onednn/contraction.h"

#include <dnnl.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "tensor/half.h"

// The library's own threads stay out: our pool cuts the work. Absent where the library was built without OpenMP.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace meshfuse {

namespace {

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
  return refuseMatrixProduct(e, layouts);
}

Contraction::Contraction(const Expr& e, const std::map<int64_t, Layout>& layouts) {
  const std::optional<std::string> refused = refuse(e, layouts);
  invariant(!refused, "[contraction] {}: {}", e.output()->toString(), refused.value_or(""));
  p_ = matrixProductOf(e, layouts);
  aOffsets_ = p_.offsets(p_.a);
  bOffsets_ = p_.offsets(p_.b);
}

int64_t Contraction::workspaceBytes() const {
  if (p_.operands == DataType::Float) {
    return 0;
  }
  const int64_t results = isWide() ? 0 : p_.m * p_.n * p_.products();
  return 4 * (roundUp(p_.a.elements) + roundUp(p_.b.elements) + roundUp(results) + (p_.hasBias ? roundUp(p_.n) : 0));
}

void Contraction::product(ThreadPool& pool, const float* a, const float* b, float* c, const float* bias) const {
  const int64_t m = p_.m;
  const int64_t n = p_.n;
  const int64_t k = p_.k;
  const int64_t aRow = p_.a.transposed ? 1 : p_.a.leading;
  // about two million multiplications a block, whole rows; the library packs a transposed b anew for every block
  const int64_t block =
      std::clamp<int64_t>((int64_t{1} << 21) / std::max<int64_t>(1, n * k), p_.b.transposed ? 64 : 16, 256);
  const int64_t blocks = (m + block - 1) / block;
  pool.run(blocks * std::ssize(aOffsets_), [&](int64_t begin, int64_t end, int64_t) {
    if (omp_set_num_threads != nullptr) {
      omp_set_num_threads(1);
    }
    for (int64_t i = begin; i < end; i++) {
      const int64_t batch = i / blocks;
      const int64_t row = i % blocks * block;
      const int64_t rows = std::min(block, m - row);
      float* out = c + (batch * m + row) * n;
      for (int64_t r = 0; bias != nullptr && r < rows; r++) {
        std::copy_n(bias, n, out + r * n);
      }
      const dnnl_status_t status = dnnl_sgemm(
          p_.a.transposed ? 'T' : 'N', p_.b.transposed ? 'T' : 'N', rows, n, k, 1.0f, a + aOffsets_[batch] + row * aRow,
          p_.a.leading, b + bOffsets_[batch], p_.b.leading, bias != nullptr ? 1.0f : 0.0f, out, n);
      deviceCheck(status == dnnl_success, "[contraction] dnnl_sgemm of {}x{}x{} returned {}", rows, n, k,
                  static_cast<int64_t>(status));
    }
  });
}

void Contraction::run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const {
  if (p_.operands == DataType::Float) {
    product(pool, static_cast<const float*>(operands[0]), static_cast<const float*>(operands[1]),
            static_cast<float*>(out), p_.hasBias ? static_cast<const float*>(operands[2]) : nullptr);
    return;
  }
  float* a = static_cast<float*>(workspace);
  float* b = a + roundUp(p_.a.elements);
  const int64_t results = p_.m * p_.n * p_.products();
  float* narrowed = b + roundUp(p_.b.elements);
  float* c = isWide() ? static_cast<float*>(out) : narrowed;
  float* bias = narrowed + (isWide() ? 0 : roundUp(results));
  widen(pool, operands[0], a, p_.a.elements, p_.operands);
  widen(pool, operands[1], b, p_.b.elements, p_.operands);
  if (p_.hasBias) {
    widen(pool, operands[2], bias, p_.n, p_.operands);
  }
  product(pool, a, b, c, p_.hasBias ? bias : nullptr);
  if (!isWide()) {
    narrow(pool, c, out, results, p_.operands);
  }
}

}  // namespace meshfuse
