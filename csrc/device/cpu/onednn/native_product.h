// Products of BFloat16 matrices by the library's own instructions for them: operands are read as they are, sums are of Float, and each
// element of the result is rounded once. Subnormal operands and sums may count as zeros.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "device/matrix_product.h"
#include "device/result_blocks.h"

namespace meshfuse {

class NativeProduct {
 public:
  // Null if the product has other types or few elements, or if the library has no fast product of BFloat16 on this processor.
  static std::shared_ptr<const NativeProduct> make(const MatrixProduct& p, const ResultBlocks& blocks);
  ~NativeProduct();

  int64_t scratchBytes() const { return scratchBytes_; }  // of a call
  // One block. a, b, bias, result: as the tensors are; bias may be null. scratch: 64-byte aligned, of one thread.
  void run(const ResultBlock& block, const void* a, const void* b, const void* bias, void* result, void* scratch) const;

 private:
  struct Call;  // for blocks of one size

  explicit NativeProduct(const MatrixProduct& p);

  MatrixProduct p_;
  std::vector<int64_t> aOffsets_, bOffsets_;                            // of each product, in elements
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Call>> calls_;  // by rows and columns of the block
  int64_t scratchBytes_ = 0;
};

}  // namespace meshfuse
