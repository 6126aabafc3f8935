#include "device/cpu/onednn/contraction.h"

#include <dnnl.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/rounding.h"
#include "base/thread_pool.h"
#include "device/cpu/onednn/double_product.h"
#include "device/cpu/onednn/few_rows_product.h"
#include "device/cpu/onednn/float_product.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "tensor/half.h"

// The library's own threads stay out: our pool cuts the work. Absent where the library was built without OpenMP.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace meshfuse {

namespace {

int64_t inLines(int64_t n) { return roundUp(n, 64); }

constexpr int64_t kPiece = 16384;

template <class Fn>
void inPieces(ThreadPool& pool, int64_t elements, Fn fn) {
  pool.run(divideUp(elements, kPiece), [&](int64_t begin, int64_t end, int64_t) {
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

// Parts that call the library
template <class Fn>
void eachPart(ThreadPool& pool, int64_t parts, Fn fn) {
  pool.run(parts, [&](int64_t begin, int64_t end, int64_t worker) {
    if (omp_set_num_threads != nullptr) {
      omp_set_num_threads(1);
    }
    for (int64_t i = begin; i < end; i++) {
      fn(i, worker);
    }
  });
}

template <class Fn>
void eachBlock(ThreadPool& pool, const ResultBlocks& blocks, Fn fn) {
  eachPart(pool, blocks.count(), [&](int64_t i, int64_t worker) { fn(blocks.at(i), worker); });
}

MatrixProduct acceptedProduct(const Expr& e, const std::map<int64_t, Layout>& layouts) {
  const std::optional<std::string> refused = Contraction::refuse(e, layouts);
  invariant(!refused, "[contraction] {}: {}", e.output()->toString(), refused.value_or(""));
  return matrixProductOf(e, layouts);
}

}  // namespace

std::optional<std::string> Contraction::refuse(const Expr& e, const std::map<int64_t, Layout>& layouts) {
  if (!isContraction(e)) {
    return "it is no contraction";
  }
  DataType type = e.tensorInputs()[0]->dtype();
  const bool isOurs = type == DataType::Double && multipliesDoubles();
  if (type != DataType::Float && !isHalfPrecision(type) && !isOurs) {
    return fmt::format("the library has no matrix product of {}", name(type));
  }
  return refuseMatrixProduct(e, layouts);
}

Contraction::Contraction(const Expr& e, const std::map<int64_t, Layout>& layouts, int64_t threads)
    : p_(acceptedProduct(e, layouts)),
      aOffsets_(p_.offsets(p_.a)),
      bOffsets_(p_.offsets(p_.b)),
      blocks_(p_),
      threads_(threads),
      native_(multipliesFewRows(p_) ? nullptr : NativeProduct::make(p_, blocks_)) {}

int64_t Contraction::workspaceBytes() const {
  if (p_.operands == DataType::Float || multipliesFewRows(p_)) {
    return 0;
  }
  if (p_.operands == DataType::Double) {
    return threads_ * inLines(doubleProductScratchBytes());
  }
  if (native_ != nullptr) {
    return inLines(native_->packedBytes()) + threads_ * inLines(native_->scratchBytes());
  }
  const int64_t results = isWide() ? 0 : p_.m * p_.n * p_.products();
  return 4 * (inLines(p_.a.elements) + inLines(p_.b.elements) + inLines(results) + (p_.hasBias ? inLines(p_.n) : 0));
}

void Contraction::floatProduct(ThreadPool& pool, const float* a, const float* b, float* c, const float* bias) const {
  eachBlock(pool, blocks_, [&](const ResultBlock& block, int64_t) {
    float* out = c + (block.product * p_.m + block.row) * p_.n + block.column;
    const float* left = a + aOffsets_[block.product];
    const float* right = b + bOffsets_[block.product];
    const bool isOurs = multipliesFloats(block);
    for (int64_t r = 0; (isOurs || bias != nullptr) && r < block.rows; r++) {
      if (bias != nullptr) {
        std::copy_n(bias + block.column, block.columns, out + r * p_.n);
      } else {
        std::fill_n(out + r * p_.n, block.columns, 0.0F);
      }
    }
    if (isOurs) {
      return multiplyFloats(p_, block, left, right, out);
    }
    const dnnl_status_t status =
        dnnl_sgemm(p_.a.transposed ? 'T' : 'N', p_.b.transposed ? 'T' : 'N', block.rows, block.columns, p_.k, 1.0f,
                   left + p_.a.offsetOf(block.row, 0), p_.a.leading, right + p_.b.offsetOf(0, block.column),
                   p_.b.leading, bias != nullptr ? 1.0f : 0.0f, out, p_.n);
    deviceCheck(status == dnnl_success, "[contraction] dnnl_sgemm of {}x{}x{} returned {}", block.rows, block.columns,
                p_.k, static_cast<int64_t>(status));
  });
}

void Contraction::fewRowsProduct(ThreadPool& pool, std::span<void* const> operands, void* out) const {
  const auto matrix = [&](int64_t operand, int64_t offset) {
    return static_cast<const char*>(operands[operand]) + offset * dataTypeSize(p_.operands);
  };
  const int64_t columns = columnsOfFewRows(p_);
  const int64_t parts = divideUp(p_.n, columns);
  pool.run(parts * p_.products(), [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t product = i / parts;
      const int64_t column = i % parts * columns;
      multiplyFewRows(p_, column, std::min(columns, p_.n - column), matrix(0, aOffsets_[product]),
                      matrix(1, bOffsets_[product]), p_.hasBias ? operands[2] : nullptr,
                      static_cast<char*>(out) + product * p_.m * p_.n * dataTypeSize(p_.result));
    }
  });
}

void Contraction::doubleProduct(ThreadPool& pool, const double* a, const double* b, double* c, const double* bias,
                                char* workspace) const {
  eachBlock(pool, blocks_, [&](const ResultBlock& block, int64_t worker) {
    double* out = c + (block.product * p_.m + block.row) * p_.n + block.column;
    for (int64_t r = 0; r < block.rows; r++) {
      if (bias != nullptr) {
        std::copy_n(bias + block.column, block.columns, out + r * p_.n);
      } else {
        std::fill_n(out + r * p_.n, block.columns, 0.0);
      }
    }
    multiplyDoubles(p_, block, a + aOffsets_[block.product], b + bOffsets_[block.product], out,
                    workspace + worker * inLines(doubleProductScratchBytes()));
  });
}

void Contraction::widenedProduct(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const {
  float* a = static_cast<float*>(workspace);
  float* b = a + inLines(p_.a.elements);
  const int64_t results = p_.m * p_.n * p_.products();
  float* narrowed = b + inLines(p_.b.elements);
  float* c = isWide() ? static_cast<float*>(out) : narrowed;
  float* bias = narrowed + (isWide() ? 0 : inLines(results));
  widen(pool, operands[0], a, p_.a.elements, p_.operands);
  widen(pool, operands[1], b, p_.b.elements, p_.operands);
  if (p_.hasBias) {
    widen(pool, operands[2], bias, p_.n, p_.operands);
  }
  floatProduct(pool, a, b, c, p_.hasBias ? bias : nullptr);
  if (!isWide()) {
    narrow(pool, c, out, results, p_.operands);
  }
}

void Contraction::nativeProduct(ThreadPool& pool, std::span<void* const> operands, void* out, char* workspace) const {
  const NativeProduct::Operands o{operands[0], operands[1], p_.hasBias ? operands[2] : nullptr, workspace};
  eachPart(pool, native_->packParts(), [&](int64_t part, int64_t) { native_->pack(part, o.a, o.b, workspace); });
  char* const scratch = workspace + inLines(native_->packedBytes());
  eachBlock(pool, blocks_, [&](const ResultBlock& block, int64_t worker) {
    native_->run(block, o, out, scratch + worker * inLines(native_->scratchBytes()));
  });
}

void Contraction::run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const {
  if (multipliesFewRows(p_)) {
    fewRowsProduct(pool, operands, out);
  } else if (native_ != nullptr) {
    nativeProduct(pool, operands, out, static_cast<char*>(workspace));
  } else if (p_.operands == DataType::Double) {
    doubleProduct(pool, static_cast<const double*>(operands[0]), static_cast<const double*>(operands[1]),
                  static_cast<double*>(out), p_.hasBias ? static_cast<const double*>(operands[2]) : nullptr,
                  static_cast<char*>(workspace));
  } else if (p_.operands != DataType::Float) {
    widenedProduct(pool, operands, out, workspace);
  } else {
    floatProduct(pool, static_cast<const float*>(operands[0]), static_cast<const float*>(operands[1]),
                 static_cast<float*>(out), p_.hasBias ? static_cast<const float*>(operands[2]) : nullptr);
  }
}

}  // namespace meshfuse
