// A change of layout: written to shared memory by the digits of one space, read back by those of another.
//
//   rows of `inner` elements, `pitch` apart; the pitch is padded by what makes the bank conflicts of both sides fewest
#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "codegen/cuda/emitter.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

// One side of the exchange: element offsets over the digits of a space.
struct Side {
  int64_t space;
  uint64_t digits;
  std::vector<IntExpr> coordinates;  // of each converted axis, within the worker's tile
};

// Adds an axis to a side; how many positions it spans.
int64_t addAxis(Side& side, const Geometry& geometry, int64_t axis) {
  IntExpr sum = 0;
  int64_t extent = 1;
  for (const DigitInfo& d : geometry.digits(side.space)) {
    if (d.axis == axis && d.size > 1) {
      sum += d.value() * d.stride;
      extent = std::max(extent, d.stride.constValue() * d.size);
    }
  }
  side.coordinates.push_back(sum);
  return extent;
}

// Offset of an element in rows of `inner`, `pitch` apart.
IntExpr flat(const Side& side, const std::vector<int64_t>& extents, size_t inner, int64_t pitch) {
  IntExpr offset = side.coordinates[inner];
  int64_t weight = pitch;
  for (size_t a = extents.size(); a-- > 0;) {
    if (a != inner) {
      offset += side.coordinates[a] * weight;
      weight *= extents[a];
    }
  }
  return offset;
}

// The vector size of the side if its vector is along the inner axis, else 1.
int64_t vectorWidthOf(const Side& side, const Geometry& geometry, size_t inner, int64_t extent, int64_t size) {
  std::optional<DigitInfo> vector = geometry.vector(side.space, side.digits);
  if (!vector) {
    return 1;
  }
  std::optional<LinearForm> form = side.coordinates[inner].linearIn(vector->symbol);
  int64_t width = vector->size;
  bool fits = form && form->slope.isConst(1) && width * size >= 4 && extent % width == 0;
  return fits && form->rest.divisibleBy(std::min(width, 16 / size)) ? width : 1;
}

// 128-byte rounds that 32 lanes need to touch their elements, over the fewest that could do.
double conflictFactor(const IntExpr& offset, const std::vector<DigitInfo>& lanes, int64_t bytes) {
  std::array<std::set<int64_t>, 32> banks;
  std::set<int64_t> words;
  for (int64_t lane = 0; lane < 32; lane++) {
    int64_t at = offset.evaluate([&](std::string_view symbol) -> std::optional<int64_t> {
      auto d = std::ranges::find(lanes, symbol, &DigitInfo::symbol);
      return d == lanes.end() ? 0 : lane / d->weight % d->size;
    });
    for (int64_t word = at * bytes / 4; word <= (at * bytes + bytes - 1) / 4; word++) {
      banks[word % 32].insert(word);
      words.insert(word);
    }
  }
  size_t rounds = std::ranges::max(mapped(banks, [](const std::set<int64_t>& bank) { return bank.size(); }));
  return static_cast<double>(rounds) / (static_cast<double>((words.size() + 31) / 32));
}

}  // namespace

