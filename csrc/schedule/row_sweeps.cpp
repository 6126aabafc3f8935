// Rows brought in ahead, by all sweeps together.
#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
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
      const int64_t param = lowering_.tensorParam(in);
      const Lowering::Position at = position(in);
      const IntExpr offset =
          sumOf(indices(at), [&](int64_t d) { return at[d].expr * builder_.program().tensors[param].strides[d]; });
      if (offset.linearIn(coord(n_).toString())) {  // else the reads of a step are scattered
        const int64_t lines = divideUp(width * dataTypeSize(in->dtype()), 64);
        builder_.prefetch(param, positionOf(c_, in, dims), lines);
      }
    }
  }
}

void RowWriter::prefetchNextRow() {
  if (m_ >= 0) {
    prefetch(axes_.dims(c_, row() + 1, coord(k_), coord(n_)), stepWidth(digits_.n), axes_.m);
  }
}

// The last two of `sweeps` over a row bring in the next row. A sweep that stores brings in three quarters, because memory is fastest when it
// reads and writes at the same time; without one both bring in a half.
void RowWriter::prefetchShare(int64_t sweep, int64_t sweeps) {
  const int64_t width = stepWidth(digits_.n);
  const bool shared = sweeps > 1 && width % (4 * kLine) == 0;  // whole lines
  const int64_t ofLast = !shared ? 4 : storesLast() ? 3 : 2;   // quarters
  const int64_t rank = sweeps - 1 - sweep;
  if (m_ < 0 || !digits_.prefetchRows || rank > (shared ? 1 : 0)) {
    return;
  }
  const int64_t quarters = rank == 0 ? ofLast : 4 - ofLast;
  const IntExpr first = rank == 0 ? floorDiv(axes_.N * (4 - ofLast), 4) : IntExpr(0);
  const int64_t part = width / 4 * quarters;
  prefetch(axes_.dims(c_, row() + 1, coord(k_), first + floorDiv(coord(n_), width) * part), part, axes_.m);
}

void RowWriter::prefetchPointwise() {
  if (digits_.prefetchRows) {
    prefetchNextRow();
  } else if (digits_.prefetchAhead > 0) {
    prefetch(axes_.dims(c_, coord(m_), 0, coord(n_) + digits_.prefetchAhead), stepWidth(digits_.n), {});
  }
}

}  // namespace meshfuse
