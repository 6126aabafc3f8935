// Rows brought in ahead, by all sweeps together.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/ranges.h"
#include "base/rounding.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "schedule/extents.h"
#include "schedule/reads.h"
#include "schedule/row_writer.h"

namespace meshfuse {

namespace {

constexpr int64_t kLine = 16;  // elements of a cache line, of the usual type

}  // namespace

// The offset of a position as a line along n; nothing if it is none.
std::optional<LinearForm> RowWriter::lineOf(int64_t param, const Lowering::Position& at) const {
  const std::vector<IntExpr>& strides = builder_.program().tensors[param].strides;
  return sumOf(indices(at), [&](int64_t d) { return at[d].expr * strides[d]; }).linearIn(coord(n_).toString());
}

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
      if (lineOf(param, position(in))) {  // else the reads of a step are scattered
        builder_.prefetch(param, positionOf(c_, in, dims), divideUp(width * dataTypeSize(in->dtype()), 64));
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
    prefetchLookups();
  } else if (digits_.prefetchAhead > 0) {
    prefetchAhead();
  }
}

// The rows of tables that lookups read for the next row. Their numbers are not checked: a prefetch may have any address.
void RowWriter::prefetchLookups() {
  for (const Expr* e : group_.exprs) {
    if (m_ < 0 || (e->kind() != ExprKind::IndexSelect && e->kind() != ExprKind::Embedding)) {
      continue;
    }
    const TensorView* table = e->tensorInputs()[tableOf(*e)];
    const TensorView* number = e->tensorInputs()[indexOf(*e)];
    if (number->definition() != nullptr && number->definition()->kind() == ExprKind::Point &&
        number->definition()->attributes().point == PointOp::CheckedIndex) {
      number = number->definition()->tensorInputs()[0];
    }
    const int64_t dim = e->kind() == ExprKind::Embedding ? 0 : e->attributes().dim;
    const auto result = c_.index.find(e->output()->id());
    if (result == c_.index.end() || !contains(group_.inputs, table) || !contains(group_.inputs, number) ||
        dim + 1 == std::ssize(table->shape())) {
      continue;
    }
    const Lowering::Position at = positionOf(c_, e->tensorOutput(), axes_.dims(c_, row() + 1, coord(k_), coord(n_)));
    const int64_t param = lowering_.tensorParam(table);
    // The dims of an embedding are those of its index, then that of a row.
    Lowering::Position source =
        stretched(table->shape(), e->kind() == ExprKind::Embedding ? Lowering::Position{{IntExpr(0)}, at.back()} : at);
    source[dim].expr = 0;
    const Lowering::Position place = stretched(number->shape(), positionOfIndex(*e, at));
    const std::optional<LinearForm> elements = lineOf(param, source);
    const std::optional<LinearForm> rows = lineOf(lowering_.tensorParam(number), place);
    if (!elements || elements->slope.isConst(0) || !rows || !rows->slope.isConst(0)) {
      continue;  // no step reads a line of one row
    }
    lowering_.loadWithin({{row() + 1, axes_.M}});
    const ValueId next = lowering_.value(number, place, space_);
    lowering_.loadWithin({});
    source[dim].tile = builder_.cast(next, DataType::Int);
    builder_.prefetch(param, source, divideUp(stepWidth(digits_.n) * dataTypeSize(table->dtype()), kLineBytes));
  }
}

// The elements that a flat loop reads some steps later. The distance is added to the index of one dim, which may leave the dim: the indices
// of n + distance in a tensor of several dims have quotients and remainders that need not add up to a linear offset.
void RowWriter::prefetchAhead() {
  for (const TensorView* in : group_.inputs) {
    const auto it = c_.index.find(in->id());
    if (it == c_.index.end() || std::ranges::none_of(axes_.n, [&](int64_t d) { return runsOver(it->second, d); })) {
      continue;
    }
    const int64_t param = lowering_.tensorParam(in);
    Lowering::Position at = position(in);
    const std::optional<LinearForm> line = lineOf(param, at);
    const std::vector<IntExpr>& strides = builder_.program().tensors[param].strides;
    const auto dim = line ? std::ranges::find(strides, line->slope) : strides.end();
    if (dim != strides.end()) {
      at[dim - strides.begin()].expr += digits_.prefetchAhead;
      builder_.prefetch(param, at, divideUp(stepWidth(digits_.n) * dataTypeSize(in->dtype()), 64));
    }
  }
}

}  // namespace meshfuse
