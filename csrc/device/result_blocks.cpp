#include "device/result_blocks.h"

#include <algorithm>

#include "base/rounding.h"

namespace meshfuse {

namespace {

constexpr int64_t kMost = 512;  // rows or columns
constexpr int64_t kLeast = 64;  // rows or columns of a block that is cut
// The library has faster products of BFloat16 for results without gaps: whole rows. Few rows are cut into columns if k is longer than this.
constexpr int64_t kShort = 768;
// Elements of k up to which few long rows of Float are stored faster than square blocks.
constexpr int64_t kShortOfFloat = 128;
// Multiplications of a block that is worth a thread. Instructions for BFloat16 do sixteen times as many as those for Float.
int64_t leastWork(DataType type) { return int64_t{1} << (type == DataType::BFloat16 ? 23 : 19); }

// The number of blocks up to which a cut of the longer side pays. The library packs the operands anew for each block, and the cut repeats the
// packing of the shorter side's operand.
int64_t enoughBlocks(int64_t longer, int64_t shorter) { return longer >= 16 * shorter ? 64 : 16; }

int64_t quotient(int64_t n, int64_t by) { return divideUp(n, std::max<int64_t>(1, by)); }

constexpr int64_t kFewWholeRows = 2 * kLeast;  // of a block, where rows are not many
constexpr int64_t kManyBlocks = 16;

// Whole rows without gaps are faster unless they leave few blocks with much work.
bool hasWholeRows(const MatrixProduct& p) {
  if (p.operands != DataType::BFloat16 || p.a.transposed) {
    return false;
  }
  if (p.m >= ResultBlocks::kManyRows) {
    return true;
  }
  return p.k <= kShort && (quotient(p.m, kFewWholeRows) * p.products() >= kManyBlocks ||
                           std::min(p.m, kFewWholeRows) * p.n * p.k <= kManyBlocks * leastWork(p.operands));
}

// n in as many equal blocks as blocks of `most` need; a multiple of the library's own vectors.
int64_t evened(int64_t n, int64_t most) {
  constexpr int64_t kVector = 16;
  return quotient(quotient(n, quotient(n, most)), kVector) * kVector;
}

}  // namespace

ResultBlocks::ResultBlocks(const MatrixProduct& p)
    : m_(p.m), n_(p.n), products_(p.products()), rows_(std::min(p.m, kMost)), columns_(std::min(p.n, kMost)) {
  const bool wholeRows = hasWholeRows(p);
  const int64_t least = !wholeRows ? kLeast : p.m >= kManyRows ? 4 * kLeast : kFewWholeRows;  // each reads all of B
  if (wholeRows) {
    columns_ = p.n;
  }
  if (p.operands == DataType::Float && p.k <= kShortOfFloat && p.n > kMost) {
    rows_ = std::min(p.m, kLeast);
    columns_ = std::min(p.n, 2 * kMost);
  }
  for (;;) {
    int64_t& longer = wholeRows || rows_ > columns_ ? rows_ : columns_;
    const int64_t blocks = quotient(m_, rows_) * quotient(n_, columns_) * products_;
    if (longer <= least || rows_ * columns_ * p.k < 2 * leastWork(p.operands) ||
        blocks >= enoughBlocks(longer, std::min(rows_, columns_))) {
      break;
    }
    longer = quotient(longer, 2);
  }
  rows_ = evened(m_, rows_);
  columns_ = evened(n_, columns_);
  rowBlocks_ = quotient(m_, rows_);
  columnBlocks_ = quotient(n_, columns_);
}

ResultBlock ResultBlocks::at(int64_t block) const {
  const int64_t column = block % columnBlocks_ * columns_;
  const int64_t row = block / columnBlocks_ % rowBlocks_ * rows_;
  return {.product = block / columnBlocks_ / rowBlocks_,
          .row = row,
          .column = column,
          .rows = std::min(rows_, m_ - row),
          .columns = std::min(columns_, n_ - column)};
}

}  // namespace meshfuse