// The offsets of both sides in elements, how wide they may move, and the size of the whole.
Exchange Emitter::planExchange(ValueId id) const {
  const Value& v = value(id);
  const Value& from = value(v.operands[0]);
  std::vector<int64_t> axes;
  std::vector<int64_t> extents;
  Side writer{.space = from.space, .digits = 0, .coordinates = {}};
  Side reader{.space = v.space, .digits = v.digits, .coordinates = {}};
  for (int64_t a = 0; a < std::ssize(space(from.space).axes); a++) {
    if ((from.digits & axisDigits(space(from.space), a)) == 0) {
      continue;
    }
    writer.digits |= axisDigits(space(from.space), a);
    int64_t here = addAxis(writer, geometry_, a);
    int64_t there = addAxis(reader, geometry_, a);
    invariant(
        here == there,
        "[codegen cuda] kernel {}: axis {} of a convert spans {} positions on one side, {} on the other; give both "
        "the same",
        p_.name, space(from.space).axes[a].name, here, there);
    axes.push_back(a);
    extents.push_back(here);
  }
  Exchange e{.writerDigits = writer.digits, .elements = 1};
  if (extents.empty()) {
    return e;
  }
  // The axis that the reader walks along its vectors, or its lanes, is contiguous in shared memory.
  size_t inner = extents.size() - 1;
  for (const DigitInfo& d : geometry_.digits(v.space)) {
    bool fastest = d.size > 1 && (d.level == Level::Vector || (d.level == Level::Lane && d.weight == 1));
    if (fastest && contains(axes, d.axis)) {
      inner = positionIn(axes, d.axis);
    }
  }
  auto lanesOf = [&](const Side& side) { return geometry_.onLevel(side.space, side.digits, Level::Lane); };
  int64_t size = dataTypeSize(v.dtype);
  e.writeWidth = vectorWidthOf(writer, geometry_, inner, extents[inner], size);
  e.readWidth = vectorWidthOf(reader, geometry_, inner, extents[inner], size);
  // Vectors stay whole: the padding is a multiple of both widths.
  int64_t unit = std::max(std::min(e.readWidth, 16 / size), std::min(e.writeWidth, 16 / size));
  int64_t pitch = extents[inner];
  double best = 0;
  for (int64_t pad = 0; pad <= 16 && extents.size() > 1; pad += unit) {
    int64_t padded = extents[inner] + pad;
    double cost = conflictFactor(flat(writer, extents, inner, padded), lanesOf(writer), size * e.writeWidth) +
                  conflictFactor(flat(reader, extents, inner, padded), lanesOf(reader), size * e.readWidth);
    if (best == 0 || cost < best) {
      best = cost;
      pitch = padded;
    }
  }
  e.write = flat(writer, extents, inner, pitch);
  e.read = flat(reader, extents, inner, pitch);
  extents[inner] = pitch;
  e.elements = productOf(extents);
  return e;
}

void Emitter::convert(ValueId id) {
  const Value& v = value(id);
  invariant(p_.cluster() == 1, "[codegen cuda] kernel {}: a convert within a cluster is not supported; use one block",
            p_.name);
  Exchange e = planExchange(id);
  if (e.writerDigits == 0) {  // the same everywhere
    Tile tile = declaredTile("t", id);
    fill(tile, v.operands[0]);
    s_.tiles[id] = tile;
    return;
  }
  std::string slot = s_.arena.alternate("kTile", e.elements * dataTypeSize(v.dtype));
  beforeWrite(slot);
  exchangeOut(id, e, slot);
  beforeRead(slot);
  exchangeIn(id, e, slot);
}

namespace {

std::string byteOffset(const std::string& slot, const std::string& elements, int64_t size) {
  return elements == "0" ? slot : fmt::format("{} + ({})*{}", slot, elements, size);
}

}  // namespace

void Emitter::exchangeOut(ValueId id, const Exchange& e, const std::string& slot) {
  uint64_t digits = e.writerDigits;
  ValueId operand = value(id).operands[0];
  const Value& from = value(operand);
  int64_t size = dataTypeSize(from.dtype);
  auto tile = s_.tiles.find(operand);
  bool whole = e.writeWidth > 1 && tile != s_.tiles.end() && tile->second.digits == digits;
  std::optional<DigitInfo> vector = whole ? geometry_.vector(from.space, digits) : std::nullopt;
  auto write = [&](Texts t) {
    std::string to = byteOffset(slot, text(vector ? atZero(e.write, {vector->symbol}) : e.write), size);
    line(vector ? sharedVector(Direction::Store, from.dtype, e.writeWidth, to, vectorAddress(tile->second))
                : sharedStore(from.dtype, to, fmt::format("({})({})", storageType(from.dtype), unwrapped(t[0]))));
  };
  when(joined(replicaConditions(from.space, digits), " && "), [&] {
    nest(from.space, digits & ~(vector ? vector->bit : 0), std::span(&operand, whole ? 0 : 1), {.element = write});
  });
}

void Emitter::exchangeIn(ValueId id, const Exchange& e, const std::string& slot) {
  const Value& v = value(id);
  int64_t size = dataTypeSize(v.dtype);
  Tile tile = declaredTile("t", id);
  std::optional<DigitInfo> vector = e.readWidth > 1 ? geometry_.vector(v.space, v.digits) : std::nullopt;
  auto read = [&](Texts) {
    std::string from = byteOffset(slot, text(vector ? atZero(e.read, {vector->symbol}) : e.read), size);
    if (vector) {
      line(sharedVector(Direction::Load, v.dtype, e.readWidth, vectorAddress(tile), from));
    } else {
      assign(tile, sharedLoad(v.dtype, from));
    }
  };
  nest(v.space, v.digits & ~(vector ? vector->bit : 0), {}, {.element = read});
  s_.tiles[id] = tile;
}

}  // namespace meshfuse::cuda
