// Copies of blocks of contiguous tensors, as pieces of memory.
//
// A host program has the blocks, as expressions. Their pieces, and how many they are, follow from the values of its symbols: the columns 0:2
// of T0[i0, 3] are one piece for each row.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device/device.h"
#include "ir/part.h"

namespace meshfuse {

// A Part whose numbers are expressions.
struct Block {
  std::vector<std::vector<SymbolicRun>> dims;

  static Block of(const Part& part);
  static Block whole(const std::vector<IntExpr>& sizes);
  IntExpr count() const;  // elements
};

// Blocks of a contiguous tensor of these sizes.
struct TensorBlocks {
  std::vector<Block> blocks;
  std::vector<IntExpr> sizes;

  IntExpr count() const;  // elements of all blocks
  bool isConst() const;
};

// The same as numbers.
struct BlockParts {
  std::vector<Part> parts;
  std::vector<int64_t> sizes;
};
// UserError if a number is negative, a step is 0, or a block is not in the tensor.
[[nodiscard]] BlockParts partsOf(const TensorBlocks& blocks, const std::function<int64_t(const IntExpr&)>& valueOf);

struct BlockCopy {
  std::vector<BytePiece> pieces;  // in the order of the elements of the blocks
  int64_t bytes = 0;
  int64_t begin = 0;  // offset of the first piece in the tensor

  // The blocks are the first bytes of the tensor, in order, or empty: nothing is copied.
  bool isWhole() const { return pieces.empty() || (pieces.size() == 1 && begin == 0); }
  // All elements lie side by side in the tensor.
  bool isOnePiece() const { return pieces.size() <= 1; }
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

// From blocks of a tensor to a buffer, where they lie side by side.
[[nodiscard]] BlockCopy packing(const std::vector<Part>& parts, const std::vector<int64_t>& sizes,
                                int64_t elementBytes);
// From such a buffer to the blocks of a tensor.
[[nodiscard]] BlockCopy unpacking(const std::vector<Part>& parts, const std::vector<int64_t>& sizes,
                                  int64_t elementBytes);
// From the elements that `packed` reads to the places that `unpacked` writes, in order.
[[nodiscard]] std::vector<BytePiece> directCopy(const BlockCopy& packed, const BlockCopy& unpacked);

}  // namespace meshfuse
