// A change of layout: written to shared memory by the digits of one space, read back by those of another.
//
//   rows of `inner` elements, `pitch` apart, with a gap of `skew` elements after every `group` rows
//   where a thread has a run of neighbours, in several registers: also a gap of `gap` elements after every kChunkBytes of a row
//
// All are chosen so that the lanes of a warp, when they write and when they read, ask for one word of each bank at a time.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <numeric>
#include <utility>

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

constexpr int64_t kChunkBytes = 128;  // one word of each bank

// Where the rows lie in shared memory.
struct RowPlaces {
  int64_t pitch = 0;
  int64_t group = 1;
  int64_t skew = 0;
  int64_t chunk = 1;  // elements between gaps
  int64_t gap = 0;
};

// Whether lanes are further apart along an axis than the vectors of a thread.
bool hasRuns(const Side& side, const Geometry& geometry, int64_t axis) {
  const auto strides = [&](Level level) {
    return mapped(
        filtered(geometry.onLevel(side.space, side.digits, level), [&](const DigitInfo& d) { return d.axis == axis; }),
        [](const DigitInfo& d) { return d.stride.constValue(); });
  };
  const std::vector<int64_t> lanes = strides(Level::Lane);
  const std::vector<int64_t> repeats = strides(Level::Repeat);
  return !lanes.empty() && !repeats.empty() && std::ranges::min(repeats) < std::ranges::min(lanes);
}

// The number of whole chunks before an element of a row: digits are powers of two, so one at most lies across the size of a chunk.
IntExpr chunksBefore(const Side& side, const Geometry& geometry, int64_t axis, int64_t chunk) {
  IntExpr chunks = 0;
  for (const DigitInfo& d : geometry.digits(side.space)) {
    if (d.axis != axis || d.size == 1) {
      continue;
    }
    const int64_t stride = d.stride.constValue();
    if (stride >= chunk) {
      chunks += d.value() * (stride / chunk);
    } else if (stride * d.size > chunk) {
      chunks += floorDiv(d.value(), chunk / stride);
    }
  }
  return chunks;
}

// The number of an element's row: of its position along all axes but the inner one.
IntExpr rowOf(const Side& side, const std::vector<int64_t>& extents, int64_t inner) {
  IntExpr row = 0;
  int64_t weight = 1;
  for (int64_t a = std::ssize(extents) - 1; a >= 0; a--) {
    if (a != inner) {
      row += side.coordinates[a] * weight;
      weight *= extents[a];
    }
  }
  return row;
}

