#include "host/block_copy.h"

#include <algorithm>
#include <cstring>

namespace meshfuse {

namespace {

class Builder {
 public:
  Builder(BlockCopy& out, const std::vector<int64_t>& sizes, int64_t elementBytes) : out_(out), sizes_(sizes) {
    strides_.assign(sizes.size() + 1, elementBytes);
    for (size_t k = sizes.size(); k-- > 0;) {
      strides_[k] = strides_[k + 1] * sizes[k];
    }
  }

  void add(const Part& part) {
    if (part.count() == 0) {
      return;
    }
    inner_ = sizes_.size();  // dims from here on are whole
    while (inner_ > 0 && countOf(part.dims[inner_ - 1]) == sizes_[inner_ - 1]) {
      inner_--;
    }
    visit(part, 0, 0);
  }

 private:
  void visit(const Part& part, size_t dim, int64_t offset) {
    if (dim == inner_) {
      append(offset, strides_[dim]);
      return;
    }
    for (const IndexRun& r : part.dims[dim]) {
      if (dim + 1 == inner_ && r.step == 1) {
        append(offset + r.start * strides_[dim + 1], r.count * strides_[dim + 1]);
        continue;
      }
      for (int64_t i = 0; i < r.count; i++) {
        visit(part, dim + 1, offset + (r.start + i * r.step) * strides_[dim + 1]);
      }
    }
  }

  void append(int64_t offset, int64_t bytes) {
    out_.bytes += bytes;
    if (!out_.pieces.empty() && out_.pieces.back().offset + out_.pieces.back().bytes == offset) {
      out_.pieces.back().bytes += bytes;
      return;
    }
    out_.pieces.push_back({offset, bytes});
  }

  BlockCopy& out_;
  const std::vector<int64_t>& sizes_;
  std::vector<int64_t> strides_;  // bytes; [k + 1] is that of dim k
  size_t inner_ = 0;
};

}  // namespace

BlockCopy blockCopy(const std::vector<Part>& parts, const std::vector<int64_t>& sizes, int64_t elementBytes) {
  BlockCopy copy;
  Builder builder(copy, sizes, elementBytes);
  for (const Part& part : parts) {
    builder.add(part);
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
