// How a matrix product is cut into calls of the library or of our own code.
#pragma once

#include <cstdint>

#include "device/matrix_product.h"

namespace meshfuse {

// A block of the result of one product: rows [row, row + rows), columns likewise.
struct ResultBlock {
  int64_t product = 0;  // of the batch
  int64_t row = 0;
  int64_t column = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

// The blocks of all products of a batch, equal but for the last ones of each product. They follow from the shapes alone, so the bits do not
// depend on the number of threads.
class ResultBlocks {
 public:
  // If a product of BFloat16 has at least this many rows and A is not transposed, its blocks are whole rows, and operands that each library
  // call would pack may be packed once.
  static constexpr int64_t kManyRows = 512;

  explicit ResultBlocks(const MatrixProduct& p);

  int64_t count() const { return rowBlocks_ * columnBlocks_ * products_; }
  ResultBlock at(int64_t block) const;  // 0 <= block < count()

 private:
  int64_t m_, n_, products_;
  int64_t rows_, columns_;  // of a block
  int64_t rowBlocks_, columnBlocks_;
};

}  // namespace meshfuse
