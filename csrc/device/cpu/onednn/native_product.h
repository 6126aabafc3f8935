// Products of BFloat16 matrices by the library's own instructions for them: operands are read as they are, sums are of Float, and each
// element of the result is rounded once. Subnormal operands and sums may count as zeros.
//
// The library has fast products of matrices without gaps only, and packs B in each call. Products of many rows are therefore cut into whole
// rows, and pack() writes operands once that the calls would pack or could not take: B in panels of 64 columns, and the rows of A side by
// side, with zeros up to a multiple of 32 elements.
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

  int64_t scratchBytes() const { return scratchBytes_; }                   // of a call
  int64_t packedBytes() const { return packedABytes() + packedBBytes(); }  // of all calls together
  int64_t packParts() const { return packedPanels() + packedRowParts(); }
  // One of packParts() parts of the operands, to `packed`, 64-byte aligned. All are packed before the first block is run.
  void pack(int64_t part, const void* a, const void* b, void* packed) const;

  struct Operands {
    const void* a;
    const void* b;
    const void* bias;    // may be null
    const void* packed;  // what pack() has written
  };
  // One block. Operands and result: as the tensors are. scratch: 64-byte aligned, of one thread.
  void run(const ResultBlock& block, const Operands& operands, void* result, void* scratch) const;

 private:
  struct Call;   // for blocks of one size
  struct Panel;  // for panels of one width

  // Products with the same matrix share its packed copy.
  struct Copies {
    explicit Copies(const std::vector<int64_t>& offsets);
    int64_t count() const { return std::ssize(offsets); }
    std::vector<int64_t> offsets;    // of each copy's matrix, in elements
    std::vector<int64_t> ofProduct;  // its copy
  };

  enum class Packing : uint8_t { Once, InEachCall };

  NativeProduct(const MatrixProduct& p, Packing packing);
  bool plan(const ResultBlocks& blocks);  // false if the library has no fast product
  int64_t depth() const;                  // k of the calls
  int64_t packedABytes() const;
  int64_t packedBBytes() const;
  int64_t packedRowParts() const;  // of all copies
  int64_t packedPanels() const;
  void packRows(int64_t copy, int64_t part, const void* a, void* to) const;
  void packPanel(int64_t copy, int64_t panel, const void* b, void* to) const;

  MatrixProduct p_;
  bool packsA_ = false, packsB_ = false;
  Copies aCopies_, bCopies_;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Call>> calls_;  // by rows and columns of the block
  std::map<int64_t, std::unique_ptr<Panel>> panels_;                    // by columns
  int64_t scratchBytes_ = 0;
};

}  // namespace meshfuse
