// Reductions through a scratch row, and partial results of parts, which the last part to arrive combines.
#include "ir/fusion.h"
#include "schedule/row_writer.h"

#include <fmt/core.h>

#include "base/ranges.h"
#include "base/rounding.h"
#include "digits/row_major.h"
#include "schedule/extents.h"

namespace meshfuse {

int64_t RowWriter::scratchRow(std::string name, DataType dtype, const IntExpr& width) {
  return builder_.tensor({.name = std::move(name),
                          .dtype = dtype,
                          .memory = tile::Memory::Scratch,
                          .extents = {width},
                          .strides = {1},
                          .alignment = 64});
}

// A row of scratch for each reduction, as wide as one part of n.
std::vector<int64_t> RowWriter::scratchRows(const std::vector<const Expr*>& exprs, const std::string& name) {
  const IntExpr width = productOf(builder_.program().spaces[space_].axes[n_].digits, [](const tile::Digit& d) {
    return d.level == tile::Level::Part ? IntExpr(1) : d.size;
  });
  return mapped(indices(exprs),
                [&](int64_t i) { return scratchRow(fmt::format("{}{}", name, i), accumulatorOf(exprs[i]), width); });
}

std::vector<tile::Index> RowWriter::inScratch() const {
  const IntExpr base = sumOf(builder_.program().spaces[space_].axes[n_].digits, [](const tile::Digit& d) {
    return d.level == tile::Level::Part ? IntExpr::symbol(d.symbol, {.lower = 0}) * d.stride : IntExpr(0);
  });
  return {{coord(n_) - base}};
}

void RowWriter::startRows(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& rows) {
  over(n_, [&] {
    for (int64_t i = 0; i < std::ssize(exprs); i++) {
      builder_.store(rows[i], inScratch(), startOf(exprs[i], digitSet(n_)));
    }
  });
}

void RowWriter::addRows(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& to,
                        const std::vector<int64_t>& from) {
  over(n_, [&] {
    for (int64_t i = 0; i < std::ssize(exprs); i++) {
      ValueId sum = builder_.load(to[i], inScratch(), space_);
      builder_.store(to[i], inScratch(), combine(exprs[i], sum, builder_.load(from[i], inScratch(), space_)));
    }
  });
}

// Adds the operands at one position of n, over the digits of k, to the sums in `rows`.
void RowWriter::addToRows(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& rows) {
  for (int64_t i = 0; i < std::ssize(exprs); i++) {
    ValueId x = spread(exprs[i], operandOf(exprs[i]), digitSet(k_));
    ValueId part = reduced(exprs[i], x, digitSet(k_));
    builder_.store(rows[i], inScratch(), combine(exprs[i], builder_.load(rows[i], inScratch(), space_), part));
  }
}

// Sums over serial digits of an axis, kept in `rows`, to which each `step` adds. Each block of all but the outermost digit has rows of its
// own, named `block`.
void RowWriter::sumInScratch(const std::vector<const Expr*>& exprs, int64_t axis, std::span<const int64_t> digits,
                             const std::vector<int64_t>& rows, const std::string& block, const AddTo& step) {
  startRows(exprs, rows);
  if (digits.size() > 1) {
    const std::vector<int64_t> ofBlock = scratchRows(exprs, block);
    over(axis, digits.first(1), [&] {
      sumInScratch(exprs, axis, digits.subspan(1), ofBlock, block + "b", step);
      addRows(exprs, rows, ofBlock);
    });
    return;
  }
  over(axis, digits, [&] { step(rows); });
}

void RowWriter::outerInScratch() {
  const std::vector<const Expr*> exprs = ofStage(0);
  const std::vector<int64_t> rows = scratchRows(exprs, "e");
  over(m_, [&] {
    sumInScratch(exprs, k_, serialDigits(k_), rows, "b",
                 [&](const std::vector<int64_t>& to) { over(n_, [&] { addToRows(exprs, to); }); });
    if (digits_.split) {
      combineRows(exprs, rows);
      return;
    }
    over(n_, [&] {
      for (int64_t i = 0; i < std::ssize(exprs); i++) {
        bindResult(exprs[i], builder_.load(rows[i], inScratch(), space_));
      }
      storeOutputs(Outputs::OfRows);
    });
  });
}

int64_t RowWriter::workspace(tile::TensorParam param) {
  param.memory = tile::Memory::Workspace;
  param.strides = rowMajorStrides(param.extents);
  param.alignment = 64;
  plan_.slots.push_back({nullptr, std::ssize(plan_.workspaces)});
  plan_.workspaces.push_back({param.dtype, product(param.extents), param.zeroed});
  return builder_.tensor(std::move(param));
}

// A workspace for each reduction: its result in each part, at `extent` places.
std::vector<int64_t> RowWriter::partialResults(const std::vector<const Expr*>& exprs, const IntExpr& extent) {
  return mapped(indices(exprs), [&](int64_t i) {
    return workspace(
        {.name = fmt::format("w{}", i), .dtype = accumulatorOf(exprs[i]), .extents = {digits_.grid[0].count, extent}});
  });
}

void RowWriter::combineRows(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& rows) {
  const IntExpr columns = axes_.N;
  const std::vector<int64_t> partials = partialResults(exprs, columns);
  over(n_, [&] {
    for (int64_t i = 0; i < std::ssize(exprs); i++) {
      builder_.store(partials[i], {{part()}, {coord(n_)}}, builder_.load(rows[i], inScratch(), space_));
    }
  });
  finish(exprs, partials, {{"c", columns, lastDigits()}});
}

// Digits of one worker over the whole of n.
std::vector<tile::Builder::DigitSpec> RowWriter::lastDigits() const {
  std::vector<tile::Builder::DigitSpec> result = {{tile::Level::Serial, 0, ""}};
  append(result, filtered(digits_.n, [](const auto& d) { return isInTile(d.level); }));
  return result;
}

// Serial digits of the axis of parts: their sums are the largest, so the last two additions are those of a tree.
static std::vector<tile::Builder::DigitSpec> summingParts(int64_t parts) {
  if (parts <= 4) {
    return {{tile::Level::Serial, 0, ""}};
  }
  std::vector<tile::Builder::DigitSpec> digits = {{tile::Level::Serial, 0, ""}, {tile::Level::Serial, 2, ""}};
  append(digits, summingPart(divideUp(parts, 4), 1, 4));
  return digits;
}

// Digits of one worker over all parts: its threads that were along the reduced axes take turns.
std::vector<tile::Builder::DigitSpec> RowWriter::partDigits() const {
  const std::vector<tile::Builder::DigitSpec> threads =
      filtered(axes_.innerReduced ? digits_.n : digits_.k, [](const auto& d) { return isThread(d.level); });
  const int64_t count = productOf(threads, [](const auto& d) { return d.size.constValue(); });
  std::vector<tile::Builder::DigitSpec> digits = summingParts(divideUp(usualExtent(digits_.grid[0].count), count));
  append(digits, threads);
  return digits;
}

// The last part to arrive combines the results of all parts, in their order, and stores the outputs that follow from them: of columns, if
// the kernel has any, else of rows. `columns`: the axis of the outputs, if there are several. If a second grid dim cuts it, the last part
// of each column block combines these columns.
void RowWriter::finish(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& partials,
                       const std::vector<tile::Builder::AxisSpec>& columns) {
  const bool hasBlocks = digits_.grid.size() > 1;
  const int64_t counter = workspace({.name = "arrived",
                                     .dtype = DataType::Int32,
                                     .extents = {hasBlocks ? digits_.grid[1].count : IntExpr(1)},
                                     .zeroed = true});
  std::vector<tile::Index> block;
  if (hasBlocks) {
    block.push_back({IntExpr::symbol(digits_.grid[1].symbol, {.lower = 0})});
  }
  builder_.lastArriver(counter, std::move(block), [&] {
    std::vector<tile::Builder::AxisSpec> axes = {{"q", digits_.grid[0].count, partDigits()}};
    append(axes, columns);
    const int64_t outerSpace = space_;
    space_ = builder_.space("t", std::move(axes));
    over(columns.empty() ? -1 : 1, [&] {
      const IntExpr column = columns.empty() ? IntExpr(0) : coord(1);
      const uint64_t digits = digitSet(0) | (columns.empty() ? 0 : digitSet(1));
      const auto add = [&](std::span<const ValueId> sums) {
        return mapped(indices(exprs), [&](int64_t i) {
          return combine(exprs[i], sums[i], builder_.load(partials[i], {{coord(0)}, {column}}, space_));
        });
      };
      const std::vector<ValueId> total = inBlocks(0, serialDigits(0), exprs, digits, startsOf(exprs, digits), add);
      for (int64_t i = 0; i < std::ssize(exprs); i++) {
        bindResult(exprs[i], reduced(exprs[i], total[i], digitSet(0)));
      }
      const bool alongN = !columns_.empty() || !axes_.innerReduced;
      const std::vector<IntExpr> dims = alongN ? axes_.dims(c_, 0, 0, column) : axes_.dims(c_, column, 0, 0);
      for (const TensorView* out : group_.outputs) {
        if (columns_.empty() ? isRowOutput(out) : isColumnOutput(out)) {
          storeOutput(out, positionOf(c_, out, dims), tile::Cache::Keep);
        }
      }
    });
    space_ = outerSpace;
  });
}

// Few rows, long reductions: each part sweeps its share of k or n for every row.
void RowWriter::split() {
  const std::vector<const Expr*> exprs = ofStage(0);
  const IntExpr rows = axes_.M;
  const std::vector<int64_t> partials = partialResults(exprs, rows);
  over(m_, [&] {
    const std::vector<ValueId> sums = accumulated(0, [] {});
    for (int64_t i = 0; i < std::ssize(exprs); i++) {
      builder_.store(partials[i], {{part()}, {coord(m_)}}, sums[i]);
    }
  });
  std::vector<tile::Builder::AxisSpec> columns;
  if (m_ >= 0) {
    columns.push_back({"c", rows, {{tile::Level::Serial, 0, ""}}});
  }
  finish(exprs, partials, columns);
}

// Long columns: each part sums its share of k, in registers.
void RowWriter::outerInParts() {
  const std::vector<const Expr*> exprs = ofStage(0);
  const IntExpr columns = axes_.N;
  const std::vector<int64_t> partials = partialResults(exprs, columns);
  const std::vector<ValueId> sums = accumulated(0, [] {});
  for (int64_t i = 0; i < std::ssize(exprs); i++) {
    builder_.store(partials[i], {{part()}, {coord(n_)}}, sums[i]);
  }
  finish(exprs, partials, {{"c", columns, digits_.n}});
}

}  // namespace meshfuse
