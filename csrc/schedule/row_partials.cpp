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

std::vector<tile::Builder::DigitSpec> RowWriter::summingThreads() const {
  const auto& summed = !columns_.empty() ? digits_.m : axes_.innerReduced ? digits_.n : digits_.k;
  return filtered(summed, [](const auto& d) { return isThread(d.level); });
}

// Digits of one worker over all parts: its threads that were along the reduced axes take turns.
std::vector<tile::Builder::DigitSpec> RowWriter::partDigits() const {
  const std::vector<tile::Builder::DigitSpec> threads = summingThreads();
  const int64_t count = productOf(threads, [](const auto& d) { return d.size.constValue(); });
  std::vector<tile::Builder::DigitSpec> digits = summingParts(divideUp(usualExtent(digits_.grid[0].count), count));
  append(digits, threads);
  return digits;
}

// Adds up the results of parts, along the axis `parts` of a new space; over `columns`, if there are several. `load` reads the result of one part,
// and `use` takes the sums.
void RowWriter::addParts(const std::vector<const Expr*>& exprs, const std::string& space, tile::Builder::AxisSpec parts,
                         const std::vector<tile::Builder::AxisSpec>& columns, const LoadPart& load,
                         const UseSums& use) {
  std::vector<tile::Builder::AxisSpec> axes = {std::move(parts)};
  append(axes, columns);
  const int64_t outerSpace = space_;
  space_ = builder_.space(space, std::move(axes));
  over(columns.empty() ? -1 : 1, [&] {
    const IntExpr column = columns.empty() ? IntExpr(0) : coord(1);
    const uint64_t digits = digitSet(0) | (columns.empty() ? 0 : digitSet(1));
    const auto add = [&](std::span<const ValueId> sums) {
      return mapped(indices(exprs), [&](int64_t i) { return combine(exprs[i], sums[i], load(i, coord(0), column)); });
    };
    const std::vector<ValueId> total = inBlocks(0, serialDigits(0), exprs, digits, startsOf(exprs, digits), add);
    use(mapped(indices(exprs), [&](int64_t i) { return reduced(exprs[i], total[i], digitSet(0)); }), column);
  });
  space_ = outerSpace;
}

// The outputs that follow from the sums of all parts: of columns, if the kernel has any, else of rows.
void RowWriter::storeTotals(const std::vector<const Expr*>& exprs, const std::vector<ValueId>& sums,
                            const IntExpr& column) {
  for (int64_t i = 0; i < std::ssize(exprs); i++) {
    bindResult(exprs[i], sums[i]);
  }
  const bool alongN = !columns_.empty() || !axes_.innerReduced;
  const std::vector<IntExpr> dims = alongN ? axes_.dims(c_, 0, 0, column) : axes_.dims(c_, column, 0, 0);
  for (const TensorView* out : group_.outputs) {
    if (columns_.empty() ? isRowOutput(out) : isColumnOutput(out)) {
      storeOutput(out, positionOf(c_, out, dims), tile::Cache::Keep);
    }
  }
}

int64_t RowWriter::arrivalCounter(const std::string& name, const IntExpr& count) {
  return workspace({.name = name, .dtype = DataType::Int32, .extents = {count}, .zeroed = true});
}

// The last part to arrive combines the results of all parts, in their order, and stores the outputs that follow from them. `columns`: the
// axis of the outputs, if there are several. If a second grid dim cuts it, the last part of each column block combines these columns.
void RowWriter::finish(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& partials,
                       const std::vector<tile::Builder::AxisSpec>& columns) {
  const bool hasBlocks = digits_.grid.size() > 1;
  const IntExpr parts = digits_.grid[0].count;
  const int64_t counter = arrivalCounter("arrived", hasBlocks ? digits_.grid[1].count : IntExpr(1));
  std::vector<tile::Index> block;
  if (hasBlocks) {
    block.push_back({IntExpr::symbol(digits_.grid[1].symbol, {.lower = 0})});
  }
  builder_.lastArriver(counter, std::move(block), [&] {
    addParts(
        exprs, "t", {"q", parts, partDigits()}, columns,
        [&](int64_t i, const IntExpr& q, const IntExpr& column) {
          return builder_.load(partials[i], {{q}, {column}}, space_);
        },
        [&](const std::vector<ValueId>& sums, const IntExpr& column) { storeTotals(exprs, sums, column); });
  });
}

