// Contraction: matmul and linear on a CPU through oneDNN.
//
// It takes Float, Double and 16-bit types. BFloat16 is multiplied as it is where the processor can, except in the smallest products; else
// 16-bit types are widened to Float, and the result is rounded once unless its type is Float. The result is cut into blocks, those of few
// rows into blocks of columns; a block is one call of the library, or of our own code (double_product.h, float_product.h,
// few_rows_product.h), on one thread of our pool. So the bits do not depend on the number of threads, and the library needs no pool.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/onednn/native_product.h"
#include "device/matrix_product.h"
#include "device/result_blocks.h"

namespace meshfuse {

class Expr;
class ThreadPool;

class Contraction {
 public:
  // The reason why the library does not take the op: a build without the library, the type, a layout without unit stride. Nothing if it
  // takes the op.
  static std::optional<std::string> refuse(const Expr& expr, const std::map<int64_t, Layout>& layouts);
  // InternalError if refused. Extents must be constant. `threads`: of the pools that run it, at most.
  Contraction(const Expr& expr, const std::map<int64_t, Layout>& layouts, int64_t threads);

  int64_t workspaceBytes() const;
  // operands: the operands of the op, in order; out: contiguous; workspace: 64-byte aligned.
  void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const;

 private:
  bool isWide() const { return isHalfPrecision(p_.operands) && p_.result == DataType::Float; }
  void floatProduct(ThreadPool& pool, const float* a, const float* b, float* c, const float* bias) const;
  void nativeProduct(ThreadPool& pool, std::span<void* const> operands, void* out, char* workspace) const;
  void fewRowsProduct(ThreadPool& pool, std::span<void* const> operands, void* out) const;
  void doubleProduct(ThreadPool& pool, const double* a, const double* b, double* c, const double* bias,
                     char* workspace) const;
  void widenedProduct(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const;

  MatrixProduct p_;
  std::vector<int64_t> aOffsets_, bOffsets_;  // of each product of the batch, in elements
  ResultBlocks blocks_;
  int64_t threads_;
  std::shared_ptr<const NativeProduct> native_;  // null: Float, widened to it, Double, or few rows
};

}  // namespace meshfuse
