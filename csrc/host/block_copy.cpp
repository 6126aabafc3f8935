#include "host/block_copy.h"

#include <algorithm>
#include <cstring>

namespace meshfuse {

namespace {

void appendPiece(BlockCopy& copy, int64_t offset, int64_t bytes) {
  copy.bytes += bytes;
  if (!copy.pieces.empty() && copy.pieces.back().offset + copy.pieces.back().bytes == offset) {
    copy.pieces.back().bytes += bytes;
  } else {
    copy.pieces.push_back({offset, bytes});
  }
}

// Appends the elements of a part at `offset` that has the dims from `dim` on. strides: in bytes, [k + 1] is that of dim k. The part has all
// indices of the dims from `inner` on.
void appendPart(BlockCopy& copy, const Part& part, const std::vector<int64_t>& strides, size_t inner, size_t dim,
                int64_t offset) {
  if (dim == inner) {
    appendPiece(copy, offset, strides[dim]);
    return;
  }
  for (const IndexRun& r : part.dims[dim]) {
    if (dim + 1 == inner && r.step == 1) {
      appendPiece(copy, offset + r.start * strides[dim + 1], r.count * strides[dim + 1]);
      continue;
    }
    for (int64_t i = 0; i < r.count; i++) {
      appendPart(copy, part, strides, inner, dim + 1, offset + (r.start + i * r.step) * strides[dim + 1]);
    }
  }
}

}  // namespace

BlockCopy blockCopy(const std::vector<Part>& parts, const std::vector<int64_t>& sizes, int64_t elementBytes) {
  std::vector<int64_t> strides(sizes.size() + 1, elementBytes);
  for (size_t k = sizes.size(); k-- > 0;) {
    strides[k] = strides[k + 1] * sizes[k];
  }
  BlockCopy copy;
  for (const Part& part : parts) {
    if (part.count() == 0) {
      continue;
    }
    size_t inner = sizes.size();
    while (inner > 0 && countOf(part.dims[inner - 1]) == sizes[inner - 1]) {
      inner--;
    }
    appendPart(copy, part, strides, inner, 0, 0);
  }
  return copy;
}

void BlockCopy::pack(const void* tensor, void* sideBySide) const {
  const char* from = static_cast<const char*>(tensor);
  char* to = static_cast<char*>(sideBySide);
  for (const Piece& p : pieces) {
    std::memcpy(to, from + p.offset, p.bytes);
    to += p.bytes;
  }
}

void BlockCopy::unpack(const void* sideBySide, void* tensor) const {
  const char* from = static_cast<const char*>(sideBySide);
  char* to = static_cast<char*>(tensor);
  for (const Piece& p : pieces) {
    std::memcpy(to + p.offset, from, p.bytes);
    from += p.bytes;
  }
}

void copyBlock(const void* fromTensor, const BlockCopy& from, void* toTensor, const BlockCopy& to) {
  const char* source = static_cast<const char*>(fromTensor);
  char* target = static_cast<char*>(toTensor);
  size_t piece = 0;
  int64_t done = 0;  // of the source's piece
  for (const BlockCopy::Piece& t : to.pieces) {
    for (int64_t filled = 0; filled < t.bytes;) {
      const BlockCopy::Piece& s = from.pieces[piece];
      const int64_t bytes = std::min(t.bytes - filled, s.bytes - done);
      std::memcpy(target + t.offset + filled, source + s.offset + done, bytes);
      filled += bytes;
      done += bytes;
      if (done == s.bytes) {
        piece++;
        done = 0;
      }
    }
  }
}

}  // namespace meshfuse