// Offset of an element. `axis`: the inner one in its space.
IntExpr flat(const Side& side, const Geometry& geometry, const std::vector<int64_t>& extents, size_t inner,
             int64_t axis, const RowPlaces& rows) {
  const IntExpr row = rowOf(side, extents, inner);
  return side.coordinates[inner] + row * rows.pitch +
         (rows.skew == 0 ? IntExpr(0) : floorDiv(row, rows.group) * rows.skew) +
         (rows.gap == 0 ? IntExpr(0) : chunksBefore(side, geometry, axis, rows.chunk) * rows.gap);
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

// The elements that the lanes of a warp ask for at once, for each element of the vector: row, and position in it.
struct Requests {
  struct Place {
    int64_t row, inner;
  };
  std::vector<std::array<Place, 32>> ofElement;
  std::vector<Place> steps;  // of the other digits, by which all lanes move together
};

Requests requestsOf(const Side& side, const Geometry& geometry, const std::vector<int64_t>& extents, size_t inner) {
  const std::vector<DigitInfo> lanes = geometry.onLevel(side.space, side.digits, Level::Lane);
  const std::optional<DigitInfo> vector = geometry.vector(side.space, side.digits);
  const IntExpr row = rowOf(side, extents, inner);
  Requests requests;
  for (int64_t element = 0; element < (vector ? vector->size : 1); element++) {
    std::array<Requests::Place, 32>& places = requests.ofElement.emplace_back();
    for (int64_t lane = 0; lane < 32; lane++) {
      const auto valueOf = [&](std::string_view symbol) -> std::optional<int64_t> {
        const auto d = std::ranges::find(lanes, symbol, &DigitInfo::symbol);
        return d != lanes.end() ? lane / d->weight % d->size : vector && symbol == vector->symbol ? element : 0;
      };
      places[lane] = {row.evaluate(valueOf), side.coordinates[inner].evaluate(valueOf)};
    }
  }
  for (const DigitInfo& d : geometry.digits(side.space)) {
    if ((side.digits & d.bit) != 0 && (d.level == Level::Warp || d.level == Level::Repeat) && d.size > 1) {
      const auto valueOf = [&](std::string_view symbol) -> std::optional<int64_t> {
        return symbol == d.symbol ? 1 : 0;
      };
      requests.steps.push_back({row.evaluate(valueOf), side.coordinates[inner].evaluate(valueOf)});
    }
  }
  return requests;
}

// How many rounds a warp needs to move `width` elements of each lane, at worst. One round moves one word of each of the 32 banks; lanes
// move 128 bytes together.
int64_t roundsOf(const Requests& requests, const RowPlaces& rows, int64_t width, int64_t size) {
  const int64_t bytes = width * size;
  const int64_t together = std::min<int64_t>(32, 128 / std::min<int64_t>(bytes, 16));
  // Where words hold several elements, all lanes may begin at any of those.
  const int64_t ofWord = std::max<int64_t>(1, 4 / bytes);
  int64_t step = ofWord;
  for (const auto& [row, inner] : requests.steps) {
    step = std::gcd(step, inner + row * rows.pitch);
  }
  int64_t most = 0;
  for (int64_t k = 0; k < std::ssize(requests.ofElement) * (ofWord / step); k += width) {
    const int64_t element = k % std::ssize(requests.ofElement);
    const int64_t shift = k / std::ssize(requests.ofElement) * step;
    int64_t rounds = 0;
    for (int64_t first = 0; first < 32; first += together) {
      std::vector<int64_t> words;
      for (int64_t lane = first; lane < first + together; lane++) {
        const auto [row, inner] = requests.ofElement[element][lane];
        const int64_t begin =
            (shift + inner + inner / rows.chunk * rows.gap + row * rows.pitch + row / rows.group * rows.skew) * size;
        for (int64_t word = begin / 4; word <= (begin + bytes - 1) / 4; word++) {
          words.push_back(word);
        }
      }
      std::ranges::sort(words);
      const auto repeated = std::ranges::unique(words);
      words.erase(repeated.begin(), repeated.end());
      std::array<int64_t, 32> banks{};
      for (const int64_t word : words) {
        banks[word % 32]++;
      }
      rounds += std::ranges::max(banks);
    }
    most = std::max(most, rounds);
  }
  return most;
}

// Chooses widths and places for the fewest rounds for an element; at equal rounds the widest accesses and the smallest gaps.
RowPlaces placeRows(Exchange& e, const Requests& writer, const Requests& reader, int64_t inner, int64_t rows,
                    int64_t size, bool hasGaps) {
  constexpr int64_t kGroups[] = {1, 4, 8, 16, 32};
  constexpr int64_t kMostPadding = 16;
  const int64_t chunk = hasGaps ? kChunkBytes / size : 1;
  const int64_t gap = hasGaps ? std::max<int64_t>(1, 16 / size) : 0;
  inner += inner / chunk * gap;
  RowPlaces best{.pitch = inner, .chunk = chunk, .gap = gap};
  double least = 0;
  const int64_t widest[] = {e.writeWidth, e.readWidth};
  for (const auto& [w, r] :
       {std::pair{widest[0], widest[1]}, {widest[0], int64_t{1}}, {int64_t{1}, widest[1]}, {int64_t{1}, int64_t{1}}}) {
    // Vectors stay whole: gaps are multiples of both widths.
    const int64_t unit = std::max(std::min(r, 16 / size), std::min(w, 16 / size));
    const auto wordsOfLane = [&](int64_t width) { return std::max<int64_t>(1, width * size / 4); };
    const double ideal = static_cast<double>(wordsOfLane(w)) / static_cast<double>(w) +
                         static_cast<double>(wordsOfLane(r)) / static_cast<double>(r);
    for (const int64_t group : kGroups) {
      for (int64_t skew = group == 1 ? 0 : unit; skew <= (group == 1 || rows <= group ? 0 : kMostPadding);
           skew += unit) {
        for (int64_t pad = 0; pad <= (rows > 1 ? kMostPadding : 0); pad += unit) {
          if (least != 0 && least <= ideal) {
            break;
          }
          const RowPlaces places{inner + pad, group, skew, chunk, gap};
          const double cost = static_cast<double>(roundsOf(writer, places, w, size)) / static_cast<double>(w) +
                              static_cast<double>(roundsOf(reader, places, r, size)) / static_cast<double>(r);
          if (least == 0 || cost < least) {
            least = cost;
            best = places;
            e.writeWidth = w;
            e.readWidth = r;
          }
        }
      }
    }
  }
  return best;
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
  int64_t size = dataTypeSize(v.dtype);
  e.writeWidth = vectorWidthOf(writer, geometry_, inner, extents[inner], size);
  e.readWidth = vectorWidthOf(reader, geometry_, inner, extents[inner], size);
  const int64_t count = productOf(extents) / extents[inner];
  const int64_t axis = axes[inner];
  const bool hasGaps = extents[inner] * size > kChunkBytes &&
                       (hasRuns(writer, geometry_, axis) || hasRuns(reader, geometry_, axis)) &&
                       std::has_single_bit(static_cast<uint64_t>(extents[inner]));
  const RowPlaces rows = placeRows(e, requestsOf(writer, geometry_, extents, inner),
                                   requestsOf(reader, geometry_, extents, inner), extents[inner], count, size, hasGaps);
  e.write = flat(writer, geometry_, extents, inner, axis, rows);
  e.read = flat(reader, geometry_, extents, inner, axis, rows);
  e.elements = (count - 1) * rows.pitch + (count - 1) / rows.group * rows.skew + extents[inner] +
               extents[inner] / rows.chunk * rows.gap;
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
