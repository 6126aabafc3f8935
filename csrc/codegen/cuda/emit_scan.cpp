// Running totals. Each thread adds up its segment and keeps the totals on the way; one thread of each line combines the totals of the segments,
// one after the other, in shared memory; then each thread combines what is before its segment with its own totals.
//
//   line of S segments in shared memory: the total of each segment, then what was before the tile
//   after the exchange:                  what is before each segment, then the total of the line
#include <algorithm>
#include <array>
#include <cstdint>

#include "base/ranges.h"
#include "base/rounding.h"
#include "codegen/cuda/emitter.h"
#include "codegen/cuda/point_text.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

constexpr int64_t kTotalsAtOnce = 16;  // that are read before they are combined

}  // namespace

// `total` combined with `x`; both are names.
std::string Emitter::scanned(Combiner combiner, DataType wide, const std::string& total, const std::string& x) {
  if (isFloatingPoint(wide) && combiner != Combiner::Sum) {  // of equal elements the first, and NaN stays
    return fmt::format("{0} == {0} && !({0} {2} {1}) ? {1} : {0}", total, x, combiner == Combiner::Max ? ">=" : "<=");
  }
  return unwrapped(pointText(combineOp(combiner, wide), wide, Precision::Full, std::array{total, x}, s_.uses));
}

// Adds the elements of each segment to `total`, which begins with the identity; `then` follows each element.
void Emitter::addSegments(ValueId id, const Tile& total, const std::function<void()>& then) {
  const Value& v = value(id);
  const std::string none = identityText(v.combiner, total.dtype);
  nest(v.space, total.digits, {}, {.element = [&](Texts) { assign(total, none); }});
  const std::string condition =
      conditionText(openPredicates(v.space, v.digits, {}, {}, [&](int64_t a) { return a == v.param; }));
  const auto add = [&](Texts t) {
    const std::string x = s_.names.fresh("x");
    const std::string own = castText(t[0], v.dtype, total.dtype, s_.uses);
    line(fmt::format("const {} {} = {};", registerType(total.dtype), x,
                     condition.empty() ? unwrapped(own) : fmt::format("{} ? {} : {}", condition, own, none)));
    assign(total, scanned(v.combiner, total.dtype, element(total), x));
    then();
  };
  nest(v.space, v.digits, std::span(v.operands).first(1), {.element = add});
}

void Emitter::scan(ValueId id) {
  const Value& v = value(id);
  const uint64_t along = axisDigits(space(v.space), v.param);
  const auto wideTile = [&](std::string_view stem) {
    Tile t{.name = s_.names.fresh(fmt::format("{}{}", stem, id)),
           .space = v.space,
           .digits = v.digits & ~along,
           .dtype = totalType(v.combiner, v.dtype),
           .elements = countOf(geometry_.registers(v.space, v.digits & ~along))};
    declare(t);
    return t;
  };
  const Tile before = wideTile("before");
  const auto end = std::ranges::find_if(indices(p_.values), [&](ValueId i) {
    return value(i).kind == ValueKind::ScanTotal && value(i).operands[0] == id && usage_.stored[i];
  });
  const ValueId whole = end == indices(p_.values).end() ? kNone : *end;
  const Tile total = wideTile("total");
  const Tile result = declaredTile("t", id);
  const auto after = [&](const Tile& own) { return scanned(v.combiner, total.dtype, element(before), element(own)); };
  const auto finish = [&](const Tile& own) {
    assign(result, castText(fmt::format("({})", after(own)), total.dtype, v.dtype, s_.uses));
  };
  s_.tiles[id] = result;
  if (geometry_.threads(v.space, v.digits & along).empty()) {
    fill(before, v.operands[1]);
    addSegments(id, total, [&] { finish(total); });
    if (whole != kNone) {
      nest(v.space, total.digits, {}, {.element = [&](Texts) { assign(before, after(total)); }});
      s_.tiles[whole] = before;
    }
    return;
  }
  Tile own = result;
  if (total.dtype != v.dtype) {
    own.name = s_.names.fresh(fmt::format("own{}", id));
    own.dtype = total.dtype;
    declare(own);
  }
  addSegments(id, total, [&] { assign(own, element(total)); });
  exchangeTotals(id, total, before, whole);
  nest(v.space, v.digits, {}, {.element = [&](Texts) { finish(own); }});
}

