// Packs blocks of a contiguous tensor side by side, and unpacks them.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/part.h"

namespace meshfuse {

// The contiguous pieces of memory of some blocks, in the order of their elements.
struct BlockCopy {
  struct Piece {
    int64_t offset;  // bytes, into the tensor
    int64_t bytes;
  };
  std::vector<Piece> pieces;
  int64_t bytes = 0;

  // The blocks already lie side by side in the tensor: nothing is copied.
  bool isWhole() const { return pieces.empty() || (pieces.size() == 1 && pieces[0].offset == 0); }
  // All elements lie side by side in the tensor.
  bool isOnePiece() const { return pieces.size() <= 1; }
  int64_t begin() const { return pieces.empty() ? 0 : pieces[0].offset; }  // of the first piece
  void pack(const void* tensor, void* sideBySide) const;
  void unpack(const void* sideBySide, void* tensor) const;
};

[[nodiscard]] BlockCopy blockCopy(const std::vector<Part>& parts, const std::vector<int64_t>& sizes,
                                  int64_t elementBytes);

// Copies the elements of a block of one tensor to a block of another tensor, in order.
void copyBlock(const void* fromTensor, const BlockCopy& from, void* toTensor, const BlockCopy& to);

}  // namespace meshfuse
