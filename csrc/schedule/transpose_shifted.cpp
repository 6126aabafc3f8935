// Transposes whose results have rows that begin within lines, written by whole lines.
//
// A line has the end of one square, as it was turned, and the beginning of the next one along m:
//
//   line k of a row = shift(square k - 1, square k) by the elements of the row's first line that belong to the row before
//
// A block is one square high. The last squares lie in scratch, one for each strip. A part begins with a block that is only kept there. The
// lines at the ends of rows, which have masks, are gathered one by one: code for another square would take longer to compile.
#include <fmt/core.h>

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
  const IntExpr squares = floorDiv(axes_.M, rows);  // whole ones
  Specs blocks = partDigit((squares - 1) * rows, rows * blocks_.inPart, "p1");
  const IntExpr part = blocks.empty() ? IntExpr(0) : IntExpr::symbol("p1", factsBelow(blocks[0].size));
  const IntExpr parts = blocks.empty() ? IntExpr(1) : blocks[0].size;
  blocks.push_back({Level::Serial, blocks_.inPart + 1, "block"});
  const IntExpr block = IntExpr::symbol("block", factsBelow(blocks_.inPart + 1));
  const IntExpr firstRow = (part * blocks_.inPart + block) * rows;
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
    builder_.when({{firstRow + rows - 1, axes_.M}}, [&] {
      loop(read_.id, 1, serial(read_, 1, "ns"), [&] {
        loop(read_.id, 0, serial(read_, 0, "ms"), [&] {
          shiftSquare(scratch, {{0, block}});
          if (fetchesRows_) {
            prefetchNext();
          }
        });
      });
    });
  });
  builder_.when({{part, 1}}, [&] { writeEnd("head", 0, 1); });
  builder_.when({{parts - 2, part}}, [&] { writeEnd("tail", squares * rows, 2); });
}

// Keeps a square, and writes the lines that it completes where `isNext` holds: a square before it has been kept.
void TransposeWriter::shiftSquare(const std::vector<int64_t>& scratch, std::vector<tile::Pred> isNext) {
  const IntExpr phase = mod(offsetInOutput(write_.n), lead_);
  const std::vector<tile::Index> place = {{convert_.n - corner(read_, 1, {})}, {builder_.coord(convert_.id, 0)}};
  const std::vector<ValueId> squares = mapped(axes_.exchanged, [&](const TensorView* tensor) {
    return builder_.convert(lowering_.value(tensor, position(tensor, read_), read_.id), convert_.id);
  });
  builder_.when(std::move(isNext), [&] {
    lowering_.pushScope();
    for (int64_t k : indices(axes_.exchanged)) {
      const ValueId before = builder_.load(scratch[k], place, convert_.id);
      lowering_.provide(axes_.exchanged[k], position(axes_.exchanged[k], write_), write_.id,
                        builder_.shift(before, squares[k], phase));
    }
    const IntExpr line = floorDiv(offsetInOutput(write_.n), lead_) * lead_ + convert_.m;
    const ValueId value = lowering_.value(unaligned_, position(unaligned_, write_), write_.id);
    builder_.store(lowering_.tensorParam(unaligned_), {{line}}, value, {.cache = tile::Cache::Once});
    lowering_.popScope();
  });
  for (int64_t k : indices(axes_.exchanged)) {
    builder_.store(scratch[k], place, squares[k]);
  }
}

// Some lines of each row of the result, from the one on that has the element m = `first` if the row begins with a line.
void TransposeWriter::writeEnd(const std::string& name, const IntExpr& first, int64_t lines) {
  const tile::Digit& part = builder_.program().spaces[read_.id].axes[1].digits[0];
  Specs ofN;
  if (part.level == Level::Part) {
    ofN.push_back({part.level, part.size, part.symbol});
  }
  ofN.push_back({Level::Serial, blocks_.columns});
  const int64_t serial = std::ssize(ofN) - 1;
  Space at;
  at.id = builder_.space(
      name, {{fmt::format("n_{}", name), axes_.N, std::move(ofN)},
             {fmt::format("m_{}", name), lines * lead_, {{Level::Serial, lines}, {Level::Vector, lead_}}}});
  const IntExpr place = builder_.coord(at.id, 1) + first;
  at.n = builder_.coord(at.id, 0);
  at.m = place - mod(offsetInOutput(at.n), lead_);
  const std::vector<tile::Pred> inRow = {{-1, at.m}, {at.m, axes_.M}};
  loop(at.id, 0, serial, [&] {
    loop(at.id, 1, 0, [&] {
      lowering_.loadWithin(inRow);
      const ValueId value = lowering_.value(unaligned_, position(unaligned_, at), at.id);
      lowering_.loadWithin({});
      const IntExpr line = floorDiv(offsetInOutput(at.n), lead_) * lead_ + place;
      builder_.store(lowering_.tensorParam(unaligned_), {{line}}, value, {.where = inRow});
    });
  });
}

}  // namespace meshfuse
