// Copies of blocks of contiguous tensors, as pieces of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "ir/part.h"

namespace meshfuse {

struct BlockCopy {
  std::vector<BytePiece> pieces;  // in the order of the elements of the blocks
  int64_t bytes = 0;
  int64_t begin = 0;  // offset of the first piece in the tensor

  // The blocks already lie side by side in the tensor: nothing is copied.
  bool isWhole() const { return pieces.empty() || (pieces.size() == 1 && begin == 0); }
  // All elements lie side by side in the tensor.
  bool isOnePiece() const { return pieces.size() <= 1; }
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
