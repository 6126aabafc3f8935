// Running totals. Each thread adds up its segment and keeps the totals on the way. The lanes of a warp that share a line exchange the totals of
// their segments by shuffles, with lanes at distances 1, 2, 4, ..; each warp writes its total to shared memory, and every thread combines those
// of the warps before its own, one after the other. Then it combines what is before its segment with its own totals.
//
//   line of W warps in shared memory: the total of each warp, at (warp, line)
#include <algorithm>
#include <array>
#include <cstdint>

#include "base/ranges.h"
#include "codegen/cuda/emitter.h"
#include "codegen/cuda/point_text.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

constexpr int64_t kRegisters = 65536;     // of a multiprocessor
constexpr int64_t kRegistersOfScan = 48;  // of a thread: 32 hold the totals of a segment of 16 elements in Double
constexpr int64_t kFewThreads = 64;

bool isLoop(const Stmt& s) { return s.kind == StmtKind::For; }

}  // namespace

// For a scan of whole segments in Double, in one tile, with nothing beside it but casts, the compiler would use 60 registers, where 48 do
// without a spill.
int64_t Emitter::residentBlocks() const {
  const auto isBesideScan = [](const Value& v) {
    using enum ValueKind;
    return v.kind == Const || v.kind == Load || v.kind == Cast || v.kind == Convert || v.kind == Scan;
  };
  const bool isInDouble = std::ranges::any_of(indices(p_.values), [&](ValueId id) {
    const Value& v = value(id);
    return v.kind == ValueKind::Scan && totalType(v.combiner, v.dtype) == DataType::Double && !usage_.coarse[id] &&
           countOf(geometry_.registers(v.space, v.digits)) == 16 &&
           openPredicates(v.space, v.digits, {}, {}, [&](int64_t a) { return a == v.param; }).empty();
  });
  const bool exchanges = std::ranges::any_of(p_.values, [](const Value& v) { return v.kind == ValueKind::Convert; });
  const bool fits = isInDouble && exchanges && p_.threads() > kFewThreads &&
                    std::ranges::all_of(p_.values, isBesideScan) && std::ranges::none_of(p_.body, isLoop);
  return fits ? kRegisters / (kRegistersOfScan * p_.threads()) : 0;
}

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
  const DataType wide = totalType(v.combiner, v.dtype);
  const DataType ofSegment = usage_.coarse[id] ? v.dtype : wide;
  const auto tileOfLines = [&](std::string_view stem, DataType type) {
    Tile t{.name = s_.names.fresh(fmt::format("{}{}", stem, id)),
           .space = v.space,
           .digits = v.digits & ~along,
           .dtype = type,
           .elements = countOf(geometry_.registers(v.space, v.digits & ~along))};
    declare(t);
    return t;
  };
  const Tile before = tileOfLines("before", wide);
  const auto end = std::ranges::find_if(indices(p_.values), [&](ValueId i) {
    return value(i).kind == ValueKind::ScanTotal && value(i).operands[0] == id && usage_.stored[i];
  });
  const ValueId whole = end == indices(p_.values).end() ? kNone : *end;
  Tile total = tileOfLines("total", ofSegment);
  const Tile result = declaredTile("t", id);
  const auto finish = [&](const Tile& own) {
    const std::string first = castText(element(before), wide, ofSegment, s_.uses);
    const std::string sum = scanned(v.combiner, ofSegment, first, element(own));
    assign(result, castText(fmt::format("({})", sum), ofSegment, v.dtype, s_.uses));
  };
  const auto widened = [&] { return castText(element(total), ofSegment, wide, s_.uses); };
  s_.tiles[id] = result;
  if (geometry_.threads(v.space, v.digits & along).empty()) {
    fill(before, v.operands[1]);
    addSegments(id, total, [&] { finish(total); });
    if (whole != kNone) {
      const auto add = [&](Texts) { assign(before, scanned(v.combiner, wide, element(before), widened())); };
      nest(v.space, total.digits, {}, {.element = add});
      s_.tiles[whole] = before;
    }
    return;
  }
  Tile own = result;
  if (ofSegment != v.dtype) {
    own.name = s_.names.fresh(fmt::format("own{}", id));
    own.dtype = ofSegment;
    declare(own);
  }
  addSegments(id, total, [&] { assign(own, element(total)); });
  if (ofSegment != wide) {
    const Tile exact = tileOfLines("wide", wide);
    nest(v.space, total.digits, {}, {.element = [&](Texts) { assign(exact, widened()); }});
    total = exact;
  }
  exchangeTotals(id, total, before, whole);
  nest(v.space, v.digits, {}, {.element = [&](Texts) { finish(own); }});
}

// In threads where the condition holds, `to` becomes `first` combined with `second`; both are names.
void Emitter::combineWhere(const std::string& condition, ValueId id, const Tile& to, const std::string& first,
                           const std::string& second) {
  const Combiner combiner = value(id).combiner;
  std::string sum = scanned(combiner, to.dtype, first, second);
  if (combiner == Combiner::Sum && to.dtype == DataType::Double) {
    use("add_double");
    sum = fmt::format("addDouble({}, {})", first, second);
  }
  open(fmt::format("if ({})", condition));
  assign(to, sum);
  close();
}

