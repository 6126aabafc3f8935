// A matmul or linear as products of matrices, the form in which libraries take it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device/device_info.h"
#include "tensor/dtype.h"

namespace meshfuse {

// C = A B for each index of the batch; A is [m, k], B is [k, n], C is [m, n] and contiguous, the products one after the other.
struct MatrixProduct {
  // A matrix lies in memory by rows; if transposed, by columns.
  struct Operand {
    bool transposed = false;
    int64_t leading = 1;                // elements from one row, or column, to the next
    std::vector<int64_t> batchStrides;  // by dim of the batch, in elements; 0 where all products have the same matrix
    int64_t elements = 0;               // from the first to the last of the tensor
    int64_t alignment = 64;             // bytes, a power of two that divides the address of the tensor
    // From the first element of a matrix to the one in this row and column, in elements.
    int64_t offsetOf(int64_t row, int64_t column) const {
      return transposed ? row + column * leading : row * leading + column;
    }
  };
  DataType operands = DataType::Float;
  DataType result = DataType::Float;
  int64_t m = 1, n = 1, k = 1;
  std::vector<int64_t> batch;  // extents
  Operand a, b;
  bool hasBias = false;        // a vector of n elements, added to each row of C
  int64_t biasAlignment = 64;  // as Operand::alignment

  int64_t products() const;
  // Of each product, in elements.
  std::vector<int64_t> offsets(const Operand& operand) const;
};

// The reason why the op is no such product; nothing if it is. It must be a contraction.
[[nodiscard]] std::optional<std::string> refuseMatrixProduct(const Expr& op, const std::map<int64_t, Layout>& layouts);
// InternalError if refused.
[[nodiscard]] MatrixProduct matrixProductOf(const Expr& op, const std::map<int64_t, Layout>& layouts);

}  // namespace meshfuse
