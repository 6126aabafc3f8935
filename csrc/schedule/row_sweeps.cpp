// Rows brought in ahead, by all sweeps together.
#include <algorithm>
#include <cstdint>

#include "base/rounding.h"
#include "ir/fusion.h"
#include "schedule/row_writer.h"

namespace meshfuse {

namespace {

constexpr int64_t kLine = 16;  // elements of a cache line, of the usual type

}  // namespace

// Lines of the inputs that run over n, and over one of the dims `along` if there are any, at other dims: `width` elements of n a
// step.
void RowWriter::prefetch(const std::vector<IntExpr>& dims, int64_t width, const std::vector<int64_t>& along) {
  for (const TensorView* in : group_.inputs) {
    auto it = c_.index.find(in->id());
    auto runsOverOne = [&](const std::vector<int64_t>& axis) {
      return it != c_.index.end() && std::ranges::any_of(axis, [&](int64_t d) { return runsOver(it->second, d); });
    };
    if (runsOverOne(axes_.n) && (along.empty() || runsOverOne(along))) {
      std::string n = coord(n_).toString();
      bool oneRun =
          std::ranges::all_of(position(in), [&](const tile::Index& i) { return i.expr.linearIn(n).has_value(); });
      if (oneRun) {  // else the reads of a step are scattered
        int64_t lines = divideUp(width * dataTypeSize(in->dtype()), 64);
        builder_.prefetch(lowering_.tensorParam(in), positionOf(c_, in, dims), lines);
      }
    }
  }
}

void RowWriter::prefetchNextRow() {
  if (m_ >= 0) {
    prefetch(axes_.dims(c_, row() + 1, coord(k_), coord(n_)), stepWidth(digits_.n), axes_.m);
  }
}

// One of `sweeps` over a row brings in its share of the next row: memory is then busy all the time, not only in one of them. The
// shares are fractions of powers of two, larger ones last, so that a step brings in whole lines that are neighbours. Sweeps
// that would get less than a line of each step get none.
void RowWriter::prefetchShare(int64_t sweep, int64_t sweeps) {
  const int64_t width = stepWidth(digits_.n);
  const int64_t sharing = std::min<int64_t>(sweeps, width / kLine);
  const int64_t rank = sweep - (sweeps - sharing);
  if (m_ < 0 || rank < 0 || !digits_.prefetchRows) {
    return;
  }
  const auto whole = powerAtMost(sharing);
  const int64_t halved = sharing - whole;  // number of fractions 1 / whole that two sweeps share
  const bool half = rank < 2 * halved;
  const int64_t fractions = half ? 2 * whole : whole;
  const int64_t before = half ? rank : rank - halved;
  const int64_t part = width / fractions;
  IntExpr n = floorDiv(axes_.N * before, fractions) + floorDiv(coord(n_), width) * part;
  prefetch(axes_.dims(c_, row() + 1, coord(k_), n), part, axes_.m);
}

void RowWriter::prefetchPointwise() {
  if (digits_.prefetchRows) {
    prefetchNextRow();
  } else if (digits_.prefetchAhead > 0) {
    prefetch(axes_.dims(c_, coord(m_), 0, coord(n_) + digits_.prefetchAhead), stepWidth(digits_.n), {});
  }
}

}  // namespace meshfuse