// From the totals of all segments what is before each, and in `whole`, unless it is kNone, the total of the line. `total` changes.
void Emitter::exchangeTotals(ValueId id, const Tile& total, const Tile& before, ValueId whole) {
  const Value& v = value(id);
  const uint64_t along = v.digits & axisDigits(space(v.space), v.param);
  const std::vector<DigitInfo> lanes = geometry_.onLevel(v.space, along, Level::Lane);
  const std::vector<DigitInfo> warps = geometry_.onLevel(v.space, along, Level::Warp);
  scanLanes(id, total);
  fill(before, v.operands[1]);
  if (!warps.empty() || whole != kNone) {
    chainWarps(id, total, before, whole);
  }
  if (lanes.empty()) {
    return;
  }
  const std::string ofLanes = s_.names.fresh("lanes");
  const auto add = [&](Texts) {
    line(fmt::format("const {} {} = shuffleUp({}, {}, {});", registerType(total.dtype), ofLanes, element(total),
                     lanes[0].weight, nextSite()));
    combineWhere(text(lanes[0].value()) + " > 0", id, before, element(before), ofLanes);
  };
  nest(v.space, total.digits, {}, {.element = add});
}

// Replaces the total of each segment by that of the segments of this lane and those before it.
void Emitter::scanLanes(ValueId id, const Tile& total) {
  const Value& v = value(id);
  const std::vector<DigitInfo> lanes =
      geometry_.onLevel(v.space, v.digits & axisDigits(space(v.space), v.param), Level::Lane);
  if (lanes.empty()) {
    return;
  }
  const DigitInfo& lane = lanes[0];
  use("shuffle_up");
  const std::string distance = s_.names.fresh("distance");
  const std::string ofLanes = s_.names.fresh("lanes");
  line("#pragma unroll");
  open(fmt::format("for (int {0} = 1; {0} < {1}; {0} *= 2)", distance, lane.size));
  const auto combine = [&](Texts) {
    const IntExpr lanesBefore = IntExpr::symbol(distance, {1, lane.size / 2, 1}) * lane.weight;
    line(fmt::format("const {} {} = shuffleUp({}, {}, {});", registerType(total.dtype), ofLanes, element(total),
                     text(lanesBefore), nextSite()));
    combineWhere(fmt::format("{} >= {}", text(lane.value()), distance), id, total, ofLanes, element(total));
  };
  nest(v.space, total.digits, {}, {.element = combine});
  close();
}

// Combines the totals of the warps before this one into `before`, and those of all warps into `whole`.
void Emitter::chainWarps(ValueId id, const Tile& total, const Tile& before, ValueId whole) {
  const Value& v = value(id);
  const DataType wide = total.dtype;
  const uint64_t along = v.digits & axisDigits(space(v.space), v.param);
  const std::vector<DigitInfo> lanes = geometry_.onLevel(v.space, along, Level::Lane);
  const IntExpr ownWarp = positionOf(geometry_.onLevel(v.space, along, Level::Warp));
  const int64_t count = countOf(geometry_.onLevel(v.space, along, Level::Warp));
  std::vector<DigitInfo> lines = geometry_.registers(v.space, total.digits);
  append(lines, geometry_.threads(v.space, total.digits));
  const std::string slot = s_.arena.alternate("kTotals", countOf(lines) * count * dataTypeSize(wide));
  const auto address = [&](const IntExpr& warp) {
    return fmt::format("{} + {}", slot, text((warp * countOf(lines) + positionOf(lines)) * dataTypeSize(wide)));
  };
  beforeWrite(slot);
  std::vector<std::string> writer = replicaConditions(v.space, v.digits);
  if (!lanes.empty()) {
    writer.push_back(fmt::format("{} == {}", text(lanes[0].value()), lanes[0].size - 1));
  }
  const auto write = [&](Texts) { line(sharedStore(wide, address(ownWarp), element(total))); };
  when(joined(writer, " && "), [&] { nest(v.space, total.digits, {}, {.element = write}); });
  beforeRead(slot);
  const std::string warp = s_.names.fresh("w");
  const std::string ofWarp = s_.names.fresh("ofWarp");
  const auto chain = [&](int64_t warps, const std::function<void()>& combine) {
    line("#pragma unroll");
    open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", warp, warps));
    const auto read = [&](Texts) {
      line(fmt::format("const {} {} = {};", registerType(wide), ofWarp,
                       sharedLoad(wide, address(IntExpr::symbol(warp, {0, count - 1, 1})))));
      combine();
    };
    nest(v.space, total.digits, {}, {.element = read});
    close();
  };
  if (count > 1) {
    const std::string isBefore = fmt::format("{} < {}", warp, text(ownWarp));
    chain(count - 1, [&] { combineWhere(isBefore, id, before, element(before), ofWarp); });
  }
  if (whole != kNone) {  // in a loop of its own: the compiler would need more registers for both sums at once
    const Tile all = declaredTile("whole", whole);
    fill(all, v.operands[1]);
    chain(count, [&] { assign(all, scanned(v.combiner, wide, element(all), ofWarp)); });
    s_.tiles[whole] = all;
  }
}

}  // namespace meshfuse::cuda