// From the totals of all segments what is before each, and in `whole`, unless it is kNone, the total of the line.
void Emitter::exchangeTotals(ValueId id, const Tile& total, const Tile& before, ValueId whole) {
  const Value& v = value(id);
  const DataType wide = total.dtype;
  const std::vector<DigitInfo> segments = geometry_.threads(v.space, v.digits & axisDigits(space(v.space), v.param));
  std::vector<DigitInfo> lines = geometry_.registers(v.space, total.digits);
  append(lines, geometry_.threads(v.space, total.digits));
  const int64_t count = countOf(segments);
  const int64_t pitch = count + 1;  // odd: neighbouring lines lie in different banks
  const std::string slot = s_.arena.alternate("kTotals", countOf(lines) * pitch * dataTypeSize(wide));
  const auto address = [&](const IntExpr& of, const IntExpr& segment) {
    return fmt::format("{} + {}", slot, text((of * pitch + segment) * dataTypeSize(wide)));
  };
  beforeWrite(slot);
  const auto write = [&](Texts t) {
    line(sharedStore(wide, address(positionOf(lines), positionOf(segments)), element(total)));
    open(fmt::format("if ({} == 0)", text(positionOf(segments))));
    line(sharedStore(wide, address(positionOf(lines), count), t[0]));
    close();
  };
  when(joined(replicaConditions(v.space, v.digits), " && "),
       [&] { nest(v.space, total.digits, std::span(v.operands).subspan(1, 1), {.element = write}); });
  beforeRead(slot);
  chainTotals(id, countOf(lines), count, address);
  s_.arena.open.written.insert(slot);
  beforeRead(slot);
  const auto read = [&](const Tile& to, const IntExpr& segment) {
    nest(v.space, total.digits, {},
         {.element = [&](Texts) { assign(to, sharedLoad(wide, address(positionOf(lines), segment))); }});
  };
  read(before, positionOf(segments));
  if (whole != kNone) {
    const Tile result = declaredTile("whole", whole);
    read(result, count);
    s_.tiles[whole] = result;
  }
}

// One thread of each line replaces the totals of its segments by what is before them.
void Emitter::chainTotals(ValueId id, int64_t lines, int64_t segments,
                          const std::function<std::string(const IntExpr& line, const IntExpr& segment)>& address) {
  const Value& v = value(id);
  const DataType wide = totalType(v.combiner, v.dtype);
  const std::string_view type = registerType(wide);
  const std::string own = s_.names.fresh("line");
  const std::string carry = s_.names.fresh("carry");
  const std::string first = s_.names.fresh("first");
  const std::string j = s_.names.fresh("j");
  const std::string part = s_.names.fresh("part");
  const IntExpr ownLine = IntExpr::symbol(own, {0, lines - 1, 1});
  const IntExpr segment = IntExpr::symbol(first, {0, segments - 1, 1}) + IntExpr::symbol(j, {0, segments - 1, 1});
  // Segments beyond the bound have nothing to add, and nothing is before them.
  const Axis& axis = space(v.space).axes[v.param];
  const int64_t ofSegment = countOf(geometry_.registers(v.space, v.digits & axisDigits(space(v.space), v.param)));
  int64_t used = segments;
  if (axis.bound.isConst()) {
    used = std::min(used, divideUp(axis.bound.constValue(), ofSegment));
  }
  const int64_t atOnce = std::min(segments, kTotalsAtOnce);
  use("thread_index");
  open(lines > p_.threads()
           ? fmt::format("for (int {0} = threadIndex(); {0} < {1}; {0} += {2})", own, lines, p_.threads())
           : fmt::format("if (const int {0} = threadIndex(); {0} < {1})", own, lines));
  line(fmt::format("{} {} = {};", type, carry, sharedLoad(wide, address(ownLine, segments))));
  line("#pragma unroll 1");
  open(fmt::format("for (int {0} = 0; {0} < {1}; {0} += {2})", first, used, atOnce));
  line(fmt::format("{} {}[{}];", type, part, atOnce));
  line("#pragma unroll");
  line(fmt::format("for (int {0} = 0; {0} < {1}; ++{0}) {2}[{0}] = {3};", j, atOnce, part,
                   sharedLoad(wide, address(ownLine, segment))));
  line("#pragma unroll");
  open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", j, atOnce));
  line(sharedStore(wide, address(ownLine, segment), carry));
  line(fmt::format("{} = {};", carry, scanned(v.combiner, wide, carry, fmt::format("{}[{}]", part, j))));
  close();
  close();
  line(sharedStore(wide, address(ownLine, segments), carry));
  close();
}

}  // namespace meshfuse::cuda
