// A change of layout: written to shared memory by the digits of one space, read back by those of another.
//
//   rows of `inner` elements, `pitch` apart; the pitch is padded by what makes the bank conflicts of both sides fewest
#include <algorithm>
#include <array>

#include "base/error.h"
#include "codegen/cuda/emitter.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

// One side of the exchange: element offsets over the digits of a space.
struct Side {
  int space;
  uint64_t digits;
  std::vector<int> axes;             // the converted ones
  std::vector<IntExpr> coordinates;  // of each, within the worker's tile
};

// 128-byte rounds that 32 lanes need to touch their elements, over the fewest that could do.
double conflictFactor(const IntExpr& offset, const std::vector<DigitInfo>& lanes, int64_t bytes) {
  std::array<std::set<int64_t>, 32> banks;
  std::set<int64_t> words;
  for (int lane = 0; lane < 32; lane++) {
    int64_t at = offset.evaluate([&](std::string_view symbol) -> std::optional<int64_t> {
      for (const DigitInfo& d : lanes) {
        if (d.symbol == symbol) {
          return lane / d.weight % d.size;
        }
      }
      return 0;
    });
    for (int64_t word = at * bytes / 4; word <= (at * bytes + bytes - 1) / 4; word++) {
      banks[static_cast<size_t>(word % 32)].insert(word);
      words.insert(word);
    }
  }
  size_t rounds = 0;
  for (const std::set<int64_t>& b : banks) {
    rounds = std::max(rounds, b.size());
  }
  return static_cast<double>(rounds) / (static_cast<double>((words.size() + 31) / 32));
}

}  // namespace

void Emitter::convert(ValueId id) {
  const Value& v = value(id);
  const Value& from = value(v.operands[0]);
  Side writer{from.space, 0, {}, {}};
  Side reader{v.space, v.digits, {}, {}};
  std::vector<int64_t> extents;
  auto local = [&](int space, int axis, int64_t& extent) {
    IntExpr sum = 0;
    extent = 1;
    for (const DigitInfo& d : geometry_.digits(space)) {
      if (d.axis == axis && d.size > 1) {
        sum += IntExpr::symbol(d.symbol, {0, d.size - 1, 1}) * d.stride;
        extent = std::max(extent, d.stride.constValue() * d.size);
      }
    }
    return sum;
  };
  for (int a = 0; a < static_cast<int>(space(from.space).axes.size()); a++) {
    if ((from.digits & axisDigits(space(from.space), a)) == 0) {
      continue;
    }
    int64_t here = 0;
    int64_t there = 0;
    writer.digits |= axisDigits(space(from.space), a);
    writer.coordinates.push_back(local(from.space, a, here));
    reader.coordinates.push_back(local(v.space, a, there));
    invariant(here == there, "[codegen cuda] kernel {}: axis {} of a convert spans {} positions on one side, {} on the other; give both the same",
              p_.name, space(from.space).axes[static_cast<size_t>(a)].name, here, there);
    writer.axes.push_back(a);
    extents.push_back(here);
  }
  invariant(p_.cluster() == 1, "[codegen cuda] kernel {}: a convert within a cluster is not supported; use one block", p_.name);
  if (extents.empty()) {  // the same everywhere
    Tile tile = newTile("t", id);
    declare(tile);
    Hooks hooks;
    hooks.element = [&](std::span<const std::string> t) { assign(tile, t[0]); };
    nest(v.space, v.digits, std::span(&v.operands[0], 1), hooks);
    s_.tiles[id] = tile;
    return;
  }
  // The axis that the reader walks along its vectors, or its lanes, is contiguous in shared memory.
  size_t inner = extents.size() - 1;
  for (const DigitInfo& d : geometry_.digits(v.space)) {
    bool fastest = d.size > 1 && (d.level == Level::Vector || (d.level == Level::Lane && d.weight == 1));
    auto axis = std::find(writer.axes.begin(), writer.axes.end(), d.axis);
    if (fastest && axis != writer.axes.end()) {
      inner = static_cast<size_t>(axis - writer.axes.begin());
    }
  }
  int64_t size = dataTypeSize(v.dtype);
  auto flat = [&](const Side& side, int64_t pitch) {
    IntExpr offset = side.coordinates[inner];
    int64_t weight = pitch;
    for (size_t a = extents.size(); a-- > 0;) {
      if (a != inner) {
        offset += side.coordinates[a] * weight;
        weight *= extents[a];
      }
    }
    return offset;
  };
  std::vector<DigitInfo> writeLanes;
  std::vector<DigitInfo> readLanes;
  for (const DigitInfo& d : geometry_.threads(from.space, writer.digits)) {
    if (d.level == Level::Lane) {
      writeLanes.push_back(d);
    }
  }
  for (const DigitInfo& d : geometry_.threads(v.space, reader.digits)) {
    if (d.level == Level::Lane) {
      readLanes.push_back(d);
    }
  }
  // Vectors stay whole: the pitch is a multiple of the reader's width.
  std::vector<DigitInfo> readRegisters = geometry_.registers(v.space, v.digits);
  std::vector<DigitInfo> writeRegisters = geometry_.registers(from.space, writer.digits);
  auto widthOf = [&](const std::vector<DigitInfo>& registers, const Side& side) -> int64_t {
    if (registers.empty() || registers.back().level != Level::Vector) {
      return 1;
    }
    std::optional<LinearForm> form = side.coordinates[inner].linearIn(registers.back().symbol);
    int64_t width = registers.back().size;
    bool fits = form && form->slope.isConst(1) && width * size >= 4 && extents[inner] % width == 0;
    return fits && form->rest.divisibleBy(std::min(width, 16 / size)) ? width : 1;
  };
  int64_t readWidth = widthOf(readRegisters, reader);
  int64_t writeWidth = widthOf(writeRegisters, writer);
  int64_t unit = std::max(std::min(readWidth, 16 / size), std::min(writeWidth, 16 / size));
  int64_t pitch = extents[inner];
  double best = 0;
  for (int64_t pad = 0; pad <= 16 && extents.size() > 1; pad += unit) {
    double cost = conflictFactor(flat(writer, extents[inner] + pad), writeLanes, size * writeWidth) +
                  conflictFactor(flat(reader, extents[inner] + pad), readLanes, size * readWidth);
    if (best == 0 || cost < best) {
      best = cost;
      pitch = extents[inner] + pad;
    }
  }
  int64_t elements = pitch;
  for (size_t a = 0; a < extents.size(); a++) {
    elements *= a == inner ? 1 : extents[a];
  }
  std::string slot = s_.arena.alternate("kTile", elements * size);
  beforeWrite(slot);
  exchangeOut(id, writer.digits, flat(writer, pitch), slot, writeWidth);
  beforeRead(slot);
  exchangeIn(id, flat(reader, pitch), slot, readWidth);
}

