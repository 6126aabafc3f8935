// Loads: from global memory, from scratch in shared memory, from scratch in registers.
#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "codegen/cuda/emitter.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

std::string lowered(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

std::string_view policy(Memory memory, Cache cache) {
  return memory != Memory::Input ? "kShared" : cache == Cache::Once ? "kOnce" : "kReadOnly";
}

}  // namespace

std::string Emitter::loadElement(const Access& a, const std::string& pointer, std::span<const std::string> tileTexts,
                                 Cache cache) {
  const TensorParam& t = tensor(a.tensor);
  if (isPrivate(a.tensor)) {
    const Scratch& scratch = scratchOf_.at(a.tensor);
    return scratch.registers.empty() ? scratch.name
                                     : fmt::format("{}[{}]", scratch.name, registerIndex(scratch.registers));
  }
  std::string call;
  if (isScratch(a.tensor)) {
    use("shared_load");
    call = fmt::format("sharedLoad<{}>({}, {})", storageType(t.dtype), address(a, pointer, tileTexts, Unit::Element),
                       nextSite());
  } else {
    use("load_one");
    call = fmt::format("loadOne<{}>({}, {})", policy(t.memory, cache), address(a, pointer, tileTexts, Unit::Element),
                       nextSite());
  }
  return t.dtype == DataType::Bool ? fmt::format("({} != 0)", call) : call;
}

std::string Emitter::loadCall(const Access& a, const std::string& destination, const std::string& address,
                              Cache cache) {
  const TensorParam& t = tensor(a.tensor);
  if (isScratch(a.tensor)) {
    use("shared_load_vector");
    use(wordsSection(t.dtype));
    return fmt::format("sharedLoadVector<{}, {}>({}, {}, {});", a.width, storageType(t.dtype), destination, address,
                       nextSite());
  }
  use("load_vector");
  use(wordsSection(t.dtype));
  return fmt::format("loadVector<{}, {}>({}, {}, {});", a.width, policy(t.memory, cache), destination, address,
                     nextSite());
}

void Emitter::load(ValueId id) {
  const Value& v = value(id);
  Access a = access(v.param, v.space, v.digits, v.index, v.where, v.mask);
  invariant(a.digits == v.digits, "[codegen cuda] kernel {}: the tile of load {} of {} lacks digits of its index",
            p_.name, id, tensor(v.param).name);
  Tile tile = newTile(lowered(tensor(v.param).name), id);
  if (isScratch(v.param) && !isPrivate(v.param)) {
    beforeRead(scratchOf_.at(v.param).name);
  }
  declare(tile);
  std::string pointer = isPrivate(v.param) ? std::string() : pointerTo(a, Direction::Load);
  if (a.width > 1) {
    loadVectors(a, tile, id, pointer);
  } else {
    std::vector<ValueId> wanted = accessValues(a);
    wanted.push_back(v.fill);
    Hooks hooks;
    hooks.element = [&](std::span<const std::string> texts) {
      std::string fill = texts.back().empty() ? floatLiteral(padding_.ofLoad(id), v.dtype, s_.uses) : texts.back();
      std::string condition = elementCondition(a, texts[texts.size() - 2]);
      std::string element = loadElement(a, pointer, texts, v.cache);
      assign(tile, condition.empty() ? element : fmt::format("{} ? {} : {}", condition, element, fill));
    };
    nest(v.space, v.digits, wanted, hooks);
  }
  s_.tiles[id] = tile;
}

void Emitter::loadVectors(const Access& a, const Tile& tile, ValueId id, const std::string& pointer) {
  const Value& v = value(id);
  DigitInfo vector = geometry_.registers(v.space, v.digits).back();
  std::vector<ValueId> wanted = accessValues(a);
  wanted.push_back(v.fill);
  Hooks hooks;
  hooks.element = [&](std::span<const std::string> texts) {
    std::string fill = texts.back().empty() ? floatLiteral(padding_.ofLoad(id), v.dtype, s_.uses) : texts.back();
    const std::string& maskText = texts[texts.size() - 2];
    bool chunks = a.width < a.vector;
    if (chunks) {
      openLoop(vector, a.width);
    }
    std::string destination =
        within(tile.name, elementIndex(tile, chunks ? Unit::Element : Unit::Vector), tile.packed ? 2 : 1);
    std::vector<std::string> conditions = a.vectorConditions;
    if (!maskText.empty()) {
      conditions.push_back(maskText);
    }
    std::string call = loadCall(a, destination, address(a, pointer, texts, Unit::Vector), v.cache);
    if (conditions.empty() && a.whole) {
      line(call);
    } else {
      if (a.whole || a.straddles) {
        line(fmt::format("if ({}) {}", joined(conditions), call));
      }
      if (!a.whole) {
        line(a.straddles ? "else {" : "{");
        s_.indent++;
      }
      if (a.whole) {
        use("fill");
        std::string both = tile.packed ? fill == "0x0000u" ? "0u" : fmt::format("{} * 0x10001u", fill) : fill;
        line(fmt::format("else fill<{}>({}, {});", tile.packed ? a.width / 2 : a.width, destination, both));
      } else {
        // The elements of this vector one by one; the loop variable hides the one around it.
        line("#pragma unroll");
        std::string start = chunks ? s_.names.fresh("first") : "0";
        if (chunks) {
          s_.lines.pop_back();
          line(fmt::format("const int {} = {};", start, vector.symbol));
          line("#pragma unroll");
        }
        std::string end = chunks ? fmt::format("{} + {}", start, a.width) : std::to_string(a.width);
        open(fmt::format("for (int {} = {}; {} < {}; ++{})", vector.symbol, start, vector.symbol, end, vector.symbol));
        std::string element = loadElement(a, pointer, texts, v.cache);
        assign(tile, fmt::format("{} ? {} : {}", elementCondition(a, maskText), element, fill));
        close();
        close();
      }
    }
    if (chunks) {
      close();
    }
  };
  nest(v.space, v.digits & ~vector.bit, wanted, hooks);
}

}  // namespace meshfuse::cuda
