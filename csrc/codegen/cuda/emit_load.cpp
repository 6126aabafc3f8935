// Loads: from global memory, from scratch in shared memory, from scratch in registers.
#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "codegen/cuda/emitter.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string_view policy(Memory memory, Cache cache) {
  return memory != Memory::Input ? "kShared" : cache == Cache::Once ? "kOnce" : "kReadOnly";
}

}  // namespace

std::string Emitter::loadElement(const Access& a, const std::string& pointer, Texts tileTexts, Cache cache) {
  const TensorParam& t = tensor(a.tensor);
  if (isPrivate(a.tensor)) {
    return privateElement(a.tensor);
  }
  std::string from = address(a, pointer, tileTexts, Unit::Element);
  if (isScratch(a.tensor)) {
    return sharedLoad(t.dtype, from);
  }
  use("load_one");
  std::string call = fmt::format("loadOne<{}>({}, {})", policy(t.memory, cache), from, nextSite());
  return t.dtype == DataType::Bool ? fmt::format("({} != 0)", call) : call;
}

std::string Emitter::loadCall(const Access& a, const std::string& destination, const std::string& address,
                              Cache cache) {
  const TensorParam& t = tensor(a.tensor);
  if (isScratch(a.tensor)) {
    return sharedVector(Direction::Load, t.dtype, a.width, destination, address);
  }
  use("load_vector");
  use(wordsSection(t.dtype));
  return fmt::format("loadVector<{}, {}{}>({}, {}, {});", a.width, policy(t.memory, cache), wideText(a), destination,
                     address, nextSite());
}

void Emitter::load(ValueId id) {
  const Value& v = value(id);
  Access a = access(v.param, v.space, v.digits, v.index, v.where, v.mask);
  invariant(a.digits == v.digits, "[codegen cuda] kernel {}: the tile of load {} of {} lacks digits of its index",
            p_.name, id, tensor(v.param).name);
  if (isScratch(v.param) && !isPrivate(v.param)) {
    beforeRead(scratchOf_.at(v.param).name);
  }
  Tile tile = declaredTile(lowered(tensor(v.param).name), id);
  std::string pointer = pointerTo(a, Direction::Load);
  if (a.width > 1) {
    loadVectors(a, tile, id, pointer);
  } else {
    auto loadOne = [&](Texts texts) {
      std::string fill = fillText(id, texts.back());
      std::string condition = elementCondition(a, texts[a.tiles.size()]);
      std::string element = loadElement(a, pointer, texts, v.cache);
      assign(tile, condition.empty() ? element : fmt::format("{} ? {} : {}", condition, element, fill));
    };
    nest(v.space, v.digits, accessValues(a, v.fill), {.element = loadOne});
  }
  s_.tiles[id] = tile;
}

// The value of a load outside of its bounds: the one `given`, or one that a reduction does not see.
std::string Emitter::fillText(ValueId load, const std::string& given) {
  return given.empty() ? floatLiteral(padding_.ofLoad(load), value(load).dtype, s_.uses) : given;
}

void Emitter::loadVectors(const Access& a, const Tile& tile, ValueId id, const std::string& pointer) {
  const Value& v = value(id);
  DigitInfo vector = *geometry_.vector(v.space, v.digits);
  auto loadVector = [&](Texts texts) {
    std::string fill = fillText(id, texts.back());
    const std::string& maskText = texts[a.tiles.size()];
    std::string destination;
    VectorMove move;
    move.call = [&](Unit unit) {
      destination = vectorAddress(tile, unit);
      return loadCall(a, destination, address(a, pointer, texts, Unit::Vector), v.cache);
    };
    move.outside = [&] {
      use("fill");
      std::string both = tile.packed ? fill == "0x0000u" ? "0u" : fmt::format("{} * 0x10001u", fill) : fill;
      line(fmt::format("else fill<{}>({}, {});", tile.packed ? a.width / 2 : a.width, destination, both));
    };
    move.element = [&] {
      std::string element = loadElement(a, pointer, texts, v.cache);
      assign(tile, fmt::format("{} ? {} : {}", elementCondition(a, maskText), element, fill));
    };
    moveVector(a, vector, maskText, move);
  };
  nest(v.space, v.digits & ~vector.bit, accessValues(a, v.fill), {.element = loadVector});
}

}  // namespace meshfuse::cuda
