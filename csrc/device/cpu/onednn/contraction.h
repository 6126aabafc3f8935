// Contraction: matmul and linear on a CPU through oneDNN's single-precision matrix product.
//
// It takes Float, and 16-bit types: these are widened to Float, and the result is rounded once unless its type is Float. The rows of the
// result are cut into blocks whose size follows from the shapes alone, and each block is one library call on one thread of our pool. So
// the bits do not depend on the number of threads, and the library needs no pool.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schedule/group.h"
#include "tensor/dtype.h"

namespace meshfuse {

class Expr;
class ThreadPool;

class Contraction {
 public:
  // The reason why the library does not take the op: a build without the library, the type, a layout without unit stride. Nothing if it
  // takes the op.
  static std::optional<std::string> refuse(const Expr& expr, const std::map<int64_t, Layout>& layouts);
  // InternalError if refused. Extents must be constant.
  Contraction(const Expr& expr, const std::map<int64_t, Layout>& layouts);

  int64_t workspaceBytes() const;
  // operands: the operands of the op, in order; out: contiguous; workspace: 64-byte aligned.
  void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const;

 private:
  struct Matrix {
    int64_t rowStride = 0;
    int64_t columnStride = 0;
  };
  void product(ThreadPool& pool, const float* a, const float* b, float* c, const float* bias) const;

  DataType dtype_;     // of the operands
  bool wide_ = false;  // operands of 16 bits, a result of type Float
  int64_t m_ = 1, n_ = 1, k_ = 1;
  Matrix a_, b_;
  std::vector<int64_t> aBatch_, bBatch_;   // offset of each product of the batch, in elements
  int64_t aElements_ = 0, bElements_ = 0;  // spanned, for widening
  bool hasBias_ = false;
};

}  // namespace meshfuse