// The last part of each group to arrive combines the results of its group, and the last of all those of the groups: for one alone they are too
// many. The first grid dim counts groups, the second the parts of one. Parts without rows, at the end, store nothing.
void RowWriter::finishGroups(const std::vector<const Expr*>& exprs, const std::vector<ValueId>& sums) {
  const IntExpr groups = digits_.grid[0].count;
  const int64_t ofGroup = digits_.grid[1].count.constValue();
  const IntExpr rowsOfPart =
      productOf(digits_.m, [](const auto& d) { return d.level == tile::Level::Part ? IntExpr(1) : d.size; });
  const IntExpr parts = ceilDiv(axes_.M, rowsOfPart);
  const std::vector<tile::Builder::DigitSpec> threads = summingThreads();
  const int64_t beside = productOf(threads, [](const auto& d) { return d.size.constValue(); });
  const auto results = [&](const char* stem, const IntExpr& count) {
    return mapped(indices(exprs), [&](int64_t i) {
      return workspace(
          {.name = fmt::format("{}{}", stem, i), .dtype = accumulatorOf(exprs[i]), .extents = {count, axes_.N}});
    });
  };
  const std::vector<int64_t> ofParts = results("w", parts);
  const std::vector<int64_t> ofGroups = results("g", groups);
  for (int64_t i = 0; i < std::ssize(exprs); i++) {
    const IntExpr partOfAll = part() * ofGroup + IntExpr::symbol(digits_.grid[1].symbol, {.lower = 0});
    builder_.store(ofParts[i], {{partOfAll}, {coord(n_)}}, sums[i], {.where = {{partOfAll, parts}}});
  }
  const auto add = [&](const std::string& space, tile::Builder::AxisSpec axis, const std::string& column,
                       const std::vector<int64_t>& from, const UseSums& use) {
    append(axis.digits, threads);
    addParts(
        exprs, space, std::move(axis), {{column, axes_.N, digits_.n}},
        [&](int64_t i, const IntExpr& at, const IntExpr& c) {
          return builder_.load(from[i], {{at}, {c}}, space_);
        },
        use);
  };
  std::vector<tile::Builder::DigitSpec> ofOne = {{tile::Level::Part, groups, digits_.grid[0].symbol}};
  append(ofOne, summingPart(ofGroup / beside, 1, usualExtent(groups) * beside));
  builder_.lastArriver(arrivalCounter("arrived", groups), {{part()}}, [&] {
    add("t", {"q", parts, ofOne}, "c", ofParts, [&](const std::vector<ValueId>& sumsOfGroup, const IntExpr& c) {
      for (int64_t i = 0; i < std::ssize(exprs); i++) {
        builder_.store(ofGroups[i], {{part()}, {c}}, sumsOfGroup[i]);
      }
    });
  });
  builder_.lastArriver(arrivalCounter("ended", 1), [&] {
    add("u", {"g", groups, summing(divideUp(usualExtent(groups), beside), 1, beside)}, "e", ofGroups,
        [&](const std::vector<ValueId>& total, const IntExpr& c) { storeTotals(exprs, total, c); });
  });
}

// Sums of columns beside rows that stay in registers: each part sums its rows.
void RowWriter::columnsInRegisters() {
  for (const TensorView* in : group_.inputs) {
    const auto position = c_.index.find(in->id());
    const auto movesAlongRows = [&](int64_t d) { return runsOver(position->second, d); };
    if (position != c_.index.end() && std::ranges::none_of(axes_.m, movesAlongRows)) {
      (void)lowering_.value(in, positionOf(c_, in, here()), space_);  // once for all rows
    }
  }
  const uint64_t all = digitSet(m_) | digitSet(n_);
  const auto addRow = [&](std::span<const ValueId> sums) {
    sweepRow([] {});
    return mapped(indices(columns_), [&](int64_t i) { return combine(columns_[i], sums[i], operandOf(columns_[i])); });
  };
  const std::vector<ValueId> sums = inBlocks(m_, serialDigits(m_), columns_, all, startsOf(columns_, all), addRow);
  finishGroups(columns_,
               mapped(indices(columns_), [&](int64_t i) { return reduced(columns_[i], sums[i], digitSet(m_)); }));
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
