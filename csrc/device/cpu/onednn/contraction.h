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

#include "device/matrix_product.h"

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
  bool isWide() const { return isHalfPrecision(p_.operands) && p_.result == DataType::Float; }
  void product(ThreadPool& pool, const float* a, const float* b, float* c, const float* bias) const;

  MatrixProduct p_;
  std::vector<int64_t> aOffsets_, bOffsets_;  // of each product of the batch, in elements
};

}  // namespace meshfuse
