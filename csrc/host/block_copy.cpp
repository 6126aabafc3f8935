#include "host/block_copy.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

void appendPiece(BlockCopy& copy, int64_t offset, int64_t bytes) {
  if (!copy.pieces.empty() && copy.pieces.back().from + copy.pieces.back().bytes == offset) {
    copy.pieces.back().bytes += bytes;
  } else {
    copy.pieces.push_back({offset, copy.bytes, bytes});
  }
  copy.bytes += bytes;
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

Block Block::of(const Part& part) {
  const auto runsOf = [](const IndexRuns& dim) {
    return mapped(dim, [](const IndexRun& r) { return SymbolicRun{r.start, r.count, r.step}; });
  };
  return {mapped(part.dims, runsOf)};
}

Block Block::whole(const std::vector<IntExpr>& sizes) {
  return {mapped(sizes, [](const IntExpr& n) { return std::vector{SymbolicRun{.count = n}}; })};
}

IntExpr Block::count() const {
  return productOf(dims, [](const std::vector<SymbolicRun>& dim) { return sumOf(dim, &SymbolicRun::count); });
}

IntExpr TensorBlocks::count() const { return sumOf(blocks, &Block::count); }

bool TensorBlocks::isConst() const {
  const auto isConstRun = [](const SymbolicRun& r) {
    return r.start.isConst() && r.count.isConst() && r.step.isConst();
  };
  return std::ranges::all_of(sizes, [](const IntExpr& n) { return n.isConst(); }) &&
         std::ranges::all_of(blocks, [&](const Block& b) {
           return std::ranges::all_of(b.dims, [&](const auto& dim) { return std::ranges::all_of(dim, isConstRun); });
         });
}

BlockParts partsOf(const TensorBlocks& blocks, const std::function<int64_t(const IntExpr&)>& valueOf) {
  BlockParts result{.parts = {}, .sizes = mapped(blocks.sizes, valueOf)};
  for (const Block& block : blocks.blocks) {
    Part part{.dims = std::vector<IndexRuns>(block.dims.size())};
    for (const int64_t d : indices(block.dims)) {
      for (const SymbolicRun& run : block.dims[d]) {
        const IndexRun r{valueOf(run.start), valueOf(run.count), valueOf(run.step)};
        check(r.count >= 0 && r.start >= 0 && r.step > 0 &&
                  (r.count == 0 || (result.sizes[d] > 0 && r.start < result.sizes[d] &&
                                    r.count - 1 <= (result.sizes[d] - 1 - r.start) / r.step)),
              "a block has {} indices of dim {} from {} with step {}, expected indices below {}", r.count, d, r.start,
              r.step, result.sizes[d]);
        if (r.count > 0) {
          part.dims[d].push_back(r);
        }
      }
    }
    result.parts.push_back(std::move(part));
  }
  return result;
}

BlockCopy packing(const std::vector<Part>& parts, const std::vector<int64_t>& sizes, int64_t elementBytes) {
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
  copy.begin = copy.pieces.empty() ? 0 : copy.pieces[0].from;
  return copy;
}

BlockCopy unpacking(const std::vector<Part>& parts, const std::vector<int64_t>& sizes, int64_t elementBytes) {
  BlockCopy copy = packing(parts, sizes, elementBytes);
  for (BytePiece& p : copy.pieces) {
    std::swap(p.from, p.to);
  }
  return copy;
}

std::vector<BytePiece> directCopy(const BlockCopy& packed, const BlockCopy& unpacked) {
  std::vector<BytePiece> pieces;
  auto source = packed.pieces.begin();
  int64_t done = 0;  // of the source's piece
  for (const BytePiece& target : unpacked.pieces) {
    for (int64_t filled = 0; filled < target.bytes;) {
      const int64_t bytes = std::min(target.bytes - filled, source->bytes - done);
      pieces.push_back({source->from + done, target.to + filled, bytes});
      filled += bytes;
      done += bytes;
      if (done == source->bytes) {
        source++;
        done = 0;
      }
    }
  }
  return pieces;
}

}  // namespace meshfuse
