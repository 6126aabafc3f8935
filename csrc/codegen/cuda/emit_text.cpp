#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "codegen/cuda/emitter.h"

namespace meshfuse::cuda {

void Emitter::line(std::string text) { s_.lines.push_back(std::string(2 * s_.indent, ' ') + std::move(text)); }

void Emitter::open(const std::string& text) {
  line(text.empty() ? "{" : text + " {");
  s_.indent++;
}

void Emitter::close() {
  s_.indent--;
  line("}");
}

IntExpr Emitter::withThreads(const IntExpr& e) const {
  IntExpr result = e;
  for (int64_t s = 0; s < std::ssize(p_.spaces); s++) {
    const auto spansAll = [&](tile::Level level, int64_t size) {
      const auto found = std::ranges::find_if(geometry_.digits(s), [&](const DigitInfo& d) {
        return d.level == level && d.size == size && d.weight == 1 && size > 1;
      });
      return found != geometry_.digits(s).end() ? &*found : nullptr;
    };
    const DigitInfo* lane = spansAll(tile::Level::Lane, 32);
    const DigitInfo* warp = spansAll(tile::Level::Warp, p_.threads() / 32);
    if (lane == nullptr || warp == nullptr) {
      continue;
    }
    const std::optional<LinearForm> ofLane = result.linearIn(lane->symbol);
    const std::optional<LinearForm> ofWarp = result.linearIn(warp->symbol);
    if (ofLane && ofWarp && !ofLane->slope.isConst(0) && ofWarp->slope == ofLane->slope * 32) {
      result = ofLane->slope * IntExpr::symbol("thread", {0, p_.threads() - 1, 1}) + ofWarp->rest -
               ofLane->slope * lane->value();
    }
  }
  return result;
}

void Emitter::openLoop(const DigitInfo& d, int64_t step) {
  line("#pragma unroll");
  std::string advance = step == 1 ? fmt::format("++{}", d.symbol) : fmt::format("{} += {}", d.symbol, step);
  open(fmt::format("for (int {} = 0; {} < {}; {})", d.symbol, d.symbol, d.size, advance));
}

Tile Emitter::newTile(std::string_view stem, tile::ValueId id) {
  const tile::Value& v = value(id);
  bool endsInDigit = !stem.empty() && stem.back() >= '0' && stem.back() <= '9';
  return {.name = s_.names.fresh(fmt::format("{}{}{}", stem, endsInDigit ? "_" : "", id)),
          .space = v.space,
          .digits = v.digits,
          .dtype = v.dtype,
          .elements = countOf(geometry_.registers(v.space, v.digits)),
          .packed = isHalfPrecision(v.dtype) && geometry_.vector(v.space, v.digits)};
}

Tile Emitter::declaredTile(std::string_view stem, tile::ValueId id) {
  Tile t = newTile(stem, id);
  declare(t);
  return t;
}

void Emitter::declare(const Tile& tile) {
  std::string_view t = registerType(tile.dtype);
  if (t == "u32" || t == "i64") {
    use("types");
  }
  int64_t n = tile.packed ? tile.elements / 2 : tile.elements;
  bool isArray = tile.elements > 1;
  line(isArray ? fmt::format("{} {}[{}];", t, tile.name, n) : fmt::format("{} {};", t, tile.name));
}

std::string registerIndex(const std::vector<DigitInfo>& registers, Unit unit) {
  Sections uses;
  return exprText(positionOf(registers, unit), uses);
}

std::string within(const std::string& array, const std::string& index, int64_t elementsOfAWord) {
  return index == "0"          ? array
         : elementsOfAWord > 1 ? fmt::format("{} + ({}) / {}", array, index, elementsOfAWord)
                               : fmt::format("{} + {}", array, index);
}

std::string Emitter::elementIndex(const Tile& tile, Unit unit) const {
  return registerIndex(geometry_.registers(tile.space, tile.digits), unit);
}

std::string Emitter::vectorAddress(const Tile& tile, Unit unit) const {
  return within(tile.name, elementIndex(tile, unit), tile.packed ? 2 : 1);
}

void Emitter::when(const std::string& condition, const std::function<void()>& body) {
  if (condition.empty()) {
    return body();
  }
  open(fmt::format("if ({})", condition));
  body();
  close();
}

std::string Emitter::element(const Tile& tile) {
  if (tile.elements > 1 && tile.packed) {
    use("bits_at");
    return fmt::format("bitsAt({}, {})", tile.name, elementIndex(tile));
  }
  return tile.elements == 1 ? tile.name : fmt::format("{}[{}]", tile.name, elementIndex(tile));
}

}  // namespace meshfuse::cuda