namespace {

std::string byteOffset(const std::string& slot, const std::string& elements, int64_t size) {
  return elements == "0" ? slot : fmt::format("{} + ({})*{}", slot, elements, size);
}

IntExpr atFirst(const IntExpr& e, const std::string& symbol) {
  return e.substitute([&](std::string_view s) -> std::optional<IntExpr> {
    return s == symbol ? std::optional<IntExpr>(0) : std::nullopt;
  });
}

}  // namespace

void Emitter::exchangeOut(ValueId id, uint64_t digits, const IntExpr& offset, const std::string& slot, int64_t width) {
  ValueId operand = value(id).operands[0];
  const Value& from = value(operand);
  int64_t size = dataTypeSize(from.dtype);
  std::string_view type = storageType(from.dtype);
  std::vector<std::string> writer = replicaConditions(from.space, digits);
  if (!writer.empty()) {
    open(fmt::format("if ({})", joined(writer)));
  }
  Hooks hooks;
  auto tile = s_.tiles.find(operand);
  if (width > 1 && tile != s_.tiles.end() && tile->second.digits == digits) {
    DigitInfo vector = geometry_.registers(from.space, digits).back();
    use("shared_store_vector");
    use(wordsSection(from.dtype));
    hooks.element = [&](std::span<const std::string>) {
      line(fmt::format("sharedStoreVector<{}, {}>({}, {}, {});", width, type, byteOffset(slot, text(atFirst(offset, vector.symbol)), size),
                       within(tile->second.name, elementIndex(tile->second, true), tile->second.packed), nextSite()));
    };
    nest(from.space, digits & ~vector.bit, {}, hooks);
  } else {
    use("shared_store");
    hooks.element = [&](std::span<const std::string> t) {
      line(fmt::format("sharedStore<{}>({}, ({})({}), {});", type, byteOffset(slot, text(offset), size), type, unwrapped(t[0]), nextSite()));
    };
    nest(from.space, digits, std::span(&operand, 1), hooks);
  }
  if (!writer.empty()) {
    close();
  }
}

void Emitter::exchangeIn(ValueId id, const IntExpr& offset, const std::string& slot, int64_t width) {
  const Value& v = value(id);
  int64_t size = dataTypeSize(v.dtype);
  std::string_view type = storageType(v.dtype);
  Tile tile = newTile("t", id);
  declare(tile);
  Hooks hooks;
  if (width > 1) {
    DigitInfo vector = geometry_.registers(v.space, v.digits).back();
    use("shared_load_vector");
    use(wordsSection(v.dtype));
    hooks.element = [&](std::span<const std::string>) {
      line(fmt::format("sharedLoadVector<{}, {}>({}, {}, {});", width, type, within(tile.name, elementIndex(tile, true), tile.packed),
                       byteOffset(slot, text(atFirst(offset, vector.symbol)), size), nextSite()));
    };
    nest(v.space, v.digits & ~vector.bit, {}, hooks);
  } else {
    use("shared_load");
    hooks.element = [&](std::span<const std::string>) {
      std::string call = fmt::format("sharedLoad<{}>({}, {})", type, byteOffset(slot, text(offset), size), nextSite());
      assign(tile, v.dtype == DataType::Bool ? fmt::format("({} != 0)", call) : call);
    };
    nest(v.space, v.digits, {}, hooks);
  }
  s_.tiles[id] = tile;
}

}  // namespace meshfuse::cuda
