// Transposes whose results have rows that begin within lines, written by whole lines.
//
// A line has the end of one square, as it was turned, and the beginning of the next one along m:
//
//   line k of a row = shift(square k - 1, square k) by the elements of the row's first line that belong to the row before
//
// A block is one square high. The last squares lie in scratch, one for each strip. A part begins with a block that is only kept there.
#include "base/ranges.h"
#include "ir/fusion.h"
#include "schedule/axes.h"
#include "schedule/transpose_writer.h"

namespace meshfuse {

using tile::Level;
using tile::ValueId;

void TransposeWriter::writeShifted() {
  const int64_t v = blocks_.vector;
  const int64_t rows = blocks_.rows;
  const IntExpr reached = axes_.M + lead_ - 1;  // by the lines of all rows
  Specs blocks = partDigit(reached, rows * blocks_.inPart, "p1");
  const IntExpr part = blocks.empty() ? IntExpr(0) : IntExpr::symbol("p1", factsBelow(blocks[0].size));
  const IntExpr parts = blocks.empty() ? IntExpr(1) : blocks[0].size;
  blocks.push_back({Level::Serial, blocks_.inPart + 1, "block"});
  const IntExpr block = IntExpr::symbol("block", factsBelow(blocks_.inPart + 1));
  const IntExpr firstRow = part * (rows * blocks_.inPart) + (block - 1) * rows;
  const Specs outerN = outerDigitsOfN();
  const auto digits = [](Specs outer, Level level, int64_t size) {
    outer.push_back({level, size});
    return outer;
  };
  const Specs stepM = {{Level::Serial, rows / v, "ms"}};
  const int64_t order = builder_.space("t", {{"bt", parts * (blocks_.inPart + 1), blocks}});
  read_ = space("s", "m", rows, digits(stepM, Level::Repeat, v), "n", digits(outerN, Level::Vector, v));
  convert_ = space("u", "mu", rows, digits(stepM, Level::Vector, v), "nu", digits(outerN, Level::Repeat, v));
  corner_ = {firstRow - lead_, corner(read_, 1, {"ns"})};
  read_.m += firstRow;
  convert_.m += firstRow;
  write_ = convert_;
  write_.m = write_.m - mod(offsetInOutput(write_.n), lead_);
  const std::vector<int64_t> scratch = makeScratch();
  loop(order, 0, std::ssize(blocks) - 1, [&] {
    const std::vector<tile::Pred> inRows = {{-1, read_.m}, {read_.m, axes_.M}};
    const std::vector<tile::Pred> inLines = {{-1, write_.m}, {write_.m, axes_.M}};
    shiftBlock(scratch, {{block, 1}}, inRows, {});
    shiftBlock(scratch, {{0, block}, {rows - 1, firstRow}, {firstRow + rows, axes_.M + 1}}, {}, {});
    shiftBlock(scratch, {{0, block}, {firstRow, rows}}, {}, inLines);
    shiftBlock(scratch, {{0, block}, {axes_.M, firstRow + rows}, {firstRow, reached}}, inRows, inLines);
  });
}

// A block where `parts` hold: its rows are read where `rows` hold, and its lines are written where `lines` hold. Only these have masks.
void TransposeWriter::shiftBlock(const std::vector<int64_t>& scratch, std::vector<tile::Pred> parts,
                                 std::vector<tile::Pred> rows, std::vector<tile::Pred> lines) {
  const bool onlyKeeps = lines.empty() && !rows.empty();
  builder_.when(std::move(parts), [&] {
    ends_ = std::move(lines);
    loop(read_.id, 1, serial(read_, 1, "ns"), [&] {
      loop(read_.id, 0, serial(read_, 0, "ms"), [&] {
        lowering_.loadWithin(rows);
        shiftSquare(scratch, onlyKeeps);
        lowering_.loadWithin({});
        if (fetchesRows_) {
          prefetchNext();
        }
      });
    });
  });
}

void TransposeWriter::shiftSquare(const std::vector<int64_t>& scratch, bool onlyKeeps) {
  const IntExpr phase = mod(offsetInOutput(write_.n), lead_);
  const std::vector<tile::Index> place = {{convert_.n - corner(read_, 1, {})}, {builder_.coord(convert_.id, 0)}};
  std::vector<ValueId> squares;
  for (const TensorView* tensor : axes_.exchanged) {
    squares.push_back(builder_.convert(lowering_.value(tensor, position(tensor, read_), read_.id), convert_.id));
  }
  std::vector<ValueId> before;
  for (int64_t k : indices(axes_.exchanged)) {
    if (!onlyKeeps) {
      before.push_back(builder_.load(scratch[k], place, convert_.id));
    }
    builder_.store(scratch[k], place, squares[k]);
  }
  if (onlyKeeps) {
    return;
  }
  lowering_.loadWithin(ends_);
  for (int64_t k : indices(axes_.exchanged)) {
    lowering_.provide(axes_.exchanged[k], position(axes_.exchanged[k], write_), write_.id,
                      builder_.shift(before[k], squares[k], phase));
  }
  const IntExpr line = floorDiv(offsetInOutput(write_.n), lead_) * lead_ + convert_.m;
  const ValueId value = lowering_.value(unaligned_, position(unaligned_, write_), write_.id);
  builder_.store(lowering_.tensorParam(unaligned_), {{line}}, value, {.where = ends_, .cache = tile::Cache::Once});
}

}  // namespace meshfuse
